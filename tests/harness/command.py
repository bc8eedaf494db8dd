"""A command of an engineer beside a sidecar, in this process: what it asks and prints needs neither a new process nor
its imports. What a new process costs and loads is measured by the tests of ``cli`` and by the benchmark.
"""

from __future__ import annotations

import io
import os
import sys
from contextlib import redirect_stderr, redirect_stdout
from typing import TYPE_CHECKING, Final, NamedTuple
from unittest.mock import patch

from harness.child import python_env
from sidecar.cli import application

if TYPE_CHECKING:
    from harness.sidecar import Sidecar


class Done(NamedTuple):
    """Exit code and output of a command."""

    code: int
    out: str
    err: str


OPERATOR: Final = "operator"
"""The login name of who runs a command: orders need a person."""


class _Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def command(beside: Sidecar, *words: str, typed: str | None = None, **environ: str) -> Done:
    """Run ``health-arbiter`` with these words in the environment of a sidecar; ``environ`` wins over that.

    ``typed``: what an operator types until the end of the input; with None there is no terminal.
    """
    out, err = io.StringIO(), io.StringIO()
    env = {"LOGNAME": OPERATOR, **python_env(**beside.environ()), **environ}
    with (
        patch.dict(os.environ, env, clear=True),
        patch.object(sys, "stdin", io.StringIO() if typed is None else _Terminal(typed)),
        redirect_stdout(out),
        redirect_stderr(err),
    ):
        code = application.run(words, env)
    return Done(code, out.getvalue(), err.getvalue())
