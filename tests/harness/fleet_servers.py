"""The server of a fleet in virtual time, and the connections to it that lose messages.

A server is the store in memory with a clock that may be wrong. It can be away, lose its data, or be followed by another
process with an older copy. A line is the connection of one sidecar.
"""

from __future__ import annotations

import asyncio
import copy
from collections.abc import Callable, Coroutine
from dataclasses import dataclass, field
from enum import Enum, auto
from functools import partial
from random import Random
from typing import Any, Final, NamedTuple, Protocol, TypeVar

from harness.memory_store import MemoryStore
from sidecar.core.claims import Beat
from sidecar.core.fleet.view import BeatReply, Edits, View
from sidecar.core.types import US_PER_S
from sidecar.store.protocol import StoreError

T = TypeVar("T")
_AnyStore: Any = object

START_US: Final = 10**6 * US_PER_S


class Chance(Random):
    """A random generator that is not copied with its owner: a copy must be given its seed."""

    def __reduce__(self) -> Any:
        return Chance, ()


@dataclass(slots=True)
class Time:
    """Real time, in microseconds; no server and no sidecar can change it."""

    now_us: int = START_US

    def seconds(self) -> float:
        return self.now_us / US_PER_S


@dataclass
class Clock:
    """The clock of a server: real time and ``offset_us``."""

    time: Time
    offset_us: int

    def __call__(self) -> int:
        return self.time.now_us + self.offset_us


class Fate(Enum):
    """How one exchange ends; ``ENDS_*``: the sidecar's process ends before the request arrives, or after.

    ``CRASHES``: the server does, and the request arrives at its next process.
    """

    PASSES = auto()
    LOST = auto()
    LOST_REPLY = auto()
    ENDS_BEFORE = auto()
    ENDS_AFTER = auto()
    CRASHES = auto()


class Point(NamedTuple):
    """An exchange that waits for the scheduler: its sidecar and method, and the future for its fate."""

    sidecar: Any
    word: str
    fate: asyncio.Future[Fate]


class Copy(NamedTuple):
    """The data of a server at an instant, and the judge's notes of it."""

    kept: dict[str, Any]
    noted: Any
    generation: int
    grants: int
    held: int


@dataclass
class Server:
    """One server. ``generation`` changes with a flush, ``grants`` counts the grants since then, ``held`` is the number
    of the last decision that it took, and ``process`` the number of its process.
    """

    clock: Clock
    store: MemoryStore
    generation: int = 0
    grants: int = 0
    held: int = 0
    away_until_us: int = 0
    older: Copy | None = None
    generations: int = 0
    process: int = 0

    @property
    def is_away(self) -> bool:
        return self.clock.time.now_us < self.away_until_us

    def flush(self) -> None:
        self.store = MemoryStore(self.clock, run_id=str(self.process))
        self.generations += 1
        self.generation, self.grants, self.held = self.generations, 0, 0

    def save(self, noted: object) -> None:
        """Keep a copy, as a replica or a file does."""
        kept = {name: value for name, value in vars(self.store).items() if name != "_clock_us"}
        self.older = Copy(copy.deepcopy(kept), copy.deepcopy(noted), self.generation, self.grants, self.held)

    def successor(self) -> Server:
        """Another process beside this one, with the copy."""
        other = Server(self.clock, MemoryStore(self.clock), older=self.older, process=self.process)
        other.generations = self.generations
        other.restart()
        return other

    def restart(self) -> Any:
        """Go on as another process with the copy; the judge's notes of that time."""
        assert self.older is not None
        self.process += 1
        vars(self.store).update(copy.deepcopy(self.older.kept), run_id=str(self.process))
        self.generation, self.grants, self.held = self.older.generation, self.older.grants, self.older.held
        return copy.deepcopy(self.older.noted)


class Watcher(Protocol):
    """Observes the requests that a server accepts."""

    def took_beat(self, server: Server, beat: Beat, settings: str) -> None: ...

    def took_commit(self, server: Server, line: Line, edits: Edits) -> None: ...

    def spoke(self, line: Line) -> None: ...


@dataclass
class Weather:
    """The network: the probabilities that a request or a reply is lost."""

    chance: Chance
    lost: float = 0.0
    reply_lost: float = 0.0
    points: list[Point] = field(default_factory=list)
    new_future: Callable[[], asyncio.Future[Fate]] | None = None

    async def fate(self, sidecar: object, word: str) -> Fate:
        """The fate of an exchange, once the scheduler lets it pass, if there is a scheduler."""
        if self.new_future is not None:
            point = Point(sidecar, word, self.new_future())
            self.points.append(point)
            fate = await point.fate
            if fate is not Fate.PASSES:
                return fate
        drawn = self.chance.random() if self.lost or self.reply_lost else 1.0
        if drawn < self.lost:
            raise StoreError("timeout")
        return Fate.LOST_REPLY if drawn < self.lost + self.reply_lost else Fate.PASSES


@dataclass
class Line(_AnyStore):  # type: ignore[misc]  # it has the methods of a store
    """One sidecar's store on the server. ``known``, for the judge: what this process knows of the server from its last
    answer (generation, grants, offset of the clock, instant).
    """

    server: Server
    weather: Weather
    watcher: Watcher
    sidecar: Any
    process: Any
    asked: int = 0
    answered: int = 0
    known: tuple[int, int, int, int] | None = None

    async def read(self, instance: str, *, window_us: int, expiry_us: int) -> View:
        return await self._exchange(self.server.store.read, instance, window_us=window_us, expiry_us=expiry_us)

    async def commit(self, revision: int, edits: Edits) -> int:
        async def committed() -> int:
            at_us = await self.server.store.commit(revision, edits)
            self.watcher.took_commit(self.server, self, edits)
            return at_us

        return await self._exchange(committed)

    async def beat(self, beat: Beat, *, settings: str, window_us: int, expiry_us: int) -> BeatReply:
        async def beaten() -> BeatReply:
            store = self.server.store
            heard = await store.beat(beat, settings=settings, window_us=window_us, expiry_us=expiry_us)
            self.watcher.took_beat(self.server, beat, settings)
            return heard

        return await self._exchange(beaten)

    def __getattr__(self, name: str) -> Any:
        """The other methods of the store, as exchanges."""
        if name not in ("members", "count", "note", "entries", "first"):
            raise AttributeError(name)
        return partial(self._exchange, getattr(self.server.store, name))

    async def aclose(self) -> None:
        pass

    async def _exchange(self, call: Callable[..., Coroutine[Any, Any, T]], *args: Any, **named: Any) -> T:
        weather = self.weather
        self.asked += 1
        fate = await weather.fate(self.sidecar, call.__name__)
        if fate is Fate.LOST:
            raise StoreError("timeout")
        if fate is Fate.ENDS_BEFORE:
            raise asyncio.CancelledError
        if self.server.is_away:
            raise StoreError("connection")
        answer = await call(*args, **named)
        if fate is Fate.ENDS_AFTER:
            raise asyncio.CancelledError
        if fate is Fate.LOST_REPLY:
            raise StoreError("timeout")
        self.watcher.spoke(self)
        return answer
