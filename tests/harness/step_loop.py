"""An event loop without time and files: it runs what is ready, and stops when nothing is ready.

Coroutines wait for futures that a test completes, so the test decides in which order they continue.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Coroutine
from contextvars import Context
from typing import Any, TypeVar, cast

T = TypeVar("T")


class StepLoop:
    """The part of an event loop that tasks, futures and ``gather`` need."""

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
        """Run until nothing is ready."""
        before = asyncio._get_running_loop()
        asyncio._set_running_loop(self._loop)
        try:
            while self._ready:
                self._ready.popleft()._run()
        finally:
            asyncio._set_running_loop(before)
        if self._failed:
            raise self._failed[0]

    def run(self, scenario: Coroutine[Any, Any, T]) -> T:
        """Run a coroutine that never waits for time or files; its result or exception."""
        task = self.create_task(scenario)
        self.settle()
        return task.result()
