"""The servers of one fleet and the exchanges with them: each under a lease of the cascade, each failure a word.

It keeps what the last exchange with a server showed, and its time on our clock, so that the rules notice a server that
lost data or whose clock was stepped.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from random import Random
from typing import NamedTuple, TypeVar

from sidecar.cascade.fallback import BusyError, Cascade, Figures
from sidecar.core.fleet.records import Epoch
from sidecar.core.fleet.view import Known, MemberKey
from sidecar.core.types import US_PER_S, Unknown
from sidecar.store.protocol import Conflict, Over, Store, StoreError

T = TypeVar("T")


class ExchangeTimes(NamedTuple):
    """Begin and end of an exchange, in seconds of our clock."""

    begin: float
    end: float

    @property
    def took_s(self) -> float:
        """Its duration, by which the two clocks may seem to differ."""
        return self.end - self.begin


NEVER = ExchangeTimes(0.0, 0.0)


@dataclass(slots=True)
class BudgetServer:
    """One server by its number in the list. ``exchange``: the last one, which showed ``now_us`` and ``epoch``.

    ``has_processed_beat``: it has processed a beat of ours. ``member``: who we were in its last answered beat.
    """

    number: int
    name: str
    store: Store
    epoch: Epoch = field(default_factory=Epoch)
    now_us: int = 0
    exchange: ExchangeTimes = NEVER
    has_processed_beat: bool = False
    member: MemberKey = field(default_factory=MemberKey)

    def known(self, exchange: ExchangeTimes) -> Known:
        """What the sidecar knows of the server before this exchange."""
        if not self.now_us:
            return Known(self.epoch)
        elapsed_s, slack_s = exchange.end - self.exchange.end, self.exchange.took_s + exchange.took_s
        return Known(self.epoch, self.now_us, round(elapsed_s * US_PER_S), round(slack_s * US_PER_S))

    def learn(self, epoch: Epoch, now_us: int, exchange: ExchangeTimes) -> None:
        """Remember what an exchange showed."""
        self.epoch, self.now_us, self.exchange = epoch, now_us, exchange


def clear_answers(answers: Mapping[int, T | Unknown]) -> dict[int, T] | Unknown:
    """The answers of the servers that gave one, by number; the first failure if there is none."""
    clear = {number: answer for number, answer in answers.items() if not isinstance(answer, Unknown)}
    return clear or next(answer for answer in answers.values() if isinstance(answer, Unknown))


class Servers:
    """All servers of a fleet, in the order of their shares."""

    def __init__(self, stores: Sequence[tuple[str, Store]], rng: Random, clock: Callable[[], float]) -> None:
        self.every = [BudgetServer(number, name, store) for number, (name, store) in enumerate(stores)]
        self._cascade = Cascade([server.name for server in self.every], rng, clock)

    def __len__(self) -> int:
        """The number of servers."""
        return len(self.every)

    def figures(self) -> dict[str, Figures]:
        """The cascade's figures for each server."""
        return self._cascade.figures()

    def preferred(self) -> list[BudgetServer]:
        """All servers, in a random order that prefers those with recent successes."""
        if len(self.every) == 1:
            return self.every
        by_name = {server.name: server for server in self.every}
        return [by_name[name] for name in self._cascade.order()]

    async def everywhere(self, call: Callable[[BudgetServer], Awaitable[T]]) -> dict[int, T | Unknown]:
        """The answers of all servers, by number."""
        if len(self.every) == 1:
            return {0: await self.tried(self.every[0], call)}
        answers = await asyncio.gather(*(self.tried(server, call) for server in self.every))
        return dict(enumerate(answers))

    async def anywhere(self, call: Callable[[BudgetServer], Awaitable[T]]) -> T | Unknown:
        """The first clear answer, by the order of the shares, which is the same in the whole fleet."""
        failure: Unknown | None = None
        for server in self.every:
            answer = await self.tried(server, call)
            if not isinstance(answer, Unknown):
                return answer
            failure = failure or answer
        return failure or Unknown("internal")

    async def tried(self, server: BudgetServer, call: Callable[[BudgetServer], Awaitable[T]]) -> T | Unknown:
        """The answer of one server; Unknown with the machine word for a failure."""
        try:
            return await self.attempt(server, call)
        except StoreError as error:
            return Unknown(error.word)

    async def attempt(self, server: BudgetServer, call: Callable[[BudgetServer], Awaitable[T]]) -> T:
        """One exchange with one server. Raises StoreError for every failure, Conflict and Over as they come."""

        async def one(_: str) -> T | Conflict | Over:
            try:
                return await call(server)
            except (Conflict, Over) as answer:
                return answer  # for the cascade this is a success
            except StoreError as error:
                raise (_TimedOutError(error.word) if error.word == "timeout" else error) from None

        try:
            answer = await self._cascade.attempt(server.name, one)
        except BusyError:
            raise StoreError("crowded") from None
        except StoreError:
            raise
        except Exception:  # noqa: BLE001 - any failure of a server is a StoreError here
            raise StoreError("internal") from None
        if isinstance(answer, Conflict | Over):
            raise answer
        return answer


class _TimedOutError(StoreError, TimeoutError):
    """A failure by which the cascade recognises an overloaded server."""
