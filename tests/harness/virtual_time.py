"""An event loop in which time passes only when nobody has anything to do, and then at once.

For what waits on timers and tasks alone: threads and sockets are looked at, but time does not wait for them.
"""

from __future__ import annotations

import asyncio
import functools
import selectors
from typing import TYPE_CHECKING, ParamSpec

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine
    from selectors import SelectorKey

P = ParamSpec("P")

START_S = 1000.125
"""Off the whole seconds, so that steps of a quarter never meet the tick of the window."""

_SETTLED = 20


class VirtualLoop(asyncio.SelectorEventLoop):
    """Its ``time`` is the clock to hand to whoever takes one."""

    def __init__(self) -> None:
        self._now_s = START_S
        super().__init__(_Skipping(self))

    def time(self) -> float:
        return self._now_s

    def stall(self, seconds: float) -> None:
        """Let time pass in which nothing runs."""
        self._now_s += seconds


class _Skipping(selectors.SelectSelector):
    def __init__(self, loop: VirtualLoop) -> None:
        super().__init__()
        self._loop = loop

    def select(self, timeout: float | None = None) -> list[tuple[SelectorKey, int]]:
        if timeout is None:
            raise AssertionError("nothing will ever happen again")
        events = super().select(0)
        if not events:
            self._loop.stall(timeout)
        return events


def in_virtual_time(story: Callable[P, Coroutine[object, object, None]]) -> Callable[P, None]:
    """Run the coroutine function in a loop of its own, as a plain function."""

    @functools.wraps(story)
    def run(*args: P.args, **kwargs: P.kwargs) -> None:
        with asyncio.Runner(loop_factory=VirtualLoop) as runner:
            runner.run(story(*args, **kwargs))

    return run


async def settle() -> None:
    """Let everything run that need not wait for time."""
    for _ in range(_SETTLED):
        await asyncio.sleep(0)
