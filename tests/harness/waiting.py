"""Polling until a predicate is true, with a deadline and a message."""

from __future__ import annotations

import asyncio
import inspect
import time
from typing import TYPE_CHECKING, Any, TypeVar, overload

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

T = TypeVar("T")

POLL_S = 0.01
"""The first pause between two looks."""

LONGER_S = 0.05
"""The pauses of a wait that lasts: what is waited for needs the processor too."""

LONGEST_S = 0.25


class _Deadline:
    """The end of a wait, and the last value."""

    def __init__(self, timeout_s: float, what: str) -> None:
        self._began_at = self._looked_at = time.monotonic()
        self._ends_at = self._began_at + timeout_s
        self._timeout_s = timeout_s
        self._what = what
        self._seen: object = None

    def note(self, seen: object) -> None:
        """Keep the value that was not true; AssertionError after the deadline."""
        self._seen = seen
        if time.monotonic() >= self._ends_at:
            raise AssertionError(f"not within {self._timeout_s:g} s: {self._what} (last seen: {self._seen!r})")

    def looks(self) -> None:
        """Note the beginning of a look."""
        self._looked_at = time.monotonic()

    def pause_s(self) -> float:
        """The time until the next look: longer in a long wait, and at least as long as the last look took."""
        now = time.monotonic()
        waited_s, took_s = now - self._began_at, now - self._looked_at
        return max(min(POLL_S + waited_s / 20, LONGER_S), min(took_s, LONGEST_S))


def wait_for(predicate: Callable[[], T], *, timeout_s: float, what: str) -> T:
    """Poll until the predicate is true, and return its value; AssertionError after ``timeout_s`` seconds.

    An OSError (a closed listener, a late reply) means: not yet.
    """
    deadline = _Deadline(timeout_s, what)
    while True:
        deadline.looks()
        try:
            seen = predicate()
        except OSError as error:
            deadline.note(error)
        else:
            if seen:
                return seen
            deadline.note(seen)
        time.sleep(deadline.pause_s())


@overload
async def eventually(predicate: Callable[[], Awaitable[T]], *, timeout_s: float, what: str) -> T: ...
@overload
async def eventually(predicate: Callable[[], T], *, timeout_s: float, what: str) -> T: ...
async def eventually(predicate: Callable[[], Any], *, timeout_s: float, what: str) -> Any:
    """``wait_for`` in a running loop; the predicate may be a coroutine function."""
    deadline = _Deadline(timeout_s, what)
    while True:
        deadline.looks()
        try:
            seen = predicate()
            if inspect.isawaitable(seen):
                seen = await seen
        except OSError as error:
            seen = error
        else:
            if seen:
                return seen
        deadline.note(seen)
        await asyncio.sleep(deadline.pause_s())
