"""An event loop in virtual time: the clock jumps to the next timer as soon as nothing is ready.

It runs the coroutines of a whole fleet as they are. Nothing in it waits for a socket, a thread or the real clock, so a
run is repeatable. There are two kinds of timers. Those of asyncio (``call_at``, ``sleep``, ``timeout``) belong to the
fleet. Those of ``plan`` belong to the world around it, such as the beginning of an incident.

A timer of the fleet has an owner, the one in whose context it was made. When it is due the owner may keep it: a
container to which nothing happens would do only what it did the last time. It gives the timer back with ``resume``.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from contextvars import Context, ContextVar, copy_context
from heapq import heappop, heappush
from itertools import count
from math import ceil, inf
from random import Random
from typing import Any, Final, Protocol

EPOCH_S: Final = 1_800_000_000
"""Unix time of second 0: a boundary of the article's windows of ten minutes."""

_TICKS_A_SECOND: Final = 1 << 20
"""Instants are multiples of about a microsecond. So sums of them are exact, and what is due together runs together."""


class TimerOwner(Protocol):
    """What has timers, and may keep one that is due."""

    timers: int
    """The timers that are not due yet."""

    def keeps(self, timer: FleetTimer) -> bool:
        """Whether the owner keeps this timer, which is due now, instead of letting it run."""


OWNER: Final[ContextVar[TimerOwner | None]] = ContextVar("OWNER", default=None)


class FleetTimer:
    """A callback that is to run at an instant, or soon; what asyncio needs of a handle."""

    __slots__ = ("_arguments", "_callback", "_context", "_is_cancelled", "_when", "owner")

    def __init__(
        self, when: float, callback: Callable[..., object], arguments: tuple[Any, ...], context: Context | None
    ) -> None:
        self._when = when
        self._callback = callback
        self._arguments = arguments
        self._context = context or copy_context()
        self._is_cancelled = False
        self.owner: TimerOwner | None = None

    def when(self) -> float:
        """The instant at which it was to run first."""
        return self._when

    def cancel(self) -> None:
        """Do not run."""
        if not self._is_cancelled:
            self._is_cancelled = True
            if self.owner is not None:
                self.owner.timers -= 1

    def cancelled(self) -> bool:
        """Whether it will not run."""
        return self._is_cancelled

    def is_kept(self) -> bool:
        """Whether its owner keeps it, now that it is due."""
        if self.owner is None:
            return False
        if self.owner.keeps(self):
            return True
        self.leave()
        return False

    def leave(self) -> None:
        """Have no owner any more."""
        if self.owner is not None:
            self.owner.timers -= 1
            self.owner = None

    def run(self) -> None:
        """Run the callback. Raises what it raises."""
        self._context.run(self._callback, *self._arguments)


_Timer = tuple[float, int, FleetTimer]


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
        self._callbacks: deque[FleetTimer] = deque()
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

    def plan(self, when: float, event: Callable[[], object]) -> None:
        """Plan an event of the world; an overdue one comes next, one at infinity never."""
        if when < inf:
            heappush(self._planned, (_instant(max(when, self.now)), next(self._order), event))

    def resume(self, timer: FleetTimer, when: float) -> None:
        """Take back a timer that its owner has kept; it is due at ``when``, and in the past it runs at once."""
        if when <= self.now:
            timer.leave()
            self._callbacks.append(timer)
            return
        heappush(self._timers, (_instant(when), next(self._order), timer))

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
        first = timers[0][0] if timers else inf
        return min(first, self._planned[0][0]) if self._planned else first

    def _run_due(self) -> None:
        now, timers, planned = self.now, self._timers, self._planned
        while timers and timers[0][0] <= now:
            timer = heappop(timers)[2]
            if not timer.cancelled() and not timer.is_kept():
                self._callbacks.append(timer)
        while planned and planned[0][0] <= now:
            heappop(planned)[2]()

    def _run_callbacks(self) -> None:
        callbacks = self._callbacks
        while callbacks:
            callback = callbacks.popleft()
            if callback.cancelled():
                continue
            try:
                callback.run()
            except Exception as error:  # noqa: BLE001 - the run ends with it
                self.failures.append(error)

    # -- what asyncio asks of a loop ------------------------------------------------------------------------------

    def time(self) -> float:
        """Seconds since the beginning of the run."""
        return self.now

    def call_soon(  # type: ignore[override]  # theirs is generic in the arguments
        self, callback: Callable[..., object], *args: Any, context: Context | None = None
    ) -> FleetTimer:
        """Run the callback after those that are ready now."""
        one = FleetTimer(self.now, callback, args, context)
        self._callbacks.append(one)
        return one

    def call_at(  # type: ignore[override]  # as above
        self, when: float, callback: Callable[..., object], *args: Any, context: Context | None = None
    ) -> FleetTimer:
        """Run the callback at an instant of this clock."""
        timer = FleetTimer(when, callback, args, context)
        if when < inf:
            timer.owner = OWNER.get()
            if timer.owner is not None:
                timer.owner.timers += 1
            heappush(self._timers, (_instant(max(when, self.now)), next(self._order), timer))
        return timer

    def call_later(  # type: ignore[override]  # as above
        self, delay: float, callback: Callable[..., object], *args: Any, context: Context | None = None
    ) -> FleetTimer:
        """Run the callback after some seconds."""
        return self.call_at(self.now + delay, callback, *args, context=context)

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
