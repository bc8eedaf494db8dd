"""A store in memory that can fail, and the budgets of the sidecars that share it, with one clock."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import replace
from random import Random
from typing import Any, Final, Literal, TypeVar

from harness.claims import WINDOW_ONLY, S
from harness.memory_store import MemoryStore
from sidecar.core.claims import Answer, Beat, Denied, Fleet, Unknown
from sidecar.core.fleet.fleet_settings import FleetSettings
from sidecar.core.fleet.members import MemberList
from sidecar.core.fleet.view import BeatReply, Edits, View
from sidecar.store.budget import Counter as ArticleCounter
from sidecar.store.budget import FleetBudget
from sidecar.store.protocol import StoreError

T = TypeVar("T")

START_US: Final = 1_700_000_400 * S  # begins a window of ten minutes

Lost = Literal["request", "reply"]
_AnyStore: Any = object


class Server(_AnyStore):  # type: ignore[misc]  # it has the methods of a store
    """A store in memory with faults.

    ``fails``: the exception of every call, a StoreError if it is a word. ``loses``: by method, whether its request or
    its reply is lost. ``between``: awaited once, before the next commit. Each call takes ``takes_s`` (0 lets others
    run). After ``hang``, calls wait for ``heal``; ``stuck`` waits for the first of them. ``ahead_us``: the offset of
    the clock.
    """

    def __init__(self, clock_us: Callable[[], int]) -> None:
        self.ahead_us = 0
        self._clock_us = clock_us
        self.forget()
        self.fails: str | Exception = ""
        self.loses: dict[str, Lost] = {}
        self.between: Callable[[], Awaitable[object]] | None = None
        self._healed, self._has_call = asyncio.Event(), asyncio.Event()
        self._healed.set()
        self.takes_s: float | None = None
        self.calls: Counter[str] = Counter()
        self.closed = 0
        self.lost = asyncio.Event()

    def forget(self) -> None:
        """Lose all data."""
        self.store = MemoryStore(lambda: self._clock_us() + self.ahead_us)

    def hang(self) -> None:
        """Answer no call until ``heal``."""
        self._healed.clear()

    def heal(self) -> None:
        """Answer all calls."""
        self._healed.set()

    async def stuck(self) -> None:
        """Return once a call waits for its answer."""
        await self._has_call.wait()

    async def content(self) -> View:
        """The data, without the faults."""
        return await self.store.read("", window_us=600 * S, expiry_us=30 * S)

    async def read(self, instance: str, *, window_us: int, expiry_us: int) -> View:
        return await self._do("read", lambda: self.store.read(instance, window_us=window_us, expiry_us=expiry_us))

    async def commit(self, revision: int, edits: Edits) -> int:
        between, self.between = self.between, None
        if between is not None:
            await between()
        return await self._do("commit", lambda: self.store.commit(revision, edits))

    async def beat(self, beat: Beat, *, settings: str, window_us: int, expiry_us: int) -> BeatReply:
        words = {"settings": settings, "window_us": window_us, "expiry_us": expiry_us}
        return await self._do("beat", lambda: self.store.beat(beat, **words))  # type: ignore[arg-type]  # as they are

    def __getattr__(self, name: str) -> Any:
        """The other methods of the store, with the same faults."""
        return lambda *args, **named: self._do(name, lambda: getattr(self.store, name)(*args, **named))

    async def aclose(self) -> None:
        self.closed += 1

    async def _do(self, name: str, call: Callable[[], Awaitable[T]]) -> T:
        self.calls[name] += 1
        if not self._healed.is_set():
            self._has_call.set()
            await self._healed.wait()
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


class ServerGroup:
    """A server and the terms of its sidecars, with a clock that only ``advance`` moves.

    Retries happen at once; ``pauses`` has the times that a sidecar would have waited.
    """

    def __init__(self, terms: FleetSettings = WINDOW_ONLY, **changes: Any) -> None:
        self.now_us = START_US
        self.terms = replace(terms, **changes)
        self.server = Server(lambda: self.now_us)
        self.pauses: list[float] = []
        self.pause: Callable[[float], Awaitable[object]] = self._pause
        self._made = 0

    def sidecar(
        self,
        instance: str = "",
        *,
        counter: Callable[[], ArticleCounter] | None = None,
        other: Callable[[], FleetBudget] | None = None,
        **changes: Any,
    ) -> FleetBudget:
        """The budget of one more sidecar, with its own random generator."""
        self._made += 1
        return FleetBudget(
            self.server,
            replace(self.terms, **changes),
            rng=Random(self._made),
            clock=lambda: self.now_us / S,
            wall=lambda: self.now_us / S,
            counter=counter,
            pause=self.pause,
            instance=instance,
            other=other,
        )

    def sidecars(self, names: Iterable[str]) -> dict[str, FleetBudget]:
        """A budget for each name."""
        return {name: self.sidecar() for name in names}

    def advance(self, seconds: float) -> None:
        """Move the clock."""
        self.now_us += round(seconds * S)

    async def _pause(self, seconds: float) -> None:
        self.pauses.append(seconds)
        await asyncio.sleep(0)


def outcomes(answers: Iterable[Answer]) -> Counter[str]:
    """The number of answers by outcome."""
    return Counter(outcome(answer) for answer in answers)


def outcome(answer: Answer) -> str:
    """``granted``, the reason of a refusal, or the word of an error."""
    if isinstance(answer, Denied):
        return answer.reason
    return answer.error if isinstance(answer, Unknown) else "granted"


class StubBudget(FleetBudget):
    """``member_list`` returns ``known``, and the holds of the store. ``wall`` gives Unix seconds."""

    def __init__(self, wall: Callable[[], float], instance: str = "a") -> None:
        self.server = Server(lambda: round(wall() * S))
        self.known = MemberList(Fleet(0), 0)
        super().__init__(self.server, WINDOW_ONLY, rng=Random(0), clock=wall, wall=wall, instance=instance)

    async def member_list(self) -> MemberList | Unknown:
        answer = await super().member_list()
        return answer if isinstance(answer, Unknown) else self.known._replace(holds=(*self.known.holds, *answer.holds))
