"""One run of the command line beside a sidecar: the same environment, another process."""

from __future__ import annotations

import subprocess
import sys
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from harness.sidecar import Sidecar

_TIMEOUT_S = 60


class Done(NamedTuple):
    """How it ended."""

    code: int
    out: str
    err: str


def command(beside: Sidecar, *arguments: str, **environ: str) -> Done:
    """Run ``health-arbiter`` with these arguments; ``environ`` wins over that of the sidecar."""
    done = subprocess.run(
        [sys.executable, "-m", "sidecar", *arguments],
        env={**(beside._env() or {}), **environ},
        capture_output=True,
        text=True,
        timeout=_TIMEOUT_S,
        check=False,
    )
    return Done(done.returncode, done.stdout, done.stderr)
