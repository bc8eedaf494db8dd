"""Several independent Redis servers, each with its share of every number: what one does not know cannot be overspent.

A claim walks the servers in the order of ``core.cascade`` and takes the first token. Beats, holds and releases go to
all. The shares add up to the whole, so a server that is away only takes its share along.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Sequence
from dataclasses import replace
from functools import partial
from random import Random
from typing import Final, TypeVar

from sidecar.budget import Budget
from sidecar.budget.merged import merged_denial, merged_fleet, merged_roll
from sidecar.budget.pages import merged_page, places
from sidecar.core.cascade import BusyError, Cascade, Figures
from sidecar.core.words import (
    Answer,
    Beat,
    Claim,
    Denied,
    Entry,
    Fleet,
    Granted,
    Hold,
    Lease,
    Roll,
    Unknown,
)

T = TypeVar("T")

ELSEWHERE: Final = frozenset({"window", "earn_max", "share", "spacing", "newborn", "lost_memory"})
"""What one server refuses of its own share or for its own past; another one may still grant."""


class UnknownError(Exception):
    """A server gave no clear answer; to the cascade that is a failure."""

    def __init__(self, unknown: Unknown) -> None:
        super().__init__(unknown.error)
        self.unknown = unknown


class UnknownTimeoutError(UnknownError, TimeoutError):
    """And it took too long."""


class Spread:
    """``servers`` by name, in the order of their shares: the first one has the canary.

    ``clock`` gives seconds for the success rates, ``wall`` Unix seconds, to tell how long a hold lasts.
    """

    def __init__(
        self, servers: Iterable[tuple[str, Budget]], rng: Random, clock: Callable[[], float], wall: Callable[[], float]
    ) -> None:
        self._servers = dict(servers)
        self._first = next(iter(self._servers))
        self._cascade = Cascade(self._servers, rng, clock)
        self._wall = wall
        self._hold: Hold | None = None
        self._losses = dict.fromkeys(self._servers, 0)
        self._tokens: dict[str, tuple[int, int]] = {}
        self._met: set[str] = set()
        self._owed: dict[str, Callable[[str], Awaitable[object]]] = {}

    def figures(self) -> dict[str, Figures]:
        """What the cascade thinks of each server."""
        return self._cascade.figures()

    async def claim(self, claim: Claim) -> Answer:
        """The first token of any server; else the refusal that ended the walk, else what all of them said."""
        if self._hold is not None:
            return self._held(self._hold)
        walk = await self._cascade.walk(self._claims(claim), lambda told: self._is_final(*told))
        answers = [answer for _, answer in walk.results.values()]
        if not answers:
            return _first_unknown(walk.errors.values())
        final = (
            answers[-1] if walk.settled else merged_denial([answer for answer in answers if isinstance(answer, Denied)])
        )
        used, capacity = (sum(tokens) for tokens in zip(*self._tokens.values(), strict=True))
        return replace(final, used=used, capacity=capacity)

    async def retire(self, lease: Lease) -> Answer:
        """As the first server answers, which alone has leases: no other knows how many are away for their age."""
        if self._hold is not None:
            return self._held(self._hold)
        return await self._attempt(self._first, lambda name: self._servers[name].retire(lease))

    async def resign(self, instance: str, holder: str) -> bool | Unknown:
        """As the first server answers; the others, who heard that the container is down, are told too."""
        answers = await self._everywhere(lambda name: self._servers[name].resign(instance, holder))
        return answers[0]

    async def beat(self, beat: Beat) -> Fleet | Unknown:
        """Beat at all servers at once; the fleet as the best informed of them know it."""
        answers = dict(zip(self._servers, await self._everywhere(partial(self._beat, beat)), strict=True))
        fleets = {name: answer for name, answer in answers.items() if isinstance(answer, Fleet)}
        if not fleets:
            return _first_of(list(answers.values()))
        self._met |= fleets.keys()
        self._losses |= {name: fleet.losses for name, fleet in fleets.items()}
        self._tokens = {name: (fleet.used, fleet.capacity) for name, fleet in fleets.items()}
        away = (f"{name}: {answer.error}" for name, answer in answers.items() if isinstance(answer, Unknown))
        # Losses also of who is away: a counter that falls and rises again would tell of a new loss.
        fleet = replace(merged_fleet(list(fleets.values())), losses=sum(self._losses.values()), away=tuple(away))
        self._hold = fleet.hold
        return fleet

    async def hold(self, instance: str, author: str, reason: str, for_s: float) -> Hold | Unknown:
        """Hold at all servers. One is enough: each sidecar hears of it by its next beat; who is away is told later."""
        until = self._wall() + for_s

        def order(name: str) -> Awaitable[Hold | Unknown]:
            return self._servers[name].hold(instance, author, reason, max(1.0, until - self._wall()))

        return await self._ordered(order)

    async def release(self, instance: str) -> bool | Unknown:
        """Release at all servers; who is away is told later. Unknown when no server could be told."""
        if self._hold is not None and self._hold.instance == instance:
            self._hold = None
        return await self._ordered(lambda name: self._servers[name].release(instance))

    async def roll(self) -> Roll | Unknown:
        """The fleet member by member, of all servers that answer."""
        rolls = await self._everywhere(lambda name: self._servers[name].roll())
        known = [roll for roll in rolls if isinstance(roll, Roll)]
        return merged_roll(known) if known else _first_of(rolls)

    async def note(self, entries: Sequence[Entry]) -> int | Unknown:
        """Write the entries at the first server that answers."""
        return await self._anywhere(lambda name: self._servers[name].note(entries))

    async def entries(self, since: float, after: str, most: int) -> Sequence[Entry] | Unknown:
        """The entries of all servers that answer; an id here tells how far each of them was read."""
        read = places(after, self._servers)
        pages = await self._everywhere(lambda name: self._servers[name].entries(since, read[name], most))
        known = {name: page for name, page in zip(self._servers, pages, strict=True) if not isinstance(page, Unknown)}
        return merged_page(known, read, most) if known else _first_of(pages)

    async def first(self, word: str, for_s: float) -> bool | Unknown:
        """As the first server answers that does."""
        return await self._anywhere(lambda name: self._servers[name].first(word, for_s))

    async def aclose(self) -> None:
        """Close all."""
        await asyncio.gather(*(server.aclose() for server in self._servers.values()))

    def _held(self, hold: Hold) -> Denied:
        """By the servers' clocks: ours may be wrong, and the next beat tells when it is over."""
        return Denied("hold", 0, 0, max(0.0, hold.until - self._wall()), hold=hold)

    async def _beat(self, beat: Beat, name: str) -> Fleet | Unknown:
        """Beat at one server, and tell it what was ordered while it was away."""
        order = self._owed.get(name)
        if order is not None and not isinstance(await order(name), Unknown) and self._owed.get(name) is order:
            del self._owed[name]
        return await self._servers[name].beat(beat._replace(first=beat.first and name not in self._met))

    async def _ordered(self, order: Callable[[str], Awaitable[T | Unknown]]) -> T | Unknown:
        self._owed.clear()  # a newer order takes the place of an older one
        answers = await self._everywhere(order)
        clear = [answer for answer in answers if not isinstance(answer, Unknown)]
        if not clear:
            return _first_of(answers)
        self._owed = {
            name: order for name, answer in zip(self._servers, answers, strict=True) if isinstance(answer, Unknown)
        }
        return max(clear, key=bool)

    def _claims(self, claim: Claim) -> Callable[[str], Awaitable[tuple[str, Granted | Denied]]]:
        async def ask(name: str) -> tuple[str, Granted | Denied]:
            answer = await self._servers[name].claim(claim)
            if isinstance(answer, Unknown):
                raise _failure(answer)
            self._tokens[name] = (answer.used, answer.capacity)
            return name, answer

        return ask

    def _is_final(self, name: str, answer: Answer) -> bool:
        """Whether no other server is asked. Only the first sends canaries: a brake elsewhere is not the last word."""
        if not isinstance(answer, Denied):
            return True
        return answer.reason not in ELSEWHERE and (answer.reason != "brake" or name == self._first)

    async def _everywhere(self, call: Callable[[str], Awaitable[T | Unknown]]) -> Sequence[T | Unknown]:
        return await asyncio.gather(*(self._attempt(name, call) for name in self._servers))

    async def _anywhere(self, call: Callable[[str], Awaitable[T | Unknown]]) -> T | Unknown:
        """The first clear answer, of the servers in the order of their shares: the same for the whole fleet."""
        answers = []
        for name in self._servers:
            answers.append(await self._attempt(name, call))
            if not isinstance(answers[-1], Unknown):
                return answers[-1]
        return _first_of(answers)

    async def _attempt(self, name: str, call: Callable[[str], Awaitable[T | Unknown]]) -> T | Unknown:
        async def one(name: str) -> T:
            answer = await call(name)
            if isinstance(answer, Unknown):
                raise _failure(answer)
            return answer

        try:
            return await self._cascade.attempt(name, one)
        except Exception as error:  # noqa: BLE001 - what a server does is a value here
            return _unknown(error)


def _failure(unknown: Unknown) -> UnknownError:
    return (UnknownTimeoutError if unknown.error == "timeout" else UnknownError)(unknown)


def _unknown(error: Exception) -> Unknown:
    if isinstance(error, UnknownError):
        return error.unknown
    return Unknown("crowded" if isinstance(error, BusyError) else "internal")


def _first_unknown(errors: Iterable[Exception]) -> Unknown:
    return next(map(_unknown, errors), Unknown("internal"))


def _first_of(answers: Sequence[T | Unknown]) -> Unknown:
    return next((answer for answer in answers if isinstance(answer, Unknown)), Unknown("internal"))
