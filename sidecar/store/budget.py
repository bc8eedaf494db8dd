"""The budget of the fleet: what sidecars and people ask of the shared store, decided by ``core.fleet``.

Every request is a read, a decision and a commit. A commit that meets another one is tried anew from the read on, a
bounded number of times. Of several servers a majority has to answer the read and take the commit; the token comes from
one of them, which has its share of the budget. Nothing is asked twice where an answer was lost: the sidecar claims
again with the same claim id, and finds what was granted.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from random import Random
from typing import Any, Final, NamedTuple, Protocol, cast

from sidecar.cascade.fallback import Figures
from sidecar.core.fleet import members
from sidecar.core.fleet.decide import decide
from sidecar.core.fleet.majority import is_majority, split
from sidecar.core.fleet.merge import member_life, view_of
from sidecar.core.fleet.raw import Raw
from sidecar.core.fleet.summary import Reading, fleet_of, is_due
from sidecar.core.fleet.terms import Terms
from sidecar.core.fleet.view import Asked, Attend, Edits, PutHold, Release, Request, Resign, View
from sidecar.core.types import US_PER_S, Answer, Beat, Claim, Denied, Entry, Fleet, Granted, Hold, Lease, Roll, Unknown
from sidecar.store.changes import changes_for, is_hold_lacking, lacking_holds
from sidecar.store.ledger_pages import merged_page, places
from sidecar.store.protocol import Conflict, Listing, Over, Store, StoreError
from sidecar.store.servers import Looked, Server, Servers

MOST_ATTEMPTS: Final = 30
FIRST_PAUSE_S: Final = 0.01
LONGEST_PAUSE_S: Final = 0.2
DECISION_LIMIT_S: Final = 5.0
"""A decision that meets others is tried anew for this long at the most."""

MOST_MEMBERS: Final = 1000
"""Members that a person is shown."""

DUPLICATE_BEATS: Final = 3
"""For this many beats after it was last seen another life under our name counts as there."""


class Budget(Protocol):
    """What sidecars and people ask of the fleet. Failures are values here: only cancellation is raised."""

    async def claim(self, claim: Claim) -> Answer:
        """Ask for a token; an id that was granted before is granted again and costs nothing."""

    async def retire(self, lease: Lease) -> Answer:
        """Ask for a lease to retire; the same holder is granted again. It costs no token."""

    async def resign(self, instance: str, holder: str) -> bool | Unknown:
        """Give back the lease of this holder, or the token of this claim id; whether it was granted."""

    async def beat(self, beat: Beat) -> Fleet | Unknown:
        """Tell the fleet how the container is, and hear how the fleet is; makes ready for the next claim too."""

    async def hold(self, instance: str, author: str, reason: str, for_s: float) -> Hold | Unknown:
        """Freeze the service, or the instance if it is named, for this many seconds."""

    async def release(self, instance: str) -> bool | Unknown:
        """End a hold; whether there was one."""

    async def roll(self) -> Roll | Unknown:
        """The fleet member by member, for a person."""

    async def note(self, entries: Sequence[Entry]) -> int | Unknown:
        """Write entries into the ledger, each of them once however often it is sent; how many were new."""

    async def entries(self, since: float, after: str, most: int) -> Sequence[Entry] | Unknown:
        """At most so many of the ledger, written since (Unix seconds) and after that id; none is the end."""

    async def first(self, word: str, for_s: float) -> bool | Unknown:
        """Whether nobody of the fleet has said the word, or only longer ago than the seconds named then."""

    async def aclose(self) -> None:
        """Let go of what the budget holds; it is not used afterwards."""


class Counter(NamedTuple):
    """The article's counter of this moment: its key, its whole window, and the seconds that are left of it."""

    key: str
    window_s: int
    left_s: float


class Read(NamedTuple):
    """What servers answered: the view, and by place in it the server, its content, and when it was looked at."""

    view: View
    servers: list[Server]
    raws: list[Raw]
    looked: list[Looked]


@dataclass(frozen=True, slots=True)
class Decided:
    """An answer, with what it was decided on and what was written."""

    answer: Any
    read: Read
    edits: Edits


class FleetBudget:
    """A ``Budget`` over the stores of servers, by name, in the order of their shares.

    ``clock`` gives seconds that also pass while the machine sleeps, ``rng`` spreads what is tried anew and orders the
    servers. ``counter`` gives the article's counter for strategy ``fixed``. ``pause`` waits for a number of seconds.
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
        self._window_us = terms.window_us
        self._rng = rng
        self._clock = clock
        self._counter = counter
        self._pause = pause
        self._is_watched = self._is_arriving = self._is_unanswered = False
        self._duplicate_until = -1.0
        self.conflicts = 0

    def figures(self) -> dict[str, Figures]:
        """What the cascade thinks of each server."""
        return self._servers.figures()

    # -- what sidecars ask --------------------------------------------------------------------------------------

    async def claim(self, claim: Claim) -> Answer:
        """Granted, denied, or unknown with one of the words in ``core.sentences.UNKNOWN``."""
        return cast("Answer", await self._answer(claim, claim.instance))

    async def retire(self, lease: Lease) -> Answer:
        """As for a claim; asked again under the same holder word it is granted again."""
        return cast("Answer", await self._answer(lease, lease.instance))

    async def resign(self, instance: str, holder: str) -> bool | Unknown:
        """Whether it had been granted, or unknown as for a claim."""
        return cast("bool | Unknown", await self._answer(Resign(instance, holder), instance))

    async def beat(self, beat: Beat) -> Fleet | Unknown:
        """The fleet as those servers know it that answer, or unknown as for a claim."""
        answers = await self._servers.everywhere(partial(self._beat, beat))
        heard = {number: answer for number, answer in answers.items() if not isinstance(answer, Unknown)}
        if not heard:
            self._is_unanswered = True
            return next(answer for answer in answers.values() if isinstance(answer, Unknown))
        readings = {number: reading for number, (reading, _) in heard.items()}
        self._see_duplicate(beat, readings)
        is_new = any(not self._servers.every[number].has_heard for number in heard)
        self._is_arriving = self._is_arriving or (beat.first and self._is_newcomer(beat, readings.values()))
        if is_new or self._is_due(beat, heard):
            readings = await self._attend(beat, readings, is_new=is_new)
        else:
            self._learn(heard)
        fleet = fleet_of(list(readings.values()), self._terms, beat.instance, duplicate=self._is_duplicate())
        away = (
            f"{self._servers.every[number].name}: {answer.error}"
            for number, answer in answers.items()
            if isinstance(answer, Unknown)
        )
        # Losses also of a server that is away: a counter that falls and rises again would tell of a new loss.
        losses = sum(server.epoch.losses for server in self._servers.every)
        return replace(fleet, away=tuple(away), losses=losses)

    # -- what people ask ----------------------------------------------------------------------------------------

    async def hold(self, instance: str, author: str, reason: str, for_s: float) -> Hold | Unknown:
        """The hold as it is now in force, on one server at least, or unknown as for a claim."""
        order = PutHold(instance, author, reason, round(for_s * US_PER_S))
        return cast("Hold | Unknown", await self._answer(order, instance, is_order=True))

    async def release(self, instance: str) -> bool | Unknown:
        """Whether there was a hold, or unknown as for a claim."""
        return cast("bool | Unknown", await self._answer(Release(instance), instance, is_order=True))

    async def roll(self) -> Roll | Unknown:
        """At most a thousand members of the fleet, or unknown as for a claim."""
        answers = await self._servers.everywhere(self._listed)
        known = [(number, answer) for number, answer in answers.items() if not isinstance(answer, Unknown)]
        if not known:
            return next(answer for answer in answers.values() if isinstance(answer, Unknown))
        raws = [raw for _, (raw, _) in known]
        view = view_of([(number, raw) for number, (raw, _) in known], len(self._servers))
        listing = max((listing for _, (_, listing) in known), key=lambda one: len(one.members))
        return members.roll_of(view, raws, listing, self._terms, most=MOST_MEMBERS)

    # -- the ledger ---------------------------------------------------------------------------------------------

    async def note(self, entries: Sequence[Entry]) -> int | Unknown:
        """Write the entries at the first server that answers."""
        return await self._servers.anywhere(lambda server: server.store.note(entries))

    async def entries(self, since: float, after: str, most: int) -> Sequence[Entry] | Unknown:
        """The entries of all servers that answer; an id here tells how far each of them was read."""
        if len(self._servers) == 1:
            return await self._servers.anywhere(lambda server: server.store.entries(since, after, most))
        read = places(after, (server.name for server in self._servers.every))
        answers = await self._servers.everywhere(lambda one: one.store.entries(since, read[one.name], most))
        known = {
            self._servers.every[number].name: page for number, page in answers.items() if not isinstance(page, Unknown)
        }
        if not known:
            return next(answer for answer in answers.values() if isinstance(answer, Unknown))
        return merged_page(known, read, most)

    async def first(self, word: str, for_s: float) -> bool | Unknown:
        """As the first server answers that does."""
        return await self._servers.anywhere(lambda server: server.store.first(word, for_s))

    async def aclose(self) -> None:
        """Close all."""
        await asyncio.gather(*(server.store.aclose() for server in self._servers.every))

    # -- beats --------------------------------------------------------------------------------------------------

    async def _beat(self, beat: Beat, server: Server) -> tuple[Reading, Looked]:
        terms = self._terms
        begin = self._clock()
        heard = await server.store.beat(
            beat, settings=self._settings, window_us=terms.window_us, expiry_us=terms.expiry_us
        )
        return Reading.of(heard), Looked(begin, self._clock())

    def _see_duplicate(self, beat: Beat, readings: Mapping[int, Reading]) -> None:
        """Another life has beaten under our name since we did, at the same server: both are there."""
        for number, reading in readings.items():
            server, former = self._servers.every[number], reading.heard.former
            if former and server.life == beat.incarnation != member_life(former):
                self._duplicate_until = self._clock() + DUPLICATE_BEATS * self._terms.beat_us / US_PER_S
            server.life = beat.incarnation

    def _is_newcomer(self, beat: Beat, readings: Iterable[Reading]) -> bool:
        """Whether nobody was alive under this name before us. Our own row is there if an answer was lost."""
        formers = {member_life(reading.heard.former) for reading in readings if reading.heard.former}
        return not formers or (self._is_unanswered and formers == {beat.incarnation})

    def _is_duplicate(self) -> bool:
        return self._clock() < self._duplicate_until

    def _is_due(self, beat: Beat, heard: Mapping[int, tuple[Reading, Looked]]) -> bool:
        """Whether something has to be decided: also where one server is behind the others."""
        if self._is_watched or self._is_duplicate():
            return True
        readings = [reading for reading, _ in heard.values()]
        if len({reading.state.serial for reading in readings}) > 1:
            return True
        if any(is_hold_lacking([reading.heard.holds[place] for reading in readings]) for place in (0, 1)):
            return True
        return any(
            is_due(reading, beat, self._servers.every[number].known(looked), self._terms)
            for number, (reading, looked) in heard.items()
        )

    async def _attend(self, beat: Beat, readings: Mapping[int, Reading], *, is_new: bool) -> dict[int, Reading]:
        """Decide what a beat found to be due; the answers to the beat, with the state as it is then.

        Where that fails nothing is remembered of the beat: the next one finds the same again.
        """
        struck = tuple({name: None for reading in readings.values() for name in reading.heard.struck})
        largest = max((reading.heard for reading in readings.values()), key=lambda one: one.alive)
        first = self._is_arriving and is_new
        attend = Attend(beat._replace(first=first), struck, largest.silent, largest.alive)
        decided = await self._decided(attend, beat.instance)
        if isinstance(decided, Unknown):
            return dict(readings)
        for number in readings:
            self._servers.every[number].has_heard = True
        self._is_arriving = False
        self._is_watched = decided.answer.is_watched
        read, edits = decided.read, decided.edits
        state = edits.state or read.view.state
        after = dict(readings)
        for place, found in enumerate(read.view.servers):
            if found.number in after:
                epoch = edits.epochs.get(place, found.epoch).shifted(-found.offset_us)
                after[found.number] = Reading(after[found.number].heard, epoch, state.shifted(-found.offset_us))
        return after

    def _learn(self, heard: Mapping[int, tuple[Reading, Looked]]) -> None:
        """Remember what the beat showed, unless a claim that was made meanwhile has shown more."""
        for number, (reading, looked) in heard.items():
            server = self._servers.every[number]
            if server.looked.end < looked.end:
                server.learn(reading.epoch, reading.heard.now_us, looked)

    # -- decisions ----------------------------------------------------------------------------------------------

    async def _answer(self, asked: Asked, instance: str, *, is_order: bool = False) -> Any:
        decided = await self._decided(asked, instance, is_order=is_order)
        return decided if isinstance(decided, Unknown) else decided.answer

    async def _decided(self, asked: Asked, instance: str, *, is_order: bool = False) -> Decided | Unknown:
        """Read, decide and commit until nothing comes between."""
        until, counted = self._clock() + DECISION_LIMIT_S, False
        for attempt in range(MOST_ATTEMPTS):
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
                return self._told(Decided(answer, read, edits), lacking)
            if isinstance(answer, Denied):
                return Decided(answer, read, Edits())  # what could not be written has to be noticed again
            if isinstance(failure, Unknown):
                return failure
            self.conflicts += 1
            if self._clock() >= until:
                break
            await self._pause(self._rng.random() * min(LONGEST_PAUSE_S, FIRST_PAUSE_S * 2**attempt))
        return Unknown("contended")

    def _request(self, asked: Asked, read: Read) -> Request:
        known = tuple(server.known(looked) for server, looked in zip(read.servers, read.looked, strict=True))
        return Request(asked, self._terms, known, is_duplicate=self._is_duplicate())

    def _told(self, decided: Decided, lacking: Sequence[int]) -> Decided:
        """Remember what the exchange showed of the servers, and what was written there: not at those ``lacking``."""
        read = decided.read
        for place, (server, looked) in enumerate(zip(read.servers, read.looked, strict=True)):
            if place in lacking and place in decided.edits.epochs:
                continue
            found = read.view.servers[place]
            epoch = decided.edits.epochs.get(place, found.epoch).shifted(-found.offset_us)
            server.learn(epoch, read.raws[place].now_us, looked)
        return decided

    async def _read(self, instance: str, *, is_order: bool) -> Read | Unknown:
        answers = await self._servers.everywhere(partial(self._look, instance))
        known = {number: answer for number, answer in answers.items() if not isinstance(answer, Unknown)}
        if not known:
            return next(answer for answer in answers.values() if isinstance(answer, Unknown))
        if not (is_majority(known, len(self._servers)) or is_order):
            return Unknown("quorum")
        servers = [server for server in self._servers.preferred() if server.number in known]
        raws = [known[server.number][0] for server in servers]
        view = view_of([(server.number, raw) for server, raw in zip(servers, raws, strict=True)], len(self._servers))
        longest_us = max((terms.window_us for terms in view.settings), default=0)
        if longest_us > self._window_us:  # another sidecar counts by a longer window, of which we have not seen all
            self._window_us = longest_us
            return await self._read(instance, is_order=is_order)
        return Read(view, servers, raws, [known[server.number][1] for server in servers])

    async def _look(self, instance: str, server: Server) -> tuple[Raw, Looked]:
        begin = self._clock()
        raw = await server.store.read(instance, window_us=self._window_us, expiry_us=self._terms.expiry_us)
        return raw, Looked(begin, self._clock())

    async def _counted(self, granted: Granted, edits: Edits, read: Read) -> tuple[Answer, Edits]:
        """Count the claim as the article does, if this sidecar runs with its strategy: the counter decides."""
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
        """Write at every server that answered; None if enough of them took it, an order at one of them.

        Also the places in the view of those that did not take it.
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
        # Where one server met another commit, all is tried anew; else the first failure tells.
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

    async def _listed(self, server: Server) -> tuple[Raw, Listing]:
        terms = self._terms
        raw = await server.store.read("", window_us=terms.window_us, expiry_us=terms.expiry_us)
        return raw, await server.store.members(most=MOST_MEMBERS, since_us=raw.now_us - terms.window_us)


def _with_sync(asked: Asked, read: Read, edits: Edits, commit: str) -> Edits:
    """Bring a server up to date that was away for the last commits or orders, at the next beat.

    A server that is behind gets every decision whole: what one attempt wrote at one server only has to reach the others
    with the next, which may find nothing to change. ``commit`` is the word for this attempt.
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
