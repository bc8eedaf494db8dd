"""Nodes of a cascade: with fixed answers, or with answers that wait for an event."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from random import Random

from sidecar.cascade.adaptive_limit import AdaptiveLimit
from sidecar.cascade.fallback import Cascade


class Clock:
    """A clock that moves only when ``now_s`` is set."""

    def __init__(self) -> None:
        self.now_s = 0.0

    def __call__(self) -> float:
        return self.now_s


class Servers:
    """Answers by node: a value to return or an exception to raise. ``called`` has the nodes in order."""

    def __init__(self, **answers: object) -> None:
        self.answers = answers
        self.called: list[str] = []

    async def __call__(self, node: str) -> object:
        self.called.append(node)
        answer = self.answers.get(node, f"pong of {node}")
        if isinstance(answer, BaseException):
            raise answer
        return answer


class Waiting:
    """Calls that wait for an event before they answer."""

    def __init__(self) -> None:
        self.reached = 0
        self._arrived = asyncio.Condition()

    def until(self, release: asyncio.Event, answer: object = "pong") -> Callable[[str], Awaitable[object]]:
        async def call(_: str) -> object:
            async with self._arrived:
                self.reached += 1
                self._arrived.notify_all()
            await release.wait()
            if isinstance(answer, Exception):
                raise answer
            return answer

        return call

    async def reach(self, calls: int) -> None:
        async with self._arrived:
            await self._arrived.wait_for(lambda: self.reached >= calls)


def cascade_of(
    *nodes: str, clock: Clock | None = None, limit: Callable[[], AdaptiveLimit] = AdaptiveLimit
) -> Cascade[str]:
    """A cascade over these nodes, or over ``a``, ``b`` and ``c``."""
    return Cascade(nodes or ("a", "b", "c"), Random(4), clock or Clock(), limit=limit)
