"""The ledger of a store in memory. Time is an argument, in microseconds, and does not go backwards here."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Sequence
from typing import TypeVar

from sidecar.core.types import US_PER_S, Entry
from sidecar.store.protocol import NOTED_S, SHARED_S

W = TypeVar("W", str, str | Entry)


class MemoryLedger:
    """The last ``most`` entries, in order."""

    def __init__(self, most: int) -> None:
        self._entries: deque[tuple[tuple[int, int], Entry]] = deque(maxlen=most)
        self._most = most
        self._last = (0, 0)
        self._noted: dict[str | Entry, int] = {}
        self._first: dict[str, int] = {}

    def note(self, entries: Iterable[Entry], now_us: int) -> int:
        """Write entries, each once; return how many were new."""
        self._noted = _still(self._noted, now_us)
        return sum(self._note(entry, now_us) for entry in entries)

    def entries(self, since: float, after: str, most: int) -> Sequence[Entry]:
        """At most ``most`` entries after the id ``after``, or since ``since`` (Unix seconds) if that is no id."""
        start = _place(after) or (round(since * 1000), -1)
        return [entry for place, entry in self._entries if place > start][:most]

    def first(self, word: str, for_s: float, now_us: int) -> bool:
        """Whether this is the first call with ``word`` within the ``for_s`` of the earlier call."""
        self._first = _still(self._first, now_us)
        if word in self._first:
            return False
        self._first[word] = now_us + round(for_s * US_PER_S)
        return True

    def _note(self, entry: Entry, now_us: int) -> bool:
        word: str | Entry = entry.once or entry
        if word in self._noted:
            return False
        self._noted[word] = now_us + (SHARED_S if entry.once else NOTED_S) * US_PER_S
        if len(self._noted) > self._most:
            del self._noted[min(self._noted, key=self._noted.__getitem__)]
        self.append(entry, now_us)
        return True

    def append(self, entry: Entry, now_us: int) -> None:
        """Write an entry, even if it was written before."""
        ms = max(now_us // 1000, self._last[0])
        self._last = (ms, self._last[1] + 1 if ms == self._last[0] else 0)
        name = f"{ms}-{self._last[1]}"
        self._entries.append((self._last, entry._replace(at=entry.at or ms / 1000, once="", id=name)))


def _still(until: dict[W, int], now_us: int) -> dict[W, int]:
    return {word: over_us for word, over_us in until.items() if over_us > now_us}


def _place(after: str) -> tuple[int, int] | None:
    ms, dash, number = after.partition("-")
    return (int(ms), int(number)) if dash and ms.isdecimal() and number.isdecimal() else None
