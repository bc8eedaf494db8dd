"""Nodes for a cascade: they answer as they are told, wait until they are let go, and can be asked who was called."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from random import Random

from sidecar.cascade.adaptive_limit import AdaptiveLimit
from sidecar.cascade.fallback import Cascade


class Clock:
    """A clock that stands until it is told to move."""

    def __init__(self) -> None:
        self.now_s = 0.0

    def __call__(self) -> float:
        return self.now_s


class Servers:
    """Answers by node, as told: a value to return or an exception to raise. Notes who was called."""

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
    """Calls that are under way until they are let go."""

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
