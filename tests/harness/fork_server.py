"""Starts processes of the sidecar without their imports, which take 0.3 s of each: for tests that start hundreds.

The fork server of multiprocessing has imported the sidecar once. It forks for each start, and the child becomes
``health-arbiter`` with the arguments, the environment and the directory that a new process would have.

Tests marked ``fresh`` start every process anew: what a start costs, what it loads, and what /proc shows of it differs
here.
"""

from __future__ import annotations

import multiprocessing
import os
import signal
import subprocess
import sys
from multiprocessing.forkserver import ensure_running
from pathlib import Path
from typing import TYPE_CHECKING, Final
from unittest.mock import patch

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

_CONTEXT: Final = multiprocessing.get_context("forkserver")
_CONTEXT.set_forkserver_preload(["harness.preload"])
_OF_THE_INTERPRETER: Final = ("PYTHON", "LD_", "LC_", "LANG", "MALLOC_", "GLIBC_")
"""Variables that only a new process reads."""

_TESTS: Final = Path(__file__).parents[1]
_PATH: Final = os.pathsep.join((str(_TESTS), str(_TESTS.parent)))


class ForkedProcess:
    """The part of ``subprocess.Popen`` that the tests use. Its output is appended to ``log``."""

    def __init__(self, arguments: Sequence[str], env: Mapping[str, str], cwd: Path, log: Path) -> None:
        words = (list(arguments), dict(env), str(cwd), str(log))
        with patch.dict(os.environ, PYTHONPATH=_PATH):  # the server finds the module to preload by it
            ensure_running()
        self._process = _CONTEXT.Process(target=_become, args=words, daemon=True)
        self._process.start()
        assert self._process.pid is not None
        self.pid = self._process.pid

    def poll(self) -> int | None:
        return self._process.exitcode

    def wait(self, timeout: float | None = None) -> int:
        self._process.join(timeout)
        code = self.poll()
        if code is None:
            raise subprocess.TimeoutExpired("health-arbiter", timeout or 0)
        return code

    def send_signal(self, number: int) -> None:
        if self.poll() is None:
            os.kill(self.pid, number)

    def terminate(self) -> None:
        self.send_signal(signal.SIGTERM)

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)


def _become(arguments: list[str], env: dict[str, str], cwd: str, log: str) -> None:
    """Be ``health-arbiter``, in the forked process."""
    opened = os.open(log, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    for number in (1, 2):
        os.dup2(opened, number)
    os.close(opened)
    os.environ.clear()
    os.environ.update(env)
    os.chdir(cwd)
    sys.argv = ["health-arbiter", *arguments]
    from sidecar.cli.main import main  # noqa: PLC0415 - in the child

    sys.exit(main())


class ForkServer:
    """``is_used``: whether the test that runs may start processes here."""

    def __init__(self) -> None:
        self.is_used = False

    def can_start(self, command: Sequence[str], env: Mapping[str, str]) -> bool:
        """Whether this is a process of the sidecar that differs in nothing that only a new process reads."""
        names = {name for name in (*env, *os.environ) if name.startswith(_OF_THE_INTERPRETER)}
        is_same = all(env.get(name) == os.environ.get(name) for name in names - {"PYTHONPATH"})
        return self.is_used and is_same and list(command[:3]) == [sys.executable, "-m", "sidecar"]


FORK_SERVER: Final = ForkServer()
