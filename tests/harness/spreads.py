"""Servers behind a spread, which say what they are told to, and chance that puts them in an order."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Sequence
from itertools import cycle

from harness.nodes import Clock
from harness.waiting import eventually
from sidecar.budget import Budget
from sidecar.budget.spread import Spread
from sidecar.core.words import Answer, Beat, Claim, Denied, Entry, Fleet, Granted, Hold, Lease, Roll, Unknown

NAMES = ("a", "b", "c")
WALL_S = 1_700_000_000.0
CLAIM = Claim("web/one/boot-1", "one", "boot-1", "redis")
GRANTED = Granted(1, 4)
FREEZE = Hold("ann", "deploy", WALL_S + 3600)
AWAY = [Unknown("timeout"), Unknown("connection"), RuntimeError("broken"), OSError("gone")]
"""What is no answer."""


class InOrder:
    """Chance that puts the servers of every walk in this order, as long as all of them serve as well."""

    def __init__(self, order: Sequence[str] = NAMES) -> None:
        self._draws = cycle([(order.index(name) + 1) / 10 for name in NAMES])

    def random(self) -> float:
        return next(self._draws)


class SteeredServer:
    """A server that says what it is told to: a value, an exception, or nothing ever."""

    def __init__(self, says: object = GRANTED) -> None:
        self.says = says
        self.heard: list[object] = []
        self.is_hung = False
        self.closed = 0

    async def _answer(self, *heard: object) -> object:
        self.heard.append(heard[0] if len(heard) == 1 else heard)
        if self.is_hung:
            await asyncio.Event().wait()
        if isinstance(self.says, Exception):
            raise self.says
        return self.says

    async def claim(self, claim: Claim) -> Answer:
        return await self._answer(claim)  # type: ignore[return-value]  # says what the test wants

    async def retire(self, lease: Lease) -> Answer:
        return await self._answer(lease)  # type: ignore[return-value]  # as above

    async def resign(self, instance: str, holder: str) -> bool | Unknown:
        return await self._answer(instance, holder)  # type: ignore[return-value]  # as above

    async def beat(self, beat: Beat) -> Fleet | Unknown:
        return await self._answer(beat)  # type: ignore[return-value]  # as above

    async def hold(self, instance: str, author: str, reason: str, for_s: float) -> Hold | Unknown:
        return await self._answer(instance, author, reason, for_s)  # type: ignore[return-value]  # as above

    async def release(self, instance: str) -> bool | Unknown:
        return await self._answer(instance)  # type: ignore[return-value]  # as above

    async def roll(self) -> Roll | Unknown:
        return await self._answer("roll")  # type: ignore[return-value]  # as above

    async def note(self, entries: Sequence[Entry]) -> int | Unknown:
        return await self._answer(entries)  # type: ignore[return-value]  # as above

    async def entries(self, since: float, after: str, most: int) -> Sequence[Entry] | Unknown:
        return await self._answer(since, after, most)  # type: ignore[return-value]  # as above

    async def first(self, word: str, for_s: float) -> bool | Unknown:
        return await self._answer(word, for_s)  # type: ignore[return-value]  # as above

    async def aclose(self) -> None:
        self.closed += 1


def spread_over(servers: Iterable[Budget], order: Sequence[str] = NAMES, wall: Clock | None = None) -> Spread:
    wall = wall or Clock()
    wall.now_s = wall.now_s or WALL_S
    rng = InOrder(order)
    return Spread(zip(NAMES, servers, strict=False), rng, Clock(), wall)  # type: ignore[arg-type]  # all it needs


def three(*says: object) -> list[SteeredServer]:
    return [SteeredServer(said) for said in says]


def denied(reason: str, retry_after_s: float = 60.0, used: int = 3, capacity: int = 3) -> Denied:
    return Denied(reason, used, capacity, retry_after_s, alive=9, wanting=4)


async def called(servers: Iterable[SteeredServer], times: int) -> None:
    """Wait until each of them was called so often."""
    listed = list(servers)
    await eventually(
        lambda: all(len(server.heard) >= times for server in listed), timeout_s=20, what=f"{times} calls of each"
    )


def asked(servers: Iterable[SteeredServer]) -> list[int]:
    return [len(server.heard) for server in servers]
