"""What comes in to the controller: the queue of reports, replies, orders and signals."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

from sidecar.core.app_reports import Report
from sidecar.core.life.events import Trigger

INBOX_LIMIT: Final = 10_000
"""Waiting reports at which the inbox is full: one request may bring 1,000 of them."""

REPORTS_A_TURN: Final = 1_000
"""Reports that the controller takes, in about a millisecond, before it lets health answers go first."""


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
