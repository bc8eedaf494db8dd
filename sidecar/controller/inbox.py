"""The inbox of the controller: reports, replies to claims and beats, orders and signals wait here until it takes them."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Sequence
from typing import Final

from sidecar.core.life.events import Answered, BeatAnswered, BeatUnanswered, CullOrdered, Leased, Revived, Stopped
from sidecar.core.types import Report

INBOX_LIMIT: Final = 10_000

Message = Sequence[Report] | Answered | Leased | BeatAnswered | BeatUnanswered | CullOrdered | Revived | Stopped


class Inbox:
    """A queue that is emptied in one go; what the app may send without bound is bounded."""

    def __init__(self) -> None:
        self._messages: deque[Message] = deque()
        self._waiter: asyncio.Future[None] | None = None

    @property
    def is_empty(self) -> bool:
        """Whether the controller has taken all that came."""
        return not self._messages

    def offer(self, reports: Sequence[Report]) -> bool:
        """Hand in what the app reports; False when too much is waiting, and then nothing was taken."""
        if len(self._messages) >= INBOX_LIMIT:
            return False
        self.put(reports)
        return True

    def put(self, message: Message) -> None:
        """Hand in a message."""
        self._messages.append(message)
        if self._waiter is not None:
            self._wake()

    async def take(self, timeout_s: float) -> deque[Message]:
        """All waiting messages, in order; none after ``timeout_s`` seconds without any."""
        if not self._messages:
            loop = asyncio.get_running_loop()
            self._waiter = loop.create_future()
            timer = loop.call_later(timeout_s, self._wake)
            await self._waiter
            self._waiter = None
            timer.cancel()
        taken, self._messages = self._messages, deque()
        return taken

    def _wake(self) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)
