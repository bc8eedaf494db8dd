"""One child process: start it, wait until it is ready, pause, stop and kill it by its own id."""

from __future__ import annotations

import os
import signal
import subprocess
from abc import ABC, abstractmethod
from pathlib import Path
from typing import Final, Self

from harness.fork_server import FORK_SERVER, ForkedProcess
from harness.waiting import wait_for

TESTS: Final = Path(__file__).parents[1]
_SHOWN_CHARACTERS = 8000


def python_env(**more: str) -> dict[str, str]:
    """The environment of a Python process: without settings of the test run, and with the project on its path."""
    kept = {key: value for key, value in os.environ.items() if not key.startswith(("ARBITER_", "NOMAD_"))}
    path = (str(TESTS), str(TESTS.parent), *filter(None, (kept.get("PYTHONPATH"),)))
    return {**kept, "PYTHONPATH": os.pathsep.join(path), **more}


class NotReadyError(AssertionError):
    """A child ended, or did not answer, before it was ready. The message has its output."""


class Child(ABC):
    """A process whose standard output and error go to ``<directory>/<name>.log``."""

    def __init__(self, name: str, directory: Path) -> None:
        self.name = name
        self.directory = directory
        self.log = directory / f"{name}.log"
        self._process: subprocess.Popen[bytes] | ForkedProcess | None = None

    @abstractmethod
    def _command(self) -> list[str]:
        """The program and its arguments."""

    @abstractmethod
    def _is_ready(self) -> bool:
        """Whether the process serves; an OSError means no."""

    def _env(self) -> dict[str, str] | None:
        """The whole environment; None is the environment of the tests."""
        return None

    @property
    def pid(self) -> int:
        return self._started().pid

    @property
    def alive(self) -> bool:
        return self._process is not None and self._process.poll() is None

    def start(self) -> Self:
        """Launch, and return once it is ready."""
        self.launch()
        try:
            self.ready()
        except NotReadyError:
            self.kill()
            raise
        return self

    def launch(self) -> None:
        """Start without waiting: for a process that should refuse, or for many at once."""
        if self.alive:
            raise AssertionError(f"{self.name} runs already")
        command, env = self._command(), self._env()
        if env is not None and FORK_SERVER.can_start(command, env):
            self._process = ForkedProcess(command[3:], env, self.directory, self.log)
            return
        with self.log.open("ab") as log:
            self._process = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, cwd=self.directory, env=env
            )

    def ready(self, timeout_s: float = 60) -> None:
        """Return once it serves; NotReadyError when the process ends first, or the time does."""
        what = f"{self.name} is ready"
        try:
            wait_for(lambda: not self.alive or self._is_ready(), timeout_s=timeout_s, what=what)
        except AssertionError as error:
            raise NotReadyError(f"{error}\n{self.shown()}") from None
        if not self.alive:
            raise NotReadyError(f"{self.name} ended with {self.wait()} before it was ready\n{self.shown()}")

    def terminate(self) -> None:
        """SIGTERM, without waiting."""
        self._started().terminate()

    def kill(self) -> None:
        """SIGKILL; returns when the process is gone."""
        if self._process is not None:
            self._process.kill()
            self._process.wait(30)

    def pause(self) -> None:
        """SIGSTOP; returns when the process is stopped."""
        self._started().send_signal(signal.SIGSTOP)
        stat = Path(f"/proc/{self.pid}/stat")
        wait_for(lambda: stat.read_text().rpartition(") ")[2][0] in "TZ", timeout_s=60, what=f"{self.name} is stopped")

    def resume(self) -> None:
        """SIGCONT."""
        self._started().send_signal(signal.SIGCONT)

    def wait(self, timeout_s: float = 60) -> int:
        """Wait for the end of the process; its exit code (negative: the signal that ended it)."""
        try:
            return self._started().wait(timeout_s)
        except subprocess.TimeoutExpired:
            raise AssertionError(f"{self.name} still runs after {timeout_s:g} s\n{self.shown()}") from None

    def stop(self, timeout_s: float = 5) -> None:
        """SIGTERM, also when paused, and SIGKILL after the timeout. A second call does nothing."""
        if not self.alive:
            return
        self.terminate()
        self.resume()
        try:
            self.wait(timeout_s)
        except AssertionError:
            self.kill()

    def output(self) -> str:
        """Everything that the process has written, over all its starts."""
        return self.log.read_text(errors="replace") if self.log.exists() else ""

    def shown(self) -> str:
        """The end of the output with a headline, for a failure message."""
        return f"--- output of {self.name} ---\n{self.output()[-_SHOWN_CHARACTERS:]}"

    def _started(self) -> subprocess.Popen[bytes] | ForkedProcess:
        if self._process is None:
            raise AssertionError(f"{self.name} was never started")
        return self._process
