"""Servers in memory that can be cut off, and the sidecars of a fleet that share them: one time for all."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable, Iterable, Sequence
from dataclasses import replace
from random import Random
from typing import Any, Final, Literal, TypeVar

from harness.claims import WINDOW_ONLY, S
from sidecar.core.fleet.raw import Heard, Raw
from sidecar.core.fleet.terms import Terms
from sidecar.core.types import Answer, Beat, Denied, Entry, Unknown
from sidecar.store import budget as fleet
from sidecar.store.budget import FleetBudget
from sidecar.store.memory import MemoryStore
from sidecar.store.protocol import Changes, Listing, StoreError

T = TypeVar("T")

START_US: Final = 1_700_000_400 * S  # begins a window of ten minutes
NAMES: Final = ("a", "b", "c")

Lost = Literal["request", "reply"]


class Server:
    """A store in memory, and what is wrong with it.

    ``fails``: what every call raises instead of an answer, a StoreError if it is a word. ``loses``: where the calls of
    this method are lost, their request or the reply. ``between``: awaited once, before the next commit. Each call
    takes ``takes_s``, 0 lets others run, and with ``is_hung`` it waits for ever. ``ahead_us``: of its clock.
    """

    def __init__(self, clock_us: Callable[[], int]) -> None:
        self.ahead_us = 0
        self._clock_us = clock_us
        self.forget()
        self.fails: str | Exception = ""
        self.loses: dict[str, Lost] = {}
        self.between: Callable[[], Awaitable[object]] | None = None
        self.is_hung = False
        self.takes_s: float | None = None
        self.calls: Counter[str] = Counter()
        self.closed = 0

    def forget(self) -> None:
        """Lose all that is there."""
        self.store = MemoryStore(lambda: self._clock_us() + self.ahead_us)

    async def content(self) -> Raw:
        """What is there, whatever is wrong."""
        return await self.store.read("", window_us=600 * S, expiry_us=30 * S)

    async def read(self, instance: str, *, window_us: int, expiry_us: int) -> Raw:
        return await self._do("read", lambda: self.store.read(instance, window_us=window_us, expiry_us=expiry_us))

    async def commit(self, revision: int, changes: Changes) -> int:
        between, self.between = self.between, None
        if between is not None:
            await between()
        return await self._do("commit", lambda: self.store.commit(revision, changes))

    async def beat(self, beat: Beat, *, settings: str, window_us: int, expiry_us: int) -> Heard:
        words = {"settings": settings, "window_us": window_us, "expiry_us": expiry_us}
        return await self._do("beat", lambda: self.store.beat(beat, **words))  # type: ignore[arg-type]  # as they are

    async def members(self, *, most: int, since_us: int) -> Listing:
        return await self._do("members", lambda: self.store.members(most=most, since_us=since_us))

    async def count(self, key: str, window_s: int) -> int:
        return await self._do("count", lambda: self.store.count(key, window_s))

    async def note(self, entries: Sequence[Entry]) -> int:
        return await self._do("note", lambda: self.store.note(entries))

    async def entries(self, since: float, after: str, most: int) -> Sequence[Entry]:
        return await self._do("entries", lambda: self.store.entries(since, after, most))

    async def first(self, word: str, for_s: float) -> bool:
        return await self._do("first", lambda: self.store.first(word, for_s))

    async def aclose(self) -> None:
        self.closed += 1

    async def _do(self, name: str, call: Callable[[], Awaitable[T]]) -> T:
        self.calls[name] += 1
        if self.is_hung:
            await asyncio.Event().wait()
        if self.takes_s is not None:
            await asyncio.sleep(self.takes_s)
        if self.fails:
            raise StoreError(self.fails) if isinstance(self.fails, str) else self.fails
        if self.loses.get(name) == "request":
            raise StoreError("timeout")
        answer = await call()
        if self.loses.get(name) == "reply":
            raise StoreError("timeout")
        return answer


class Town:
    """Servers and the terms that sidecars ask by, in a time that stands still until it is moved.

    What is tried anew is tried at once; ``pauses`` tells how long a sidecar would have waited.
    """

    def __init__(self, servers: int = 1, terms: Terms = WINDOW_ONLY, **changes: Any) -> None:
        self.now_us = START_US
        self.terms = replace(terms, **changes)
        self.servers = [Server(lambda: self.now_us) for _ in range(servers)]
        self.pauses: list[float] = []
        self.pause: Callable[[float], Awaitable[object]] = self._pause
        self._made = 0

    @property
    def server(self) -> Server:
        """The only one."""
        (server,) = self.servers
        return server

    def sidecar(self, *, counter: Callable[[], fleet.Counter] | None = None, **changes: Any) -> FleetBudget:
        """The budget of one more sidecar, with chance of its own."""
        self._made += 1
        return FleetBudget(
            list(zip(NAMES, self.servers, strict=False)),
            replace(self.terms, **changes),
            rng=Random(self._made),
            clock=lambda: self.now_us / S,
            counter=counter,
            pause=self.pause,
        )

    def sidecars(self, names: Iterable[str]) -> dict[str, FleetBudget]:
        """One for each name."""
        return {name: self.sidecar() for name in names}

    def passes(self, seconds: float) -> None:
        """Move all clocks."""
        self.now_us += round(seconds * S)

    async def _pause(self, seconds: float) -> None:
        self.pauses.append(seconds)
        await asyncio.sleep(0)


def outcomes(answers: Iterable[Answer]) -> Counter[str]:
    """How often it was granted, and how often refused or unknown for which reason."""
    return Counter(outcome(answer) for answer in answers)


def outcome(answer: Answer) -> str:
    """``granted``, or why not."""
    if isinstance(answer, Denied):
        return answer.reason
    return answer.error if isinstance(answer, Unknown) else "granted"
