"""A command on a real terminal: its table is drawn anew until Ctrl-C."""

from __future__ import annotations

import os
import pty
import select
import signal
import subprocess
import sys
import time
from contextlib import suppress
from typing import TYPE_CHECKING, Self

import pytest

from harness.sidecar import AT_ONCE
from harness.waiting import wait_for

if TYPE_CHECKING:
    from harness.children import StartSidecar
    from harness.redis_server import RedisServer
    from harness.sidecar import Sidecar

pytestmark = pytest.mark.process


@pytest.mark.site
def test_watch_draws_anew_until_it_is_interrupted(sidecar: StartSidecar, redis_server: RedisServer) -> None:
    one, other = sidecar.fleet(2, redis_url=redis_server.url, **AT_ONCE)
    wait_for(lambda: len(_members(one)) == 2, timeout_s=60, what="both are known")
    with _Terminal(one, "fleet", "--watch") as terminal:
        terminal.read_until("Ctrl-C ends")
        other.stop()
        terminal.read_until("gone")
        terminal.read_until("silent for")
        one.stop()
        terminal.read_until("no sidecar answers")
        terminal.interrupt()
        assert terminal.ended() == 0


def _members(one: Sidecar) -> list[object]:
    members: list[object] = one.request("local", "GET", "/fleet").json()["members"]
    return members


class _Terminal:
    """A command on a terminal of its own, 100 columns wide."""

    def __init__(self, beside: Sidecar, *arguments: str) -> None:
        self._ours, theirs = pty.openpty()
        environ = {**beside._env(), "COLUMNS": "100", "LINES": "30", "TERM": "xterm"}
        command_line = [sys.executable, "-m", "sidecar", *arguments]
        self._process = subprocess.Popen(
            command_line, env=environ, stdin=theirs, stdout=theirs, stderr=theirs, start_new_session=True
        )
        os.close(theirs)
        self._told = ""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self._process.poll() is None:
            self._process.kill()
        self._process.wait()
        os.close(self._ours)

    def read_until(self, text: str, timeout_s: float = 60) -> None:
        until = time.monotonic() + timeout_s
        while text not in self._told:
            assert time.monotonic() < until, self._told[-2000:]
            self._read(0.2)

    def interrupt(self) -> None:
        """Ctrl-C, again if it is lost, as a person would try."""
        wait_for(self._is_interrupted, timeout_s=60, what="it heard the signal")

    def _is_interrupted(self) -> bool:
        if self._process.poll() is None:
            self._process.send_signal(signal.SIGINT)
            with suppress(subprocess.TimeoutExpired):
                self._process.wait(2.0)
        return self._process.poll() is not None

    def ended(self) -> int:
        until = time.monotonic() + 60
        while self._process.poll() is None:
            assert time.monotonic() < until, self._told[-2000:]
            self._read(0.1)
        return self._process.wait()

    def _read(self, wait_s: float) -> None:
        ready, _, _ = select.select([self._ours], [], [], wait_s)
        if ready:
            try:
                self._told += os.read(self._ours, 65536).decode(errors="replace")
            except OSError:
                time.sleep(wait_s)  # the other end is closed: the process is about to end
