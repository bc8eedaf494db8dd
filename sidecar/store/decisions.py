"""A decision of the fleet's rules over the stores of its servers: read, decide, commit.

After a conflict with another commit it starts again with the read, a bounded number of times. Of several servers a
majority has to answer the read and take the commit; the token comes from one of them, from its share of the budget.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from random import Random
from typing import Any, Final, NamedTuple

from sidecar.core.fleet.decide import decide
from sidecar.core.fleet.majority import is_majority, split
from sidecar.core.fleet.merge import view_of
from sidecar.core.fleet.raw import Raw
from sidecar.core.fleet.terms import Terms
from sidecar.core.fleet.view import Asked, Attend, Edits, Request, View
from sidecar.core.types import Answer, Claim, Denied, Granted, Unknown
from sidecar.store.changes import changes_for, lacking_holds
from sidecar.store.protocol import Conflict, Over, StoreError
from sidecar.store.servers import BudgetServer, ExchangeTimes, Servers, clear_answers

MAX_ATTEMPTS: Final = 30
FIRST_PAUSE_S: Final = 0.01
MAX_PAUSE_S: Final = 0.2
DECISION_LIMIT_S: Final = 5.0
"""Maximum time of a decision with conflicts."""


class Counter(NamedTuple):
    """The article's counter now: its key, its window, and the rest of the window in seconds."""

    key: str
    window_s: int
    left_s: float


class Read(NamedTuple):
    """The answers to a read: the view, and for each place in it the server, its content and the time of the read."""

    view: View
    servers: list[BudgetServer]
    raws: list[Raw]
    exchanges: list[ExchangeTimes]


@dataclass(frozen=True, slots=True)
class Decided:
    """An answer, with the read that it is based on and the edits that were written."""

    answer: Any
    read: Read
    edits: Edits


class Decisions:
    """Decisions for one sidecar; its ``terms`` and clocks as for ``FleetBudget``.

    ``is_duplicate``: whether another container runs under the name of this one.
    """

    def __init__(
        self,
        servers: Servers,
        terms: Terms,
        *,
        rng: Random,
        clock: Callable[[], float],
        counter: Callable[[], Counter] | None,
        pause: Callable[[float], Awaitable[object]],
        is_duplicate: Callable[[], bool],
    ) -> None:
        self._servers = servers
        self._terms = terms
        self._window_us = terms.window_us
        self._rng = rng
        self._clock = clock
        self._counter = counter
        self._pause = pause
        self._is_duplicate = is_duplicate
        self.conflicts = 0

    async def decide(self, asked: Asked, instance: str, *, is_order: bool = False) -> Decided | Unknown:
        """Read, decide and commit, until no other commit conflicts."""
        until, counted = self._clock() + DECISION_LIMIT_S, False
        for attempt in range(MAX_ATTEMPTS):
            read = await self._read(instance, is_order=is_order)
            if isinstance(read, Unknown):
                return read
            answer, edits = decide(read.view, self._request(asked, read))
            edits = _with_sync(asked, read, edits, f"{self._rng.getrandbits(32):08x}")
            if isinstance(asked, Claim) and isinstance(answer, Granted) and not (answer.replayed or counted):
                answer, edits = await self._counted(answer, edits, read)
                counted = True
            granted = instance if isinstance(answer, Granted) else ""
            failure, lacking = await self._commit(edits, read, granted, is_order=is_order) if edits else (None, ())
            if failure is None:
                return self._learnt(Decided(answer, read, edits), lacking)
            if isinstance(answer, Denied):
                return Decided(answer, read, Edits())  # the edits were not written: the next decision makes them again
            if isinstance(failure, Unknown):
                return failure
            self.conflicts += 1
            if self._clock() >= until:
                break
            await self._pause(self._rng.random() * min(MAX_PAUSE_S, FIRST_PAUSE_S * 2**attempt))
        return Unknown("contended")

    def _request(self, asked: Asked, read: Read) -> Request:
        known = tuple(server.known(exchange) for server, exchange in zip(read.servers, read.exchanges, strict=True))
        return Request(asked, self._terms, known, is_duplicate=self._is_duplicate())

    def _learnt(self, decided: Decided, lacking: Sequence[int]) -> Decided:
        """Remember what the exchange showed of each server, and the written epochs except at ``lacking`` servers."""
        read = decided.read
        for place, (server, exchange) in enumerate(zip(read.servers, read.exchanges, strict=True)):
            if place in lacking and place in decided.edits.epochs:
                continue
            found = read.view.servers[place]
            epoch = decided.edits.epochs.get(place, found.epoch).shifted(-found.offset_us)
            server.learn(epoch, read.raws[place].now_us, exchange)
        return decided

    async def _read(self, instance: str, *, is_order: bool) -> Read | Unknown:
        known = clear_answers(await self._servers.everywhere(partial(self._timed_read, instance)))
        if isinstance(known, Unknown):
            return known
        if not (is_majority(known, len(self._servers)) or is_order):
            return Unknown("quorum")
        servers = [server for server in self._servers.preferred() if server.number in known]
        raws = [known[server.number][0] for server in servers]
        view = view_of([(server.number, raw) for server, raw in zip(servers, raws, strict=True)], len(self._servers))
        longest_us = max((terms.window_us for terms in view.settings), default=0)
        if longest_us > self._window_us:  # another sidecar has a longer window, which this read did not cover
            self._window_us = longest_us
            return await self._read(instance, is_order=is_order)
        return Read(view, servers, raws, [known[server.number][1] for server in servers])

    async def _timed_read(self, instance: str, server: BudgetServer) -> tuple[Raw, ExchangeTimes]:
        begin = self._clock()
        raw = await server.store.read(instance, window_us=self._window_us, expiry_us=self._terms.expiry_us)
        return raw, ExchangeTimes(begin, self._clock())

    async def _counted(self, granted: Granted, edits: Edits, read: Read) -> tuple[Answer, Edits]:
        """Let the article's counter decide, if this sidecar runs with its strategy."""
        if self._counter is None:
            return granted, edits
        counter, used = self._counter(), 0
        for place, server in enumerate(read.servers):
            try:
                used = await self._servers.attempt(server, lambda one: one.store.count(counter.key, counter.window_s))
            except StoreError as error:
                return Unknown(error.word), Edits()
            if used <= split(granted.capacity, server.number, len(self._servers)):
                return replace(granted, used=used), replace(edits, server=place)
        denied = Denied("window", used, granted.capacity, counter.left_s, alive=granted.alive, suspect=granted.suspect)
        return denied, Edits()

    async def _commit(
        self, edits: Edits, read: Read, granted: str, *, is_order: bool
    ) -> tuple[Unknown | Conflict | Over | None, Sequence[int]]:
        """Write at every server that answered; return the failure, and the places in the view that lack the commit.

        The failure is None if a majority took the commit, or for an order at least one server.
        """
        outcomes = await asyncio.gather(
            *(self._commit_at(edits, read, place, granted) for place in range(len(read.servers)))
        )
        taken = [server.number for server, failure in zip(read.servers, outcomes, strict=True) if failure is None]
        is_token_taken = not edits.grant or outcomes[edits.server] is None
        is_enough = bool(taken) if is_order else is_majority(taken, len(self._servers))
        lacking = [place for place, failure in enumerate(outcomes) if failure is not None]
        if is_token_taken and is_enough:
            return None, lacking
        failures = [failure for failure in outcomes if failure is not None]
        # A conflict at one server repeats the whole decision; else the first failure is the answer.
        return next((failure for failure in failures if not isinstance(failure, Unknown)), failures[0]), lacking

    async def _commit_at(self, edits: Edits, read: Read, place: int, granted: str) -> Unknown | Conflict | Over | None:
        raw = read.raws[place]
        changes = changes_for(read.view, edits, place, raw, granted)
        if changes is None:
            return None
        try:
            await self._servers.attempt(read.servers[place], lambda one: one.store.commit(raw.revision, changes))
        except (Conflict, Over) as answer:
            return answer
        except StoreError as error:
            return Unknown(error.word)
        return None


def _with_sync(asked: Asked, read: Read, edits: Edits, commit: str) -> Edits:
    """Add to the edits what servers lack after missed commits, and at a beat the holds that they lack.

    An attempt may write at one server only, and the next attempt may find nothing to change: so a server that is behind
    gets every decision whole. ``commit`` is the id of this attempt.
    """
    view, is_beat = read.view, isinstance(asked, Attend)
    if len(view.servers) == 1 or not (is_beat or edits):
        return edits
    if edits.state is None and any(server.is_behind for server in view.servers):
        edits = replace(edits, state=replace(view.state, serial=view.state.serial + 1))
    if edits.state is not None:
        edits = replace(edits, state=replace(edits.state, commit=commit))
    if not is_beat:
        return edits
    return replace(edits, holds=lacking_holds(view, read.raws) | dict(edits.holds))
