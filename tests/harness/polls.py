"""Health polls from another process: at a constant rate, each on a new connection, and one client that keeps its own.

``python -m harness.polls HOST PORT RATE`` polls until its input ends, and then prints all outcomes as JSON. Their times
are of the monotonic clock, which all processes of the machine share.
"""

from __future__ import annotations

import asyncio
import json
import re
import sys
import time
from collections import Counter
from dataclasses import dataclass
from itertools import pairwise
from statistics import median
from typing import Final, NamedTuple

from harness.child import PipedProcess

TIMEOUT_S: Final = 5.0
MOST_WAITING: Final = 64
LATE_S: Final = 0.05
"""How late a poll may be; polls that are later are left out."""

MOST_S: Final = 1_800.0
ENDS_S: Final = 0.02
"""How long after its signal, or before, a main has answered its last poll."""

KEPT_PAUSE_S: Final = 0.005
UP: Final = "200 up"
RESET: Final = "reset"


class Poll(NamedTuple):
    """``outcome``: the status and the body's first word; or ``refused``, ``reset``, ``timeout``."""

    begun: float
    ended: float
    outcome: str


@dataclass
class Polled:
    """All polls. ``kept`` are those of the kept connection, which was closed between two polls ``closed`` times."""

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
        """Seconds from ``at``, the instant of the signal, to the end of the silence that begins then."""
        ends = sorted([at, *(poll.ended for poll in self.polls)])
        silences = [pair for pair in pairwise(ends) if at - ENDS_S < pair[0] < at + ENDS_S]
        return max(silences, key=lambda pair: pair[1] - pair[0])[1] - at


class Polls(PipedProcess):
    """The other process; ``polled`` has its outcomes after the context."""

    def __init__(self, address: tuple[str, int], rate: float) -> None:
        super().__init__("harness.polls", *address, rate)

    @property
    def polled(self) -> Polled:
        polls, kept, closed = self.result
        return Polled([Poll(*poll) for poll in polls], [Poll(*poll) for poll in kept], closed)


def summary(name: str, took_s: list[float], polled: Polled) -> str:
    """One line for a person: the duration of the hand-overs, and the lost polls."""
    ms = [1000 * each for each in took_s]
    return (
        f"{name}: {len(ms)} times, hand-over p50 {median(ms):.1f} ms, max {max(ms):.1f} ms; "
        f"{len(polled.polls)} polls {dict(polled.outcomes)}, kept {dict(polled.kept_outcomes)} closed {polled.closed}"
    )


# -- the process ------------------------------------------------------------------------------------------------------


class _Poller:
    """Polls one address until ``stop`` is set."""

    def __init__(self, address: tuple[str, int]) -> None:
        self.polled = Polled([], [], 0)
        self.stop = asyncio.Event()
        self._address = address

    async def run(self, rate: float) -> None:
        begun, count, waiting = time.monotonic(), 0, set[asyncio.Task[None]]()
        keeping = asyncio.create_task(self._keep())
        while not self.stop.is_set() and time.monotonic() - begun < MOST_S:
            await asyncio.sleep(begun + count / rate - time.monotonic())
            if len(waiting) < MOST_WAITING:
                waiting.add(task := asyncio.create_task(self._poll()))
                task.add_done_callback(waiting.discard)
            late = time.monotonic() - begun - count / rate
            count += 1 + int(max(0.0, late - LATE_S) * rate)
        self.stop.set()
        await asyncio.gather(keeping, *waiting)

    async def _poll(self) -> None:
        begun = time.monotonic()
        try:
            async with asyncio.timeout(TIMEOUT_S):
                reader, writer = await asyncio.open_connection(*self._address)
                writer.write(b"GET /health HTTP/1.1\r\nHost: polls\r\nConnection: close\r\n\r\n")
                try:
                    outcome = _outcome(await reader.read())
                finally:
                    writer.close()
        except OSError as error:
            outcome = _word(error)
        self.polled.polls.append(Poll(begun, time.monotonic(), outcome))

    async def _keep(self) -> None:
        """Poll on one connection, and open another one after its end."""
        reader, writer = await asyncio.open_connection(*self._address)
        while not self.stop.is_set():
            begun = time.monotonic()
            if reader.at_eof() or reader.exception():
                self.polled.closed += 1  # between two requests, which loses none
                writer.close()
                reader, writer = await asyncio.open_connection(*self._address)
            try:
                async with asyncio.timeout(TIMEOUT_S):
                    writer.write(b"GET /health HTTP/1.1\r\nHost: kept\r\n\r\n")
                    head = await reader.readuntil(b"\r\n\r\n")
                    length = re.search(rb"(?i)content-length: *(\d+)", head)
                    outcome = _outcome(head + await reader.readexactly(int(length[1]) if length else 0))
            except (OSError, EOFError) as error:
                outcome = _word(error)
                writer.close()
                reader, writer = await asyncio.open_connection(*self._address)
            self.polled.kept.append(Poll(begun, time.monotonic(), outcome))
            await asyncio.sleep(KEPT_PAUSE_S)
        writer.close()


def _outcome(received: bytes) -> str:
    head, _, body = received.decode().partition("\r\n\r\n")
    return f"{head[9:12]} {body.split()[0] if body.split() else ''}".strip() or RESET


def _word(error: Exception) -> str:
    if isinstance(error, ConnectionRefusedError):
        return "refused"
    return "timeout" if isinstance(error, TimeoutError) else RESET


async def _main(host: str, port: str, rate: str) -> None:
    poller = _Poller((host, int(port)))
    loop = asyncio.get_running_loop()
    loop.add_reader(sys.stdin, poller.stop.set)
    sys.stdout.write("ready\n")
    sys.stdout.flush()
    await poller.run(float(rate))
    polled = poller.polled
    json.dump((polled.polls, polled.kept, polled.closed), sys.stdout)


if __name__ == "__main__":
    asyncio.run(_main(*sys.argv[1:]))
