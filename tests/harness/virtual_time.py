"""An event loop whose time jumps to the next timer as soon as nothing is ready.

For code that waits for timers and tasks only: time does not wait for threads and sockets.
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
"""Not a whole second, so that steps of a quarter never coincide with the tick of the window."""

_SETTLED = 20


class VirtualLoop(asyncio.SelectorEventLoop):
    """``time`` is the clock to pass to the code under test."""

    def __init__(self, start_s: float = START_S) -> None:
        self._now_s = start_s
        super().__init__(_Skipping(self))

    def time(self) -> float:
        return self._now_s

    def stall(self, seconds: float) -> None:
        """Move the clock without running anything."""
        self._now_s += seconds


class _Skipping(selectors.SelectSelector):
    def __init__(self, loop: VirtualLoop) -> None:
        super().__init__()
        self._loop = loop

    def select(self, timeout: float | None = None) -> list[tuple[SelectorKey, int]]:
        if timeout is None:
            raise AssertionError("no task is ready and no timer is set")
        # Alone in the map is the pipe that wakes a waiting loop. This one never waits.
        events = super().select(0) if len(self.get_map()) > 1 else []
        if not events:
            self._loop.stall(timeout)
        return events


def in_virtual_time(scenario: Callable[P, Coroutine[object, object, None]]) -> Callable[P, None]:
    """Run the coroutine function in a new VirtualLoop, as a plain function."""

    @functools.wraps(scenario)
    def run(*args: P.args, **kwargs: P.kwargs) -> None:
        with asyncio.Runner(loop_factory=VirtualLoop) as runner:
            runner.run(scenario(*args, **kwargs))

    return run


async def settle() -> None:
    """Run everything that does not wait for time."""
    for _ in range(_SETTLED):
        await asyncio.sleep(0)
