"""The page's events: each entry of the ledger is read once."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Final

from sidecar.core.claims import Unknown
from sidecar.core.types import Entry
from sidecar.server.unknown_replies import within

if TYPE_CHECKING:
    from sidecar.store.budget import FleetBudget

EVENTS: Final = 200
DETAIL_SHOWN: Final = 4_600
"""Maximum number of characters of an event: its sentence, and as much of the evidence as the page shows."""

SINCE_S: Final = 7 * 24 * 3600.0
PAGE: Final = 100
"""Number of entries that are read in one turn of the loop: with the longest details they take it 2 ms."""

PAGES: Final = 105


class Timeline:
    """Reads the ledger of ``budget`` on and on. ``local(since)``: the entries that this sidecar itself has kept."""

    def __init__(self, budget: FleetBudget, local: Callable[[float], Sequence[Entry]], limit_s: float) -> None:
        self._budget = budget
        self._local = local
        self._limit_s = limit_s
        self._newest: deque[Entry] = deque(maxlen=EVENTS)
        self._after = ""

    @property
    def denials(self) -> list[Entry]:
        """The refusals among the newest entries, the newest last."""
        return [entry for entry in self._newest if entry.what == "denied"]

    async def read(self, now: float) -> bool:
        """Read what is new; False if the store does not answer."""
        for _ in range(PAGES):
            page = await within(self._limit_s, self._budget.entries(now - SINCE_S, self._after, PAGE))
            if isinstance(page, Unknown):
                return False
            self._newest.extend(page)
            if page:
                self._after = page[-1].id
            if len(page) < PAGE:
                break
        return True

    def events(self, now: float, *, is_stored: bool) -> list[dict[str, Any]]:
        """The newest events, oldest first; without an answer of the store those known before, and the own ones."""
        entries = list(self._newest)
        if not is_stored:
            last = entries[-1].at if entries else 0.0
            entries += [entry for entry in self._local(now - SINCE_S) if entry.at > last]
        return [_event(entry) for entry in entries[-EVENTS:]]


def _event(entry: Entry) -> dict[str, Any]:
    fields = entry._replace(detail=entry.detail[:DETAIL_SHOWN])._asdict()
    del fields["once"]
    return fields
