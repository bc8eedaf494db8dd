"""Virtual time: planned events in order, with the timers of asyncio among them."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Generator
from contextvars import Context
from heapq import heappop, heappush
from itertools import count
from types import coroutine
from typing import Any, Final

EPOCH_S: Final = 1_800_000_000
"""Unix time of second 0: a boundary of the article's windows of ten minutes."""


class Timeline:
    """Events by the second at which they are due; of events due together the first planned comes first."""

    def __init__(self) -> None:
        self.now = 0.0
        self.loop = _Loop(self)
        self.failures: list[Exception] = []
        """Exceptions; the run ends with the first."""
        self._planned: list[tuple[float, int, Callable[[], object]]] = []
        self._order = count()
        self._until = 0.0

    @property
    def wall_s(self) -> float:
        """Unix time."""
        return EPOCH_S + self.now

    @property
    def wall_us(self) -> int:
        """Microseconds of the store's clock."""
        return round(self.wall_s * 1_000_000)

    def at(self, when: float, event: Callable[[], object]) -> None:
        """Plan an event; an overdue event comes next."""
        heappush(self._planned, (max(when, self.now), next(self._order), event))

    def run(self, until: float) -> None:
        """Run every event that is due before ``until``; raises the exceptions of the run."""
        self._until = until
        self.loop.run_forever()
        if self.failures:
            raise ExceptionGroup("parts of the simulation failed", self.failures)

    def begin(self, work: Coroutine[Any, Any, None]) -> None:
        """Run ``work`` now until it waits, mostly to its end; a task runs the rest."""
        try:
            waits_for = work.send(None)
        except StopIteration:
            return
        self.loop.create_task(_rest(work, waits_for))

    def step(self) -> None:
        """Run the next event, or stop the loop; only while nothing else is ready."""
        if self.failures:
            self.loop.stop()
        elif self._planned and self._planned[0][0] < self._until:
            self.now, _, event = heappop(self._planned)
            event()
        else:
            self.now = self._until
            self.loop.stop()


@coroutine
def _rest(work: Coroutine[Any, Any, None], waits_for: object) -> Generator[object, None, None]:
    try:
        while True:
            try:
                yield waits_for
            except BaseException as error:  # noqa: BLE001 - passed on to the work
                waits_for = work.throw(error)
            else:
                waits_for = work.send(None)
    except StopIteration:
        return


class _Loop(asyncio.BaseEventLoop):
    """An event loop without sockets and threads; its timers are events of the timeline."""

    def __init__(self, timeline: Timeline) -> None:
        super().__init__()
        self._timeline = timeline
        self._selector = _Selector(timeline)

    def time(self) -> float:
        return self._timeline.now

    def call_at(  # type: ignore[override]  # theirs is generic in the arguments
        self, when: float, callback: Callable[..., object], *args: Any, context: Context | None = None
    ) -> asyncio.TimerHandle:
        handle = asyncio.TimerHandle(when, callback, args, self, context)
        self._timeline.at(when, lambda: None if handle.cancelled() else handle._run())
        return handle

    def call_exception_handler(self, context: dict[str, Any]) -> None:
        error = context.get("exception")
        self._timeline.failures.append(error if isinstance(error, Exception) else RuntimeError(str(context)))

    def _process_events(self, _events: object) -> None:
        pass

    def __del__(self, _warn: object = None) -> None:
        """Nothing: the loop has no files."""


class _Selector:
    """Runs the next event of the timeline where a loop waits for sockets."""

    def __init__(self, timeline: Timeline) -> None:
        self._timeline = timeline

    def select(self, timeout: float | None = None) -> tuple[()]:
        if timeout is None or timeout > 0:
            self._timeline.step()
        return ()
