"""One child process: started, watched until ready, stopped, frozen and killed by its own id."""

from __future__ import annotations

import os
import re
import signal
import subprocess
from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, Self

from harness.waiting import wait_for

if TYPE_CHECKING:
    from pathlib import Path

_PORT_TAKEN = re.compile(r"address (already )?in use|cannot bind", re.IGNORECASE)
_SHOWN_CHARACTERS = 8000


class NotReadyError(AssertionError):
    """A child that ended, or did not answer, before it was ready. The message holds its output."""


class Child(ABC):
    """A process whose standard output and error go to ``<directory>/<name>.log``."""

    def __init__(self, name: str, directory: Path) -> None:
        self.name = name
        self.directory = directory
        self.log = directory / f"{name}.log"
        self._process: subprocess.Popen[bytes] | None = None
        self._placed = False

    @abstractmethod
    def _command(self) -> list[str]:
        """The program and its arguments."""

    @abstractmethod
    def _is_ready(self) -> bool:
        """Whether it does its work; an OSError stands for no."""

    def _choose_place(self) -> None:  # noqa: B027 - a child whose ports are given has no choice
        """Choose free ports, before the first start or because another process has just taken one."""

    def _env(self) -> dict[str, str] | None:
        """The whole environment; None for ours."""
        return None

    @property
    def pid(self) -> int:
        return self._started().pid

    @property
    def alive(self) -> bool:
        return self._process is not None and self._process.poll() is None

    def start(self) -> Self:
        """Launch, and return once it is ready; elsewhere if another process was quicker to take the port.

        One that has been ready before is started at the same place or not at all: others know it there.
        """
        for attempts_left in (0,) if self._placed else (2, 1, 0):
            self.launch()
            try:
                self.ready()
            except NotReadyError as error:
                self.kill()
                if not attempts_left or not _PORT_TAKEN.search(str(error)):
                    raise
            else:
                break
        return self

    def launch(self) -> None:
        """Start without waiting: for one that is expected to refuse, or for many at once."""
        if self.alive:
            raise AssertionError(f"{self.name} runs already")
        if not self._placed:
            self._choose_place()
        with self.log.open("ab") as log:
            self._process = subprocess.Popen(
                self._command(),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                cwd=self.directory,
                env=self._env(),
            )

    def ready(self, timeout_s: float = 40) -> None:
        """Return once it does its work; NotReadyError when the process ends first, or the time does."""
        what = f"{self.name} is ready"
        try:
            wait_for(lambda: not self.alive or self._is_ready(), timeout_s=timeout_s, what=what)
        except AssertionError as error:
            raise NotReadyError(f"{error}\n{self.shown()}") from None
        if not self.alive:
            raise NotReadyError(f"{self.name} ended with {self.wait()} before it was ready\n{self.shown()}")
        self._placed = True

    def terminate(self) -> None:
        """SIGTERM, without waiting."""
        self._started().terminate()

    def kill(self) -> None:
        """SIGKILL; returns when the process is gone."""
        if self._process is not None:
            self._process.kill()
            self._process.wait(30)

    def pause(self) -> None:
        """SIGSTOP; returns when the process stands still."""
        self._started().send_signal(signal.SIGSTOP)
        os.waitid(os.P_PID, self.pid, os.WSTOPPED | os.WEXITED | os.WNOWAIT)

    def resume(self) -> None:
        """SIGCONT."""
        self._started().send_signal(signal.SIGCONT)

    def wait(self, timeout_s: float = 30) -> int:
        """The exit code (negative: the signal that ended it), once the process has ended."""
        try:
            return self._started().wait(timeout_s)
        except subprocess.TimeoutExpired:
            raise AssertionError(f"{self.name} still runs after {timeout_s:g} s\n{self.shown()}") from None

    def stop(self, timeout_s: float = 5) -> None:
        """SIGTERM, also when paused, and SIGKILL if that was not enough. A second call does nothing."""
        if not self.alive:
            return
        self.terminate()
        self.resume()
        try:
            self.wait(timeout_s)
        except AssertionError:
            self.kill()

    def output(self) -> str:
        """All that it has written so far, over all its starts."""
        return self.log.read_text(errors="replace") if self.log.exists() else ""

    def shown(self) -> str:
        """The end of the output with a headline, for a failure message."""
        return f"--- output of {self.name} ---\n{self.output()[-_SHOWN_CHARACTERS:]}"

    def _started(self) -> subprocess.Popen[bytes]:
        if self._process is None:
            raise AssertionError(f"{self.name} was never started")
        return self._process
