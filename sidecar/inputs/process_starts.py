"""Which life of the app is the present one, by the starts of the processes that answer."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

SETTLED_PAGES: Final = 30


@dataclass(slots=True)
class Incarnation:
    """It moves forward only, and not when workers behind one port take turns.

    One worker that is replaced looks like a new app. So once an older one has answered after a newer one, a new one
    is believed only when no older one has answered for ``SETTLED_PAGES`` pages.
    """

    start: float | None = None
    _shared: bool = False
    _newer: int = 0

    @property
    def app_start(self) -> str | None:
        """The start (Unix time in seconds) as text; None before one is known."""
        return None if self.start is None else repr(self.start)

    def see(self, start: float, *, born: bool) -> None:
        """A process has answered that has this start; ``born``: it was not there at the last scrape."""
        if self.start is None:
            self.start = start
        elif start <= self.start:
            self._shared = self._shared or self._newer > 0
            self._newer = 0
        else:
            self._newer += 1
            if (born and not self._shared) or self._newer >= SETTLED_PAGES:
                self.begin(start)

    def begin(self, start: float) -> None:
        """This is the present life."""
        self.start, self._shared, self._newer = start, False, 0
