"""A crowd of health polls from a process of its own: each on a new connection, at a constant rate, and one client that
keeps its connection. Every outcome is told with its times, on the clock that all processes of the machine share.

``python -m harness.polls HOST PORT RATE`` polls until its input ends, and then prints what came of it as JSON.
"""

from __future__ import annotations

import json
import os
import selectors
import socket
import subprocess
import sys
import time
from collections import Counter
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from statistics import median
from typing import Final, NamedTuple, Self

PATIENCE_S: Final = 5.0
MOST_WAITING: Final = 64
LATE_S: Final = 0.05
"""A machine that is too busy for the rate is asked less often: nobody has a thousand balancers."""

MOST_S: Final = 1_800.0
ENDS_S: Final = 0.02
"""So close to its signal a main has answered for the last time."""

KEPT_PAUSE_S: Final = 0.005
UP: Final = "200 up"
RESET: Final = "reset"
_TESTS: Final = Path(__file__).parents[1]


class Poll(NamedTuple):
    """``outcome``: the status and the body's first word; or ``refused``, ``reset``, ``timeout``."""

    begun: float
    ended: float
    outcome: str


@dataclass
class Polled:
    """All polls. ``kept`` came on one connection, which was found closed between two of them ``closed`` times."""

    polls: list[Poll]
    kept: list[Poll]
    closed: int

    @property
    def outcomes(self) -> Counter[str]:
        return Counter(poll.outcome for poll in self.polls)

    @property
    def kept_outcomes(self) -> Counter[str]:
        return Counter(poll.outcome for poll in self.kept)

    def handover_s(self, at: float) -> float:
        """From ``at``, when the main was told to end, to the end of the silence that begins then."""
        ends = sorted([at, *(poll.ended for poll in self.polls)])
        silences = [pair for pair in pairwise(ends) if at - ENDS_S < pair[0] < at + ENDS_S]
        return max(silences, key=lambda pair: pair[1] - pair[0])[1] - at


class Polls:
    """The process; its outcomes once the context has been left."""

    def __init__(self, address: tuple[str, int], rate: float) -> None:
        self._arguments = [*map(str, address), str(rate)]
        self.polled = Polled([], [], 0)

    def __enter__(self) -> Self:
        command = [sys.executable, "-m", "harness.polls", *self._arguments]
        env = {**os.environ, "PYTHONPATH": os.pathsep.join((str(_TESTS), str(_TESTS.parent)))}
        self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=env)
        assert self._process.stdout
        assert self._process.stdout.readline() == b"polling\n"
        return self

    def __exit__(self, *_: object) -> None:
        printed = self._process.communicate(timeout=PATIENCE_S + 30)[0]
        told = json.loads(printed)
        self.polled = Polled(
            polls=[Poll(*poll) for poll in told["polls"]],
            kept=[Poll(*poll) for poll in told["kept"]],
            closed=told["closed"],
        )


def told(name: str, took_s: list[float], polled: Polled) -> str:
    """One line for a person: how long, and what was lost."""
    ms = [1000 * each for each in took_s]
    return (
        f"{name}: {len(ms)} times, hand-over p50 {median(ms):.1f} ms, max {max(ms):.1f} ms; "
        f"{len(polled.polls)} polls {dict(polled.outcomes)}, kept {dict(polled.kept_outcomes)} closed {polled.closed}"
    )


# -- the process --------------------------------------------------------------------------------------------


class _Asking:
    """One connection on which something was asked."""

    def __init__(self, address: tuple[str, int], request: bytes) -> None:
        self.begun = time.monotonic()
        self.heard = bytearray()
        self.outcome = ""
        self.connection = socket.socket()
        self.connection.settimeout(PATIENCE_S)
        try:
            self.connection.connect(address)  # into the backlog: nobody has to be awake for that
            self.ask(request)
        except OSError as error:
            self.outcome = _word(error)
        self.connection.settimeout(0)

    def ask(self, request: bytes) -> None:
        """Ask (again)."""
        self.begun = time.monotonic()
        self.heard.clear()
        self.connection.sendall(request)

    def hear(self) -> bool:
        """Read on; False when the connection has ended, and then ``outcome`` says how."""
        try:
            more = self.connection.recv(4096)
        except OSError as error:
            self.outcome = _word(error)
            return False
        self.heard += more
        if not more:
            self.outcome = _outcome(bytes(self.heard))
        return bool(more)

    def poll(self) -> Poll:
        """What came of it, now."""
        return Poll(self.begun, time.monotonic(), self.outcome)


class _Crowd:
    """Asks at its rate, each time on a new connection, and hears whoever has an answer."""

    def __init__(self, address: tuple[str, int], rate: float) -> None:
        self.done: list[Poll] = []
        self.kept = _Kept(address)
        self.is_over = False
        self._address = address
        self._rate = rate
        self._ways = selectors.DefaultSelector()
        self._ways.register(sys.stdin, selectors.EVENT_READ, None)

    def run(self) -> None:
        begun, count = time.monotonic(), 0
        while not self.is_over and time.monotonic() - begun < MOST_S:
            self._hear(max(0.0, begun + count / self._rate - time.monotonic()))
            late = time.monotonic() - begun - count / self._rate
            if late >= 0:
                if self._count_waiting() < MOST_WAITING:
                    self._begin()
                self.kept.ask_when_due(self._ways)
                count += 1 + int(max(0.0, late - LATE_S) * self._rate)
        ends_at = time.monotonic() + PATIENCE_S
        while self._waiting() and time.monotonic() < ends_at:
            self._hear(0.1)
        self.done += [Poll(asking.begun, time.monotonic(), "timeout") for asking in self._waiting()]

    def _count_waiting(self) -> int:
        return len(self._ways.get_map()) - 2

    def _waiting(self) -> list[_Asking]:
        return [key.data for key in self._ways.get_map().values() if isinstance(key.data, _Asking)]

    def _begin(self) -> None:
        asking = _Asking(self._address, b"GET /health HTTP/1.1\r\nHost: polls\r\nConnection: close\r\n\r\n")
        if asking.outcome:
            self.done.append(asking.poll())
            asking.connection.close()
        else:
            self._ways.register(asking.connection, selectors.EVENT_READ, asking)

    def _hear(self, timeout_s: float) -> None:
        for key, _ in self._ways.select(timeout_s):
            if key.data is None:
                self._ways.unregister(sys.stdin)
                self.is_over = True
            elif key.data is self.kept:
                self.kept.hear(self._ways)
            elif not key.data.hear():
                self._ways.unregister(key.fileobj)
                key.data.connection.close()
                self.done.append(key.data.poll())


class _Kept:
    """Asks on one connection, and opens another one when that has ended."""

    def __init__(self, address: tuple[str, int]) -> None:
        self.done: list[Poll] = []
        self.closed = 0
        self._address = address
        self._asking: _Asking | None = None
        self._is_answered = True
        self._next = 0.0

    def ask_when_due(self, ways: selectors.BaseSelector) -> None:
        if not self._is_answered or time.monotonic() < self._next:
            return
        self._is_answered = False
        request = b"GET /health HTTP/1.1\r\nHost: kept\r\n\r\n"
        if self._asking is None:
            self._asking = _Asking(self._address, request)
            ways.register(self._asking.connection, selectors.EVENT_READ, self)
        else:
            try:
                self._asking.ask(request)
            except OSError as error:
                self._asking.outcome = _word(error)

    def hear(self, ways: selectors.BaseSelector) -> None:
        asking = self._asking
        assert asking is not None
        if asking.hear():
            asking.outcome = _outcome(bytes(asking.heard))
            self._told(asking)
            return
        ways.unregister(asking.connection)
        asking.connection.close()
        self._asking = None
        if self._is_answered:
            self.closed += 1  # between two requests, which any client knows to be no loss
        else:
            self._told(asking)

    def _told(self, asking: _Asking) -> None:
        self.done.append(asking.poll())
        self._is_answered = True
        self._next = time.monotonic() + KEPT_PAUSE_S


def _outcome(heard: bytes) -> str:
    if not heard:
        return RESET
    head, _, body = heard.decode().partition("\r\n\r\n")
    return f"{head[9:12]} {body.split()[0] if body.split() else ''}".strip()


def _word(error: OSError) -> str:
    if isinstance(error, ConnectionRefusedError):
        return "refused"
    return "timeout" if isinstance(error, TimeoutError) else RESET


def main(host: str, port: str, rate: str) -> None:
    """Poll until our input ends, and print what came of it."""
    crowd = _Crowd((host, int(port)), float(rate))
    sys.stdout.write("polling\n")
    sys.stdout.flush()
    crowd.run()
    json.dump({"polls": crowd.done, "kept": crowd.kept.done, "closed": crowd.kept.closed}, sys.stdout)


if __name__ == "__main__":
    main(*sys.argv[1:])
