"""An event loop in virtual time: the clock jumps to the next timer as soon as nothing is ready.

It runs the coroutines of a whole fleet as they are. Nothing in it waits for a socket, a thread or the real clock, so a
run is repeatable. There are two kinds of timers. Those of asyncio (``call_at``, ``sleep``, ``timeout``) belong to the
fleet. Those of ``plan`` belong to the world around it, such as the beginning of an incident. ``skip`` moves the clock
and the timers of the fleet, and leaves the world's where they are: the fleet goes on where it was, later in the day.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from contextvars import Context
from heapq import heapify, heappop, heappush
from itertools import count
from math import ceil, inf
from random import Random
from typing import Any, Final

EPOCH_S: Final = 1_800_000_000
"""Unix time of second 0: a boundary of the article's windows of ten minutes."""

_TICKS_A_SECOND: Final = 1 << 20
"""Instants are multiples of about a microsecond. So sums of them are exact, and what is due together runs together."""

_Timer = tuple[float, int, asyncio.TimerHandle]


class VirtualLoop(asyncio.BaseEventLoop):
    """Runs callbacks, timers and planned events in the order of virtual time.

    ``now``: seconds since the beginning; ``until``: the end of this run. ``failures``: exceptions that nothing has
    handled; the run ends with the first.
    """

    def __init__(self) -> None:
        super().__init__()
        self.now = 0.0
        self.until = 0.0
        self.failures: list[Exception] = []
        self._callbacks: deque[asyncio.Handle] = deque()
        self._timers: list[_Timer] = []
        self._planned: list[tuple[float, int, Callable[[], object]]] = []
        self._order = count()

    @property
    def wall_s(self) -> float:
        """Unix time."""
        return EPOCH_S + self.now

    @property
    def wall_us(self) -> int:
        """Microseconds of the store's clock."""
        return round(self.wall_s * 1_000_000)

    @property
    def next_planned(self) -> float:
        """When the next event of the world is due; infinity without one."""
        return self._planned[0][0] if self._planned else inf

    def plan(self, when: float, event: Callable[[], object]) -> None:
        """Plan an event of the world; an overdue one comes next, one at infinity never."""
        if when < inf:
            heappush(self._planned, (_instant(max(when, self.now)), next(self._order), event))

    def skip(self, seconds: float) -> None:
        """Let time pass for the clock alone: each timer of the fleet is due as long from now as before."""
        seconds = _instant(seconds)
        self.now += seconds
        self._timers = [(when + seconds, order, one) for when, order, one in self._timers if not one.cancelled()]
        heapify(self._timers)

    def run(self, until: float) -> None:
        """Run everything that is due before ``until``. Raises ExceptionGroup with the failures of the run."""
        self.until = until
        before = asyncio._get_running_loop()  # noqa: SLF001 - as BaseEventLoop does
        asyncio._set_running_loop(self)  # noqa: SLF001 - as BaseEventLoop does
        try:
            self._run_callbacks()
            while not self.failures and (when := self._next_due()) < until:
                self.now = when
                self._run_due()
                self._run_callbacks()
        finally:
            asyncio._set_running_loop(before)  # noqa: SLF001 - as BaseEventLoop does
        if self.failures:
            raise ExceptionGroup("parts of the simulation failed", self.failures)
        self.now = max(self.now, _instant(until))

    def close(self) -> None:
        """Cancel all tasks and end."""
        for task in asyncio.all_tasks(self):
            task.cancel()
        self._timers.clear()
        self._planned.clear()
        self.run(self.now)
        super().close()

    def _next_due(self) -> float:
        timers = self._timers
        while timers and timers[0][2].cancelled():
            heappop(timers)
        return min(timers[0][0] if timers else inf, self.next_planned)

    def _run_due(self) -> None:
        now, timers, planned = self.now, self._timers, self._planned
        while timers and timers[0][0] <= now:
            handle = heappop(timers)[2]
            if not handle.cancelled():
                self._callbacks.append(handle)
        while planned and planned[0][0] <= now:
            heappop(planned)[2]()

    def _run_callbacks(self) -> None:
        callbacks = self._callbacks
        while callbacks:
            handle = callbacks.popleft()
            if not handle.cancelled():
                handle._run()  # noqa: SLF001 - every event loop runs its handles so

    # -- what asyncio asks of a loop ------------------------------------------------------------------------------

    def time(self) -> float:
        """Seconds since the beginning of the run."""
        return self.now

    def call_soon(  # type: ignore[override]  # theirs is generic in the arguments
        self, callback: Callable[..., object], *args: Any, context: Context | None = None
    ) -> asyncio.Handle:
        """Run the callback after those that are ready now."""
        handle = asyncio.Handle(callback, args, self, context)
        self._callbacks.append(handle)
        return handle

    def call_at(  # type: ignore[override]  # as above
        self, when: float, callback: Callable[..., object], *args: Any, context: Context | None = None
    ) -> asyncio.TimerHandle:
        """Run the callback at an instant of this clock."""
        handle = asyncio.TimerHandle(when, callback, args, self, context)
        if when < inf:
            heappush(self._timers, (_instant(max(when, self.now)), next(self._order), handle))
        return handle

    def call_exception_handler(self, context: dict[str, Any]) -> None:
        """Keep an exception that nothing has handled."""
        error = context.get("exception")
        self.failures.append(error if isinstance(error, Exception) else RuntimeError(str(context)))

    def __del__(self, _warn: object = None) -> None:
        """Nothing: the loop has no files."""


def seeded(seed: str) -> Random:
    """A generator of random numbers, the same ones for the same seed."""
    return Random(seed)  # noqa: S311 - chance in a simulation guards nothing


def _instant(seconds: float) -> float:
    return ceil(seconds * _TICKS_A_SECOND) / _TICKS_A_SECOND
