"""The budget of the fleet: requests of sidecars and operators to the shared store, decided by ``core.fleet``.

It does not repeat a request whose answer was lost: the sidecar claims again with the same claim id, and gets the same
grant.
"""

from __future__ import annotations

import asyncio
from collections import Counter as Counts
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from functools import partial
from random import Random
from typing import Any, Final, Protocol, cast

from sidecar.cascade.fallback import Figures
from sidecar.core.fleet import members
from sidecar.core.fleet.about import Member, MemberList
from sidecar.core.fleet.merge import member_life, member_of, view_of
from sidecar.core.fleet.raw import Raw
from sidecar.core.fleet.summary import Reading, fleet_of, is_due
from sidecar.core.fleet.terms import Terms
from sidecar.core.fleet.view import Asked, Attend, EndHold, MemberKey, PutHold, ReturnGrant
from sidecar.core.types import US_PER_S, Answer, Beat, Claim, Entry, Fleet, Hold, LeaseRequest, Unknown
from sidecar.core.values import replace
from sidecar.store.changes import is_hold_lacking
from sidecar.store.decisions import Counter, Decisions
from sidecar.store.ledger_pages import merged_page, places
from sidecar.store.protocol import Listing, Store
from sidecar.store.seen_holds import SeenHolds
from sidecar.store.servers import BudgetServer, ExchangeTimes, Servers, clear_answers

MAX_MEMBERS: Final = 2000
"""Maximum number of members in a list for an operator."""

FEW_MEMBERS: Final = 100
"""So many members are read in less than a millisecond."""

DUPLICATE_BEATS: Final = 3
"""Another container under this name counts as a duplicate for this many beat intervals after its last beat."""


class Budget(Protocol):
    """The requests of sidecars and operators to the fleet. Failures are values; only cancellation is raised."""

    async def claim(self, claim: Claim) -> Answer:
        """Ask for a token; an id that was granted before is granted again and costs nothing."""

    async def retire(self, lease: LeaseRequest) -> Answer:
        """Ask for a lease to retire; the same holder is granted again. It costs no token."""

    async def give_back(self, instance: str, holder: str) -> bool | Unknown:
        """Give back the lease of this holder, or the token of this claim id; whether it was granted."""

    async def beat(self, beat: Beat) -> Fleet | Unknown:
        """Report the state of the container to the fleet; the state of the fleet."""

    def has_lost_connection(self) -> bool:
        """Whether a connection to a server has ended since the last beat."""

    async def hold(self, instance: str, author: str, reason: str, for_s: float) -> Hold | Unknown:
        """Freeze the service, or the named instance, for ``for_s`` seconds."""

    async def release(self, instance: str) -> bool | Unknown:
        """End a hold; whether there was one."""

    async def member_list(self) -> MemberList | Unknown:
        """The fleet, member by member, for an operator."""

    async def note(self, entries: Sequence[Entry]) -> int | Unknown:
        """Write entries into the ledger; how many were new. An entry that is sent again is written once."""

    async def entries(self, since: float, after: str, most: int) -> Sequence[Entry] | Unknown:
        """At most ``most`` entries of the ledger, written since (Unix seconds) and after that id; none: the end."""

    async def first(self, word: str, for_s: float) -> bool | Unknown:
        """Whether this is the first call with ``word`` in the fleet within the ``for_s`` of the earlier call."""

    async def add_errors(self, minutes: Mapping[int, int]) -> int | Unknown:
        """Add server errors to minutes (Unix time / 60) of the service, for the time line of the status page."""

    async def error_minutes(self) -> Mapping[int, int] | Unknown:
        """The errors of about the last hour by minute (Unix time / 60); only minutes with errors."""

    async def aclose(self) -> None:
        """Close the connections; the budget is not used afterwards."""


class FleetBudget:
    """A ``Budget`` over the stores of servers, by name, in the order of their shares.

    ``clock`` gives seconds that also pass while the machine sleeps. ``rng`` spreads retries and orders the servers.
    ``counter`` gives the article's counter for strategy ``fixed``. ``pause`` waits for a number of seconds.
    """

    def __init__(
        self,
        servers: Sequence[tuple[str, Store]],
        terms: Terms,
        *,
        rng: Random,
        clock: Callable[[], float],
        counter: Callable[[], Counter] | None = None,
        pause: Callable[[float], Awaitable[object]] = asyncio.sleep,
    ) -> None:
        self._servers = Servers(servers, rng, clock)
        self._terms = terms
        self._settings = terms.written()
        self._clock = clock
        self._is_watched = self._is_arriving = self._is_unanswered = False
        self._duplicate_until = -1.0
        self._waits_since: float | None = None
        self._holds = SeenHolds(terms.window_us)
        self._decisions = Decisions(
            self._servers,
            terms,
            rng=rng,
            clock=clock,
            counter=counter,
            pause=pause,
            is_duplicate=self._is_duplicate,
        )

    @property
    def conflicts(self) -> int:
        """Commits so far that met another one."""
        return self._decisions.conflicts

    def figures(self) -> dict[str, Figures]:
        """The cascade's figures for each server."""
        return self._servers.figures()

    # -- for sidecars -------------------------------------------------------------------------------------------

    async def claim(self, claim: Claim) -> Answer:
        """Granted, denied, or unknown with one of the words in ``core.explain.reasons.FAILURES``."""
        return cast("Answer", await self._answer(claim, claim.instance))

    async def retire(self, lease: LeaseRequest) -> Answer:
        """As for a claim; the same holder is granted again."""
        return cast("Answer", await self._answer(lease, lease.instance))

    async def give_back(self, instance: str, holder: str) -> bool | Unknown:
        """Whether it had been granted, or unknown as for a claim."""
        return cast("bool | Unknown", await self._answer(ReturnGrant(instance, holder), instance))

    async def beat(self, beat: Beat) -> Fleet | Unknown:
        """The fleet by the servers that answer, or unknown as for a claim."""
        answers = await self._servers.everywhere(partial(self._beat, beat))
        answered = clear_answers(answers)
        if isinstance(answered, Unknown):
            self._is_unanswered = True
            return answered
        readings = {number: reading for number, (reading, _) in answered.items()}
        self._see_duplicate(beat, readings)
        if len(readings) == len(self._servers):
            self._holds.take(beat.instance, list(readings.values()))
        is_new = any(not self._servers.every[number].has_processed_beat for number in answered)
        self._is_arriving = self._is_arriving or (beat.first and self._is_newcomer(beat, readings.values()))
        if is_new or self._is_due(beat, answered):
            readings = await self._attend(beat, readings, is_new=is_new)
        else:
            self._learn(answered)
        fleet = fleet_of(list(readings.values()), self._terms, beat.instance, duplicate=self._is_duplicate())
        away = tuple(
            f"{self._servers.every[number].name}: {answer.error}"
            for number, answer in answers.items()
            if isinstance(answer, Unknown)
        )
        # Includes the losses of servers that are away: a sum that falls and rises again would look like a new loss.
        losses = sum(server.epoch.losses for server in self._servers.every)
        lost_hold = self._holds.lost
        if not (away or lost_hold or losses != fleet.losses):
            return fleet
        return replace(fleet, away=away, losses=losses, lost_hold=lost_hold)

    def has_lost_connection(self) -> bool:
        """Whether that is so: the server behind the next connection may be another process."""
        return any(server.store.has_lost_connection() for server in self._servers.every)

    # -- for operators ------------------------------------------------------------------------------------------

    async def hold(self, instance: str, author: str, reason: str, for_s: float) -> Hold | Unknown:
        """The hold that is now in force, on at least one server, or unknown as for a claim."""
        order = PutHold(instance, author, reason, round(for_s * US_PER_S))
        held = cast("Hold | Unknown", await self._answer(order, instance, is_order=True))
        if isinstance(held, Hold):
            self._holds.put(held, order.for_us)
        return held

    async def release(self, instance: str) -> bool | Unknown:
        """Whether there was a hold, or unknown as for a claim."""
        return cast("bool | Unknown", await self._answer(EndHold(instance), instance, is_order=True))

    async def member_list(self) -> MemberList | Unknown:
        """At most ``MAX_MEMBERS`` members of the fleet, or unknown as for a claim."""
        known = clear_answers(await self._servers.everywhere(self._listed))
        if isinstance(known, Unknown):
            return known
        raws = [raw for raw, _ in known.values()]
        view = view_of(list(zip(known, raws, strict=True)), len(self._servers))
        listing = max((listing for _, listing in known.values()), key=lambda one: len(one.members))
        present: dict[str, Member] = {}
        for begin in range(0, len(listing.members), FEW_MEMBERS):
            present |= members.present(view, listing.members[begin : begin + FEW_MEMBERS])
            await asyncio.sleep(0)  # health answers go between
        seen = members.member_list_of(view, raws, listing, present, self._terms, most=MAX_MEMBERS)
        return seen._replace(fleet=replace(seen.fleet, duplicate=self._is_duplicate(), lost_hold=self._holds.lost))

    # -- the ledger ---------------------------------------------------------------------------------------------

    async def note(self, entries: Sequence[Entry]) -> int | Unknown:
        """Write the entries at the first server that answers."""
        return await self._servers.anywhere(lambda server: server.store.note(entries))

    async def entries(self, since: float, after: str, most: int) -> Sequence[Entry] | Unknown:
        """The entries of all servers that answer. An id here has the position in each of the ledgers."""
        if len(self._servers) == 1:
            return await self._servers.anywhere(lambda server: server.store.entries(since, after, most))
        read = places(after, (server.name for server in self._servers.every))
        pages = clear_answers(
            await self._servers.everywhere(lambda one: one.store.entries(since, read[one.name], most))
        )
        if isinstance(pages, Unknown):
            return pages
        return merged_page({self._servers.every[number].name: page for number, page in pages.items()}, read, most)

    async def first(self, word: str, for_s: float) -> bool | Unknown:
        """The answer of the first server that answers."""
        return await self._servers.anywhere(lambda server: server.store.first(word, for_s))

    async def add_errors(self, minutes: Mapping[int, int]) -> int | Unknown:
        """The answer of the first server that answers."""
        return await self._servers.anywhere(lambda server: server.store.add_errors(minutes))

    async def error_minutes(self) -> Mapping[int, int] | Unknown:
        """The sum over all servers that answer."""
        known = clear_answers(await self._servers.everywhere(lambda server: server.store.error_minutes()))
        if isinstance(known, Unknown):
            return known
        return sum((Counts(minutes) for minutes in known.values()), Counts())

    async def aclose(self) -> None:
        """Close the stores."""
        await asyncio.gather(*(server.store.aclose() for server in self._servers.every))

    # -- beats --------------------------------------------------------------------------------------------------

    async def _beat(self, beat: Beat, server: BudgetServer) -> tuple[Reading, ExchangeTimes]:
        terms = self._terms
        begin = self._clock()
        reply = await server.store.beat(
            beat, settings=self._settings, window_us=terms.window_us, expiry_us=terms.expiry_us
        )
        return Reading.of(reply), ExchangeTimes(begin, self._clock())

    def _see_duplicate(self, beat: Beat, readings: Mapping[int, Reading]) -> None:
        """Notice another container that has beaten under our name since our last beat at the same server."""
        member = MemberKey(beat.incarnation, beat.identity)
        for number, reading in readings.items():
            server = self._servers.every[number]
            if server.member == member and member.is_other(member_of(reading.reply.former)):
                self._duplicate_until = self._clock() + DUPLICATE_BEATS * self._terms.beat_us / US_PER_S
            server.member = member

    def _is_newcomer(self, beat: Beat, readings: Iterable[Reading]) -> bool:
        """Whether no container was alive under this name before. Our own row is there if an answer was lost."""
        formers = {member_life(reading.reply.former) for reading in readings if reading.reply.former}
        return not formers or (self._is_unanswered and formers == {beat.incarnation})

    @property
    def is_settled(self) -> bool:
        """Whether the fleet waits for nothing of this container: it is no newcomer, and no outcome depends on it."""
        is_waiting = self._is_arriving or self._waits_since is not None
        return not (self._is_watched or is_waiting or self._is_duplicate())

    def _is_duplicate(self) -> bool:
        return self._clock() < self._duplicate_until

    def _is_due(self, beat: Beat, answered: Mapping[int, tuple[Reading, ExchangeTimes]]) -> bool:
        """Whether a decision is due, also for a server that lacks a part of the state."""
        if self._is_watched or self._waits_since is not None or self._holds.has_news or self._is_duplicate():
            return True
        readings = [reading for reading, _ in answered.values()]
        if len({reading.state.serial for reading in readings}) > 1:
            return True
        if any(is_hold_lacking([reading.reply.holds[place] for reading in readings]) for place in (0, 1)):
            return True
        return any(
            is_due(reading, beat, self._servers.every[number].known(exchange), self._terms)
            for number, (reading, exchange) in answered.items()
        )

    async def _attend(self, beat: Beat, readings: Mapping[int, Reading], *, is_new: bool) -> dict[int, Reading]:
        """Decide what a beat found to be due; return the answers to the beat, with the state after the decision.

        If the decision fails, the next beat finds the same again, because nothing of this beat is remembered.
        """
        struck = tuple({name: None for reading in readings.values() for name in reading.reply.struck})
        largest = max((reading.reply for reading in readings.values()), key=lambda one: one.alive)
        first = (self._is_arriving and is_new) or self._waits_since is not None
        waited_us = 0 if self._waits_since is None else round((self._clock() - self._waits_since) * US_PER_S)
        attend = Attend(
            beat._replace(first=first), struck, largest.silent, largest.alive, waited_us, self._holds.has_news
        )
        decided = await self._decisions.decide(attend, beat.instance)
        if isinstance(decided, Unknown):
            return dict(readings)
        for number in readings:
            self._servers.every[number].has_processed_beat = True
        self._is_arriving = self._holds.has_news = False
        self._is_watched = decided.answer.is_watched
        self._waits_since = self._clock() - waited_us / US_PER_S if decided.answer.is_waiting else None
        read, edits = decided.read, decided.edits
        state = edits.state or read.view.state
        after = dict(readings)
        for place, found in enumerate(read.view.servers):
            if found.number in after:
                epoch = edits.epochs.get(place, found.epoch).shifted(-found.offset_us)
                after[found.number] = Reading(after[found.number].reply, epoch, state.shifted(-found.offset_us))
        return after

    def _learn(self, answered: Mapping[int, tuple[Reading, ExchangeTimes]]) -> None:
        """Remember what the beat showed, unless a later claim has shown more."""
        for number, (reading, exchange) in answered.items():
            server = self._servers.every[number]
            if server.exchange.end < exchange.end:
                server.learn(reading.epoch, reading.reply.now_us, exchange)

    async def _answer(self, asked: Asked, instance: str, *, is_order: bool = False) -> Any:
        decided = await self._decisions.decide(asked, instance, is_order=is_order)
        return decided if isinstance(decided, Unknown) else decided.answer

    async def _listed(self, server: BudgetServer) -> tuple[Raw, Listing]:
        terms = self._terms
        raw = await server.store.read("", window_us=terms.window_us, expiry_us=terms.expiry_us)
        return raw, await server.store.members(most=MAX_MEMBERS, since_us=raw.now_us - terms.window_us)
