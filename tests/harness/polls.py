"""Health polls from another process: at a constant rate, each on a new connection.

``python -m harness.polls HOST PORT RATE`` polls until its input ends, and then prints all outcomes as JSON. Their times
are of the monotonic clock, which all processes of the machine share.
"""

from __future__ import annotations

import asyncio
import json
import sys
import time
from collections import Counter
from dataclasses import dataclass
from itertools import pairwise
from typing import Final, NamedTuple

from harness.child import PipedProcess

TIMEOUT_S: Final = 5.0
MOST_WAITING: Final = 64
LATE_S: Final = 0.05
"""How late a poll may be; polls that are later are left out."""

MOST_S: Final = 1_800.0
ENDS_S: Final = 0.02
"""How long after its signal, or before, a main has answered its last poll."""

UP: Final = "200 up"
RESET: Final = "reset"
REFUSED: Final = "refused"
UNANSWERED: Final = frozenset({RESET, REFUSED, "timeout"})


class Poll(NamedTuple):
    """``outcome``: the status and the body's first word; or ``refused``, ``reset``, ``timeout``."""

    begun: float
    ended: float
    outcome: str


@dataclass
class Polled:
    """All polls."""

    polls: list[Poll]

    @property
    def outcomes(self) -> Counter[str]:
        return Counter(poll.outcome for poll in self.polls)

    def gap_s(self, at: float) -> float:
        """Seconds from ``at``, the instant of a signal, to the end of the time without an answer that begins then."""
        answered = (poll.ended for poll in self.polls if poll.outcome not in UNANSWERED)
        silences = [pair for pair in pairwise(sorted([at, *answered])) if at - ENDS_S < pair[0] < at + ENDS_S]
        return max(silences, key=lambda pair: pair[1] - pair[0])[1] - at


class Polls(PipedProcess):
    """The other process; ``polled`` has its outcomes after the context."""

    def __init__(self, address: tuple[str, int], rate: float) -> None:
        super().__init__("harness.polls", *address, rate)

    @property
    def polled(self) -> Polled:
        return Polled([Poll(*poll) for poll in self.result])


# -- the process ------------------------------------------------------------------------------------------------------


class _Poller:
    """Polls one address until ``stop`` is set."""

    def __init__(self, address: tuple[str, int]) -> None:
        self.polls: list[Poll] = []
        self.stop = asyncio.Event()
        self._address = address

    async def run(self, rate: float) -> None:
        begun, count, waiting = time.monotonic(), 0, set[asyncio.Task[None]]()
        while not self.stop.is_set() and time.monotonic() - begun < MOST_S:
            await asyncio.sleep(begun + count / rate - time.monotonic())
            if len(waiting) < MOST_WAITING:
                waiting.add(task := asyncio.create_task(self._poll()))
                task.add_done_callback(waiting.discard)
            late = time.monotonic() - begun - count / rate
            count += 1 + int(max(0.0, late - LATE_S) * rate)
        await asyncio.gather(*waiting)

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
        self.polls.append(Poll(begun, time.monotonic(), outcome))


def _outcome(received: bytes) -> str:
    head, _, body = received.decode().partition("\r\n\r\n")
    return f"{head[9:12]} {body.split()[0] if body.split() else ''}".strip() or RESET


def _word(error: Exception) -> str:
    if isinstance(error, ConnectionRefusedError):
        return REFUSED
    return "timeout" if isinstance(error, TimeoutError) else RESET


async def _main(host: str, port: str, rate: str) -> None:
    poller = _Poller((host, int(port)))
    loop = asyncio.get_running_loop()
    loop.add_reader(sys.stdin, poller.stop.set)
    sys.stdout.write("ready\n")
    sys.stdout.flush()
    await poller.run(float(rate))
    json.dump(poller.polls, sys.stdout)


if __name__ == "__main__":
    asyncio.run(_main(*sys.argv[1:]))
