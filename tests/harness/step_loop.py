"""An event loop without time, files or chance: it runs what is ready, and stops when nothing is.

What a coroutine waits for is a future that a test completes by hand. So a test decides in which order several
coroutines go on, and every run of it is the same.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Coroutine
from contextvars import Context
from typing import Any, TypeVar, cast

T = TypeVar("T")


class StepLoop:
    """As much of an event loop as tasks, futures and ``gather`` need."""

    def __init__(self) -> None:
        self._ready: deque[asyncio.Handle] = deque()
        self._failed: list[BaseException] = []
        self._loop = cast("asyncio.AbstractEventLoop", self)

    def call_soon(self, callback: Callable[..., object], *args: Any, context: Context | None = None) -> asyncio.Handle:
        handle = asyncio.Handle(callback, args, self._loop, context)
        self._ready.append(handle)
        return handle

    def create_future(self) -> asyncio.Future[Any]:
        return asyncio.Future(loop=self._loop)

    def create_task(self, coro: Coroutine[Any, Any, T], **named: Any) -> asyncio.Task[T]:
        return asyncio.Task(coro, loop=self._loop, **named)

    def get_debug(self) -> bool:
        return False

    def call_exception_handler(self, context: dict[str, Any]) -> None:
        if "handle" in context:
            self._failed.append(context["exception"])

    def settle(self) -> None:
        """Run all that is ready, and what becomes ready by that."""
        before = asyncio._get_running_loop()
        asyncio._set_running_loop(self._loop)
        try:
            while self._ready:
                self._ready.popleft()._run()
        finally:
            asyncio._set_running_loop(before)
        if self._failed:
            raise self._failed[0]

    def run(self, story: Coroutine[Any, Any, T]) -> T:
        """Run a coroutine that waits for nothing but others like it; what it returns, or raises."""
        task = self.create_task(story)
        self.settle()
        return task.result()
