"""Which incarnation of the app a report is about.

The app, its metrics page and its port name the same incarnation, each with an id of its own. An id is compared with ids
of its own source only.
"""

from __future__ import annotations

from collections import deque
from enum import Enum, auto
from typing import Final

from sidecar.core.app_reports import AppListening, ErrorReport, Report, Sample

ENDED_IDS: Final = 16
PAGE: Final = "page:"
PORT: Final = "port:"
"""Prefixes of ids that come from a metrics page or a port, so that they are never taken for ids of the app."""


class IdStatus(Enum):
    """Which incarnation an id belongs to."""

    CURRENT = auto()
    JOINS = auto()  # the current one, too: it is the first id of its source
    ENDED = auto()
    NEW = auto()


class IncarnationIds:
    """The ids of the current incarnation by source, and the last ``ENDED_IDS`` that have ended."""

    def __init__(self, first: str | None = None, *, socket: str = "") -> None:
        self.current = {_source(first): first} if first else {}
        if self.current and socket:
            self.current.setdefault(PORT, f"{PORT}{socket}")
        self.ended: deque[str] = deque(maxlen=ENDED_IDS)

    def status(self, name: str) -> IdStatus:
        """Which incarnation the id belongs to."""
        source = _source(name)
        if self.current.get(source) == name:
            return IdStatus.CURRENT
        if name in self.ended:
            return IdStatus.ENDED
        return IdStatus.JOINS if self.current and source not in self.current else IdStatus.NEW

    def join(self, name: str) -> None:
        """Take another id of the current incarnation."""
        self.current[_source(name)] = name

    @property
    def socket(self) -> str:
        """The socket of the current incarnation; empty if it is not known."""
        return self.current.get(PORT, "").removeprefix(PORT)

    @property
    def is_recognisable(self) -> bool:
        """Whether another sidecar can tell by the kernel's number of the socket whether the app was restarted."""
        return self.socket.isdecimal()

    def begin(self, name: str) -> None:
        """Begin another incarnation, with its first id."""
        self.ended.extend(self.current.values())
        self.current = {_source(name): name}


def incarnation_id(report: Report) -> str | None:
    """The id of the incarnation that a report is about, if it has one."""
    if isinstance(report, Sample):
        return f"{PAGE}{report.app_start}" if report.app_start else None
    if isinstance(report, AppListening):
        return f"{PORT}{report.socket}"
    return report.app_start if isinstance(report, ErrorReport) else None


def _source(name: str) -> str:
    return next((prefix for prefix in (PAGE, PORT) if name.startswith(prefix)), "")
