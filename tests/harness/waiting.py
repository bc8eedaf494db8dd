"""Polling until a predicate is true, with a deadline and a message."""

from __future__ import annotations

import asyncio
import inspect
import time
from typing import TYPE_CHECKING, Any, TypeVar, overload

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

T = TypeVar("T")

SHORTEST_S = 0.01
LONGEST_S = 0.05
"""The pauses of a wait that lasts: what is waited for needs the processor too."""


class _Deadline:
    """The end of a wait, and the last value."""

    def __init__(self, timeout_s: float, what: str) -> None:
        self._began_at = time.monotonic()
        self._timeout_s = timeout_s
        self._what = what

    def pause_s(self, value: object) -> float:
        """The time until the next look, after a value that was not true; AssertionError after the deadline."""
        waited_s = time.monotonic() - self._began_at
        if waited_s >= self._timeout_s:
            raise AssertionError(f"not within {self._timeout_s:g} s: {self._what} (last seen: {value!r})")
        return min(SHORTEST_S + waited_s / 20, LONGEST_S)


def wait_for(predicate: Callable[[], T], *, timeout_s: float, what: str) -> T:
    """Poll until the predicate is true, and return its value; AssertionError after ``timeout_s`` seconds.

    An OSError (a closed listener, a late reply) means: not yet.
    """
    deadline = _Deadline(timeout_s, what)
    while True:
        value: object
        try:
            if value := predicate():
                return value
        except OSError as error:
            value = error
        time.sleep(deadline.pause_s(value))


@overload
async def eventually(predicate: Callable[[], Awaitable[T]], *, timeout_s: float, what: str) -> T: ...
@overload
async def eventually(predicate: Callable[[], T], *, timeout_s: float, what: str) -> T: ...
async def eventually(predicate: Callable[[], Any], *, timeout_s: float, what: str) -> Any:
    """``wait_for`` in a running loop; the predicate may be a coroutine function."""
    deadline = _Deadline(timeout_s, what)
    while True:
        try:
            value = predicate()
            if inspect.isawaitable(value):
                value = await value
            if value:
                return value
        except OSError as error:
            value = error
        await asyncio.sleep(deadline.pause_s(value))
