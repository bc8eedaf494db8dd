"""The keeper of the ledger: what this sidecar sees is kept here, and sent to the bucket as soon as that takes it.

Nobody waits for it. While the bucket is away entries gather, as many as there is room for; then the oldest go, and are
counted. They are sent in order, a batch a second at most, and a batch that had no clear answer is sent again as it is:
the bucket writes each entry once. When it has lost its memory it is sent anew what it may have forgotten.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections import deque
from collections.abc import Callable, Sequence
from random import Random
from typing import Final, Protocol, TypeVar

from sidecar.core.explain.ledger_entries import Scribe
from sidecar.core.explain.ledger_log import NOTED_S, SHARED_S
from sidecar.core.life.delays import HONOUR_S
from sidecar.core.life.snapshot import Record
from sidecar.core.types import DETAIL_LIMIT, Entry, Fleet, Unknown

T = TypeVar("T")

MOST_WAITING: Final = 1000
MOST_SENT: Final = 200
"""So many are kept after they were sent: to be shown while the bucket is away, and sent anew if it forgets them."""

BATCH: Final = 100
PACE_S: Final = 1.0
BACKOFF_FIRST_S: Final = 1.0
BACKOFF_CAP_S: Final = 30.0
FINISH_S: Final = 2.0
JITTER: Final = 0.5
"""A batch comes up to this part earlier: a fleet that lost its Redis together shall not come back together."""

_REFUSED: Final = frozenset({"permission", "response"})
"""What a bucket answers that will not pass by itself: a user that may not write, a key of another kind."""


class RefusedError(Exception):
    """The bucket answers, and takes no entries; the text has its word for why."""


class Notes(Protocol):
    """What the keeper needs of a budget."""

    async def note(self, entries: Sequence[Entry]) -> int | Unknown:
        """Write entries, each once; how many were new."""


class Ledger:
    """Keeps and sends what ``instance`` sees; ``wall`` gives Unix seconds, ``clock`` monotonic ones.

    ``rng`` spreads what is sent again. ``capture`` is what is kept as evidence of its cull. ``on_failure`` hears of
    every exception: none leaves this room, for who tells us of a step must not fail by it.
    """

    def __init__(
        self,
        budget: Notes,
        instance: str,
        *,
        wall: Callable[[], float],
        rng: Random,
        on_failure: Callable[[Exception], None],
        honour_s: float = HONOUR_S,
        capture: Callable[[], str | None] = lambda: None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.dropped = 0
        self._budget = budget
        self._scribe = Scribe(instance, honour_s)
        self._wall = wall
        self._clock = clock
        self._rng = rng
        self._on_failure = on_failure
        self._capture = capture
        self._waiting: deque[Entry] = deque()
        self._batch: list[Entry] = []
        self._sent: deque[Entry] = deque(maxlen=MOST_SENT)
        self._has_news = asyncio.Event()

    @property
    def waiting(self) -> int:
        """How many entries the bucket has not confirmed yet."""
        return len(self._batch) + len(self._waiting)

    def unsent(self, most: int) -> list[Entry]:
        """The newest that the bucket has not confirmed, at most so many, oldest first."""
        return [*self._batch, *self._waiting][-most:]

    def local(self, since: float) -> list[Entry]:
        """What this sidecar still has of what happened since (Unix seconds), sent or not, oldest first."""
        return [entry for entry in (*self._sent, *self._batch, *self._waiting) if entry.at >= since]

    # -- what is told -----------------------------------------------------------------------------------------

    def notice(self, record: Record) -> None:
        """Keep what a step of the container is worth."""
        self._keep(self._written, record)

    def beaten(self, answer: Fleet | Unknown) -> None:
        """Keep what an answer to a beat is worth."""
        kept = self._keep(self._scribe.beaten, answer)
        if any(entry.what == "data_loss" for entry in kept):
            self._restore()

    def add(self, *entries: Entry) -> None:
        """Keep these, to be sent."""
        for entry in entries:
            self._waiting.append(entry)
            self._has_news.set()
            if self.waiting > MOST_WAITING:
                self._waiting.popleft()
                self.dropped += 1

    def _written(self, record: Record, at: float, now: float) -> list[Entry]:
        return [self._with_capture(entry) for entry in self._scribe.step(record, at, now)]

    def _with_capture(self, entry: Entry) -> Entry:
        found = self._capture() if entry.what == "culled" else None
        return entry._replace(detail=f"{entry.detail}\n{found}"[:DETAIL_LIMIT]) if found else entry

    def _keep(self, written: Callable[[T, float, float], list[Entry]], seen: T) -> list[Entry]:
        try:
            entries = written(seen, self._wall(), self._clock())
        except Exception as error:  # noqa: BLE001 - the ledger is in nobody's way
            self._on_failure(error)
            return []
        self.add(*entries)
        return entries

    def _restore(self) -> None:
        """Send anew what was sent, as far as there is room and the bucket would know an entry that it still has."""
        now, room = self._wall(), MOST_WAITING - self.waiting
        known = [entry for entry in self._sent if now - entry.at < (SHARED_S if entry.once else NOTED_S)]
        self._waiting.extendleft(reversed(known[-room:] if room > 0 else []))
        self._sent.clear()

    # -- sending ----------------------------------------------------------------------------------------------

    async def run(self) -> None:
        """Send until cancelled."""
        failures = 0
        while True:
            await self._has_news.wait()
            failures = 0 if await self._send() else failures + 1
            await asyncio.sleep(self._pause_s(failures))

    async def finish(self) -> None:
        """Try once to send what is left, as the process ends; ``run`` has to have ended before."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(FINISH_S):
                while self.waiting and await self._send():
                    pass

    async def _send(self) -> bool:
        """Send the oldest, or once more what had no clear answer; whether there was one now."""
        if not self._batch:
            self._batch = [self._waiting.popleft() for _ in range(min(BATCH, len(self._waiting)))]
        try:
            answer = await self._budget.note(self._batch)
        except Exception as error:  # noqa: BLE001 - as in _keep
            self._on_failure(error)
            return False
        if isinstance(answer, Unknown):
            if answer.error in _REFUSED:  # of all else the beats tell, which then have no answer either
                self._on_failure(RefusedError(f"the bucket takes no entries: {answer.error}"))
            return False
        self._sent.extend(self._batch)
        self._batch = []
        if not self._waiting:
            self._has_news.clear()
        return True

    def _pause_s(self, failures: int) -> float:
        if not failures:
            return PACE_S
        delay = min(BACKOFF_CAP_S, BACKOFF_FIRST_S * 2 ** min(failures - 1, 10))
        return float(delay * (1 - JITTER * self._rng.random()))
