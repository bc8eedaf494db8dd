"""Bounds the time that an expensive page may take of the event loop, which health answers share.

After each write there is a pause of four times its duration. Requests during the pause wait for the next write and all
get its result. So every page is newer than its request, and a client that asks once a second does not wait.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Final, Generic, TypeVar

T = TypeVar("T")

PAUSE_FACTOR: Final = 4
"""With this factor the page takes at most a fifth of the time."""

MAX_PAUSE_S: Final = 1.0
"""Bound for a write that took long because the process was suspended."""


class ThrottledPage(Generic[T]):
    """Returns what ``write`` returns or raises. ``clock``: seconds, at the pace of the loop's own clock."""

    def __init__(self, write: Callable[[], T], clock: Callable[[], float]) -> None:
        self._write = write
        self._clock = clock
        self._paused_until = float("-inf")
        self._next: asyncio.Future[T] | None = None

    async def get(self) -> T:
        """The page as it is now, or at the end of the pause."""
        if self._next is None:
            pause_s = self._paused_until - self._clock()
            if pause_s <= 0:
                return self._write_now()
            loop = asyncio.get_running_loop()
            self._next = loop.create_future()
            loop.call_later(pause_s, self._end_pause, self._next)
        return await asyncio.shield(self._next)

    def _end_pause(self, waiting: asyncio.Future[T]) -> None:
        self._next = None
        try:
            page = self._write_now()
        except Exception as error:  # noqa: BLE001 - raised again where the requests wait
            waiting.set_exception(error)
        else:
            waiting.set_result(page)

    def _write_now(self) -> T:
        begun_at = self._clock()
        try:
            return self._write()
        finally:
            ended_at = self._clock()
            self._paused_until = ended_at + min(PAUSE_FACTOR * (ended_at - begun_at), MAX_PAUSE_S)
