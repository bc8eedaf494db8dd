"""The servers of one fleet, and the exchanges with them: each under a lease of the cascade, each failure a word.

What a sidecar knows of a server from its last exchange is kept here, with the time that passed on our clock: by it the
rules notice a server that lost its memory or whose clock was stepped.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from random import Random
from typing import NamedTuple, TypeVar

from sidecar.cascade.fallback import BusyError, Cascade, Figures
from sidecar.core.fleet.records import Epoch
from sidecar.core.fleet.view import Known
from sidecar.core.types import US_PER_S, Unknown
from sidecar.store.protocol import Conflict, Over, Store, StoreError

T = TypeVar("T")


class Looked(NamedTuple):
    """When an exchange began and ended, in seconds of our clock."""

    begin: float
    end: float

    @property
    def took_s(self) -> float:
        """How long it took: by so much the two clocks may seem apart."""
        return self.end - self.begin


NEVER = Looked(0.0, 0.0)


@dataclass(slots=True)
class Server:
    """One server by its number in the list. ``looked``: when its clock showed ``now_us`` and it had this ``epoch``.

    ``has_heard``: a beat of ours was looked after. ``life``: that of our last beat that it answered.
    """

    number: int
    name: str
    store: Store
    epoch: Epoch = field(default_factory=Epoch)
    now_us: int = 0
    looked: Looked = NEVER
    has_heard: bool = False
    life: str = ""

    def known(self, looked: Looked) -> Known:
        """What is known of it, for an exchange that was made between these instants."""
        if not self.now_us:
            return Known(self.epoch)
        elapsed_s, slack_s = looked.end - self.looked.end, self.looked.took_s + looked.took_s
        return Known(self.epoch, self.now_us, round(elapsed_s * US_PER_S), round(slack_s * US_PER_S))

    def learn(self, epoch: Epoch, now_us: int, looked: Looked) -> None:
        """Remember what an exchange showed."""
        self.epoch, self.now_us, self.looked = epoch, now_us, looked


class Servers:
    """All servers of a fleet, in the order of their shares."""

    def __init__(self, stores: Sequence[tuple[str, Store]], rng: Random, clock: Callable[[], float]) -> None:
        self.every = [Server(number, name, store) for number, (name, store) in enumerate(stores)]
        self._cascade = Cascade([server.name for server in self.every], rng, clock)

    def __len__(self) -> int:
        """How many there are."""
        return len(self.every)

    def figures(self) -> dict[str, Figures]:
        """What the cascade thinks of each server."""
        return self._cascade.figures()

    def preferred(self) -> list[Server]:
        """All, those first that have served well of late, by chance."""
        by_name = {server.name: server for server in self.every}
        return [by_name[name] for name in self._cascade.order()]

    async def everywhere(self, call: Callable[[Server], Awaitable[T]]) -> dict[int, T | Unknown]:
        """The answers of all, by number."""
        if len(self.every) == 1:
            return {0: await self.tried(self.every[0], call)}
        answers = await asyncio.gather(*(self.tried(server, call) for server in self.every))
        return dict(enumerate(answers))

    async def anywhere(self, call: Callable[[Server], Awaitable[T]]) -> T | Unknown:
        """The first clear answer, of the servers in the order of their shares: the same for the whole fleet."""
        failure: Unknown | None = None
        for server in self.every:
            answer = await self.tried(server, call)
            if not isinstance(answer, Unknown):
                return answer
            failure = failure or answer
        return failure or Unknown("internal")

    async def tried(self, server: Server, call: Callable[[Server], Awaitable[T]]) -> T | Unknown:
        """The answer of one; Unknown with the machine's word for a failure."""
        try:
            return await self.attempt(server, call)
        except StoreError as error:
            return Unknown(error.word)

    async def attempt(self, server: Server, call: Callable[[Server], Awaitable[T]]) -> T:
        """One exchange with one server. Raises StoreError for every failure; what a commit answers passes."""

        async def one(_: str) -> T | Conflict | Over:
            try:
                return await call(server)
            except (Conflict, Over) as answer:
                return answer  # to the cascade this is a server that serves well
            except StoreError as error:
                raise (_TimedOutError(error.word) if error.word == "timeout" else error) from None

        try:
            answer = await self._cascade.attempt(server.name, one)
        except BusyError:
            raise StoreError("crowded") from None
        except StoreError:
            raise
        except Exception:  # noqa: BLE001 - what a server does is a value here
            raise StoreError("internal") from None
        if isinstance(answer, Conflict | Over):
            raise answer
        return answer


class _TimedOutError(StoreError, TimeoutError):
    """A failure that tells of a crowded server."""
