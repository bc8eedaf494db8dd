"""A page that costs the loop a bounded part of its time, however many ask for it however often: health shares the loop.

After each writing it rests four times as long as that took. Who asks meanwhile waits for the next writing, and all who
wait share it: nobody is shown what was written before they asked, and who asks each second notices nothing.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Final, Generic, TypeVar

T = TypeVar("T")

REST: Final = 4
"""A fifth of the time is for writing, then."""

LONGEST_REST_S: Final = 1.0
"""For a writing that took long because the process was stopped meanwhile."""


class Rationed(Generic[T]):
    """Hands what ``write`` returns or raises to all who wait. ``clock``: seconds, at the pace of the loop's own."""

    def __init__(self, write: Callable[[], T], clock: Callable[[], float]) -> None:
        self._write = write
        self._clock = clock
        self._due = float("-inf")
        self._next: asyncio.Future[T] | None = None

    async def get(self) -> T:
        """The page as it is now or in a moment; whoever finds it rested does not wait at all."""
        if self._next is None:
            rest_s = self._due - self._clock()
            if rest_s <= 0:
                return self._written()
            loop = asyncio.get_running_loop()
            self._next = loop.create_future()
            loop.call_later(rest_s, self._tell, self._next)
        return await asyncio.shield(self._next)

    def _tell(self, waiting: asyncio.Future[T]) -> None:
        self._next = None
        try:
            page = self._written()
        except Exception as error:  # noqa: BLE001 - handed to the waiters, whatever it is
            waiting.set_exception(error)
        else:
            waiting.set_result(page)

    def _written(self) -> T:
        begun_at = self._clock()
        try:
            return self._write()
        finally:
            ended_at = self._clock()
            self._due = ended_at + min(REST * (ended_at - begun_at), LONGEST_REST_S)
