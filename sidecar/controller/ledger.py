"""The ledger of this sidecar: it keeps entries about what happens, and sends them to the store.

Nothing waits for it: the beat and the claim that follow a step go first. While the store is away entries wait, up to a
bound; then the oldest are dropped, and counted. Entries are sent in order, at most a batch a second, and again after an
answer that was not clear: the store writes each entry once. After a data loss the ledger sends again what the store may
have forgotten.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections import Counter, deque
from collections.abc import Awaitable, Callable, Sequence
from itertools import islice
from math import inf
from typing import Final

from sidecar.controller.ledger_entries import EntryWriter
from sidecar.controller.runtime import Runtime
from sidecar.core.claims import Unknown
from sidecar.core.fleet.common_trait import NO_TRAITS, Traits
from sidecar.core.fleet.fleet_events import BeatRecord, DataLost
from sidecar.core.life.grant_request import unknown_delay
from sidecar.core.life.snapshot import Record
from sidecar.core.types import Entry
from sidecar.store.protocol import NOTED_S, SHARED_S

MOST_WAITING: Final = 1000
MOST_SENT: Final = 200
"""Sent entries that are kept, to show them while the store is away and to send them again after a data loss."""

BATCH: Final = 100
GATHER_S: Final = 0.1
"""Delay of the first batch. In that time the beat and the claim of a suspect are over, and their entries join it."""

PACE_S: Final = 1.0
FINISH_S: Final = 2.0
SETTLED_S: Final = 2 * PACE_S
JITTER: Final = 0.5
"""A batch comes earlier by up to this part of its delay, or the whole fleet would send to a returned Redis at once."""

_REFUSED: Final = frozenset({"permission", "response"})
"""Errors that last until an operator acts: a user that may not write, a key of another kind."""


class LedgerRefusedError(Exception):
    """The store answers but takes no entries; the message has the error."""


class Ledger:
    """Keeps and sends entries about what the sidecar of ``instance`` sees.

    ``note`` writes entries to the store, each once, and returns how many were new.
    """

    def __init__(
        self,
        note: Callable[[Sequence[Entry]], Awaitable[int | Unknown]],
        instance: str,
        runtime: Runtime,
        traits: Traits = NO_TRAITS,
    ) -> None:
        self.dropped = 0
        self.counts = Counter[tuple[str, str]]()
        """All entries since the start by word and reason, without the orders of people, who may write any reason."""
        self._note = note
        self._entries = EntryWriter(instance, traits)
        self._clock, self._wall, self._rng, self._on_failure = runtime
        self._waiting: deque[Entry] = deque()
        self._sent: deque[Entry] = deque(maxlen=MOST_SENT)
        self._has_news = asyncio.Event()
        self._failures = 0
        self._tried = asyncio.Event()

    @property
    def waiting(self) -> int:
        """Number of entries that the store has not confirmed yet."""
        return len(self._waiting)

    def local(self, since: float) -> list[Entry]:
        """The entries since ``since`` (Unix seconds) that are still kept, sent or not, oldest first.

        Each is here once, as in the store: this sidecar also sees in a beat what a person ordered here.
        """
        kept: list[Entry] = []
        written: dict[str, float] = {}
        for entry in (*self._sent, *self._waiting):
            if entry.once and entry.at - written.get(entry.once, -inf) < SHARED_S:
                continue
            written[entry.once] = entry.at
            kept.append(entry)
        return [entry for entry in kept if entry.at >= since]

    # -- writing ----------------------------------------------------------------------------------------------

    def notice(self, record: Record) -> None:
        """Write the entries about a step of the container."""
        at, now = self._wall(), self._clock()
        self._keep(lambda: self._entries.of_step(record, at, now))

    def beaten(self, record: BeatRecord) -> None:
        """Write the entries about an answer to a beat."""
        self._keep(lambda: self._entries.of_beat(record, self._wall()))
        if not record.is_first and any(isinstance(event, DataLost) for event in record.events):
            self._restore()

    def add(self, *entries: Entry) -> None:
        """Keep entries, to be sent."""
        for entry in entries:
            if not entry.author:
                self.counts[entry.what, entry.reason] += 1
            self._waiting.append(entry)
            self._has_news.set()
            if self.waiting > MOST_WAITING:
                self._waiting.popleft()
                self.dropped += 1

    def _keep(self, write: Callable[[], list[Entry]]) -> None:
        try:
            self.add(*write())
        except Exception as error:  # noqa: BLE001 - no failure of the ledger may stop a step
            self._on_failure(error)

    def _restore(self) -> None:
        """Send kept entries again, up to the bound: those that the store recognises if it still has them."""
        now, free = self._wall(), MOST_WAITING - self.waiting
        recent = [entry for entry in self._sent if now - entry.at < (SHARED_S if entry.once else NOTED_S)]
        self._waiting.extendleft(reversed(recent[-free:] if free > 0 else []))
        self._sent.clear()

    # -- sending ----------------------------------------------------------------------------------------------

    async def run(self) -> None:
        """Send until cancelled."""
        while True:
            if not self._has_news.is_set():
                await self._has_news.wait()
                await asyncio.sleep(GATHER_S)
            self._failures = 0 if await self._send() else self._failures + 1
            self._tried.set()
            self._tried.clear()  # those who wait go on, and who comes later waits for the next attempt
            await asyncio.sleep(self._pause_s(self._failures))

    async def settled(self) -> None:
        """Wait until the entries of now are in the store, at most ``SETTLED_S``, and not for a store that is away.

        So an order is among the events that the same person asks for next.
        """
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(SETTLED_S):
                while self.waiting and not self._failures:
                    await self._tried.wait()

    async def finish(self) -> None:
        """Try once to send the rest as the process ends, after ``run`` has ended."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(FINISH_S):
                while self.waiting and await self._send():
                    pass

    async def _send(self) -> bool:
        """Send the oldest entries; return whether the answer was clear."""
        batch = list(islice(self._waiting, BATCH))
        try:
            answer = await self._note(batch)
        except Exception as error:  # noqa: BLE001 - as in _keep
            self._on_failure(error)
            return False
        if isinstance(answer, Unknown):
            if answer.error in _REFUSED:  # beats report all other errors, because the store does not answer them either
                self._on_failure(LedgerRefusedError(f"the store takes no entries: {answer.error}"))
            return False
        self._sent.extend(batch)
        sent = set(map(id, batch))  # meanwhile the oldest may have been dropped
        self._waiting = deque(entry for entry in self._waiting if id(entry) not in sent)
        if not self._waiting:
            self._has_news.clear()
        return True

    def _pause_s(self, failures: int) -> float:
        return unknown_delay(failures - 1) * (1 - JITTER * self._rng.random()) if failures else PACE_S
