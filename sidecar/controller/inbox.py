"""What comes in to the controller: the queue of reports, replies, orders and signals; and which incarnation is meant.

The app, its metrics page and its port name the same incarnation, each with an id of its own. An id is compared with ids
of its own source only.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum, auto
from typing import Final, NamedTuple

from sidecar.core.app_reports import AppListening, ErrorReport, Report, Sample
from sidecar.core.life.events import Trigger

INBOX_LIMIT: Final = 10_000
"""Waiting reports at which the inbox is full: one request may bring 1,000 of them."""

REPORTS_A_TURN: Final = 1_000
"""Reports that the controller takes, in about a millisecond, before it lets health answers go first."""

ENDED_IDS: Final = 16
PAGE: Final = "page:"
PORT: Final = "port:"
"""Prefixes of ids that come from a metrics page or a port, so that they are never taken for ids of the app."""


@dataclass(frozen=True, slots=True)
class LatchWritten:
    """The latch of a grant is on disk, or readers have waited long enough for the disk."""


class Reports(NamedTuple):
    """Reports of the app, in their order."""

    reports: tuple[Report, ...]


Message = Reports | Trigger | LatchWritten


class Inbox:
    """The queue of the controller. Reports are bounded, because an app may send any number of them."""

    def __init__(self) -> None:
        self._messages: deque[Message] = deque()
        self._waiter: asyncio.Future[None] | None = None
        self._is_cut = False
        self._waiting = 0

    def offer(self, reports: Sequence[Report]) -> bool:
        """Put all reports into the inbox, or none and return False if it is full."""
        if self._waiting >= INBOX_LIMIT:
            return False
        self.put(Reports(tuple(reports)))
        return True

    def put(self, message: Message) -> None:
        """Put a message into the inbox."""
        self._messages.append(message)
        self._waiting += _size(message)
        if self._waiter is not None:
            self._wake()

    async def take(self, timeout_s: float) -> deque[Message]:
        """Waiting messages in order, up to ``REPORTS_A_TURN`` reports; none after ``timeout_s`` seconds without any."""
        if self._is_cut:
            await asyncio.sleep(0)
        elif not self._messages:
            loop = asyncio.get_running_loop()
            self._waiter = loop.create_future()
            timer = loop.call_later(timeout_s, self._wake)
            await self._waiter
            self._waiter = None
            timer.cancel()
        taken: deque[Message] = deque()
        size = 0
        while self._messages and size < REPORTS_A_TURN:
            message = self._messages.popleft()
            taken.append(message)
            size += _size(message)
        self._waiting -= size
        self._is_cut = bool(self._messages)
        return taken

    def _wake(self) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)


def _size(message: Message) -> int:
    return len(message.reports) if isinstance(message, Reports) else 1


class IdStatus(Enum):
    """Which incarnation an id belongs to."""

    CURRENT = auto()
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
        """Which incarnation the id belongs to; the first id of a second source is one of the current incarnation."""
        source = _source(name)
        if self.current.get(source) == name:
            return IdStatus.CURRENT
        if name in self.ended:
            return IdStatus.ENDED
        if self.current and source not in self.current:
            self.current[source] = name
            return IdStatus.CURRENT
        return IdStatus.NEW

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
