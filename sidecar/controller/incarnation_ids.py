"""What the app and its metrics page call the life that they report of, and those that have ended.

Both name one life, each in its own way: a name is compared with those of its own kind only.
"""

from __future__ import annotations

from collections import deque
from enum import Enum, auto
from typing import Final

from sidecar.core.types import Ping, Report, Sample

ENDED_NAMES: Final = 16
PAGE: Final = "page:"
"""Before what a metrics page calls an incarnation, so that nobody takes it for what the app itself calls it."""


class Place(Enum):
    """Where a name belongs."""

    ALIVE = auto()
    ENDED = auto()
    NEW = auto()


class Names:
    """The names of the life that is watched, by who gave them, and the last that have ended."""

    def __init__(self, name: str | None = None) -> None:
        self.alive: dict[str, str] = {}
        self.ended: deque[str] = deque(maxlen=ENDED_NAMES)
        self.begin(name)

    def place(self, name: str) -> Place:
        """Whose name it is. The first of its kind names the life that others have named already."""
        source = _source(name)
        if self.alive.get(source) == name:
            return Place.ALIVE
        if name in self.ended:
            return Place.ENDED
        if self.alive and source not in self.alive:
            self.alive[source] = name
            return Place.ALIVE
        return Place.NEW

    def begin(self, name: str | None) -> None:
        """Another life, by its name if it has one."""
        self.ended.extend(self.alive.values())
        self.alive = {_source(name): name} if name else {}


def name_of(report: Report) -> str | None:
    """What a report calls the incarnation that it is of, if anything."""
    if isinstance(report, Sample):
        return f"{PAGE}{report.app_start}" if report.app_start else None
    return report.app_start if isinstance(report, Ping) else None


def _source(name: str) -> str:
    return PAGE if name.startswith(PAGE) else ""
