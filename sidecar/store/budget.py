"""The budget of the fleet: requests of sidecars and operators to the shared store, decided by ``core.fleet``.

A decision reads the store, asks the rules, and commits what they say. After a conflict with another commit it begins
again with the read, a bounded number of times. It does not repeat a request whose answer was lost: the sidecar claims
again with the same claim id, and gets the same grant.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Sequence
from random import Random
from typing import Any, Final, NamedTuple, TypeVar, cast

from sidecar.core.claims import Answer, Beat, Claim, Denied, Fleet, Granted, GrantRequest, LeaseRequest, Unknown
from sidecar.core.fleet import members
from sidecar.core.fleet.decide import decide, is_due
from sidecar.core.fleet.fleet_events import fleet_of
from sidecar.core.fleet.fleet_settings import FleetSettings
from sidecar.core.fleet.members import Member, MemberList
from sidecar.core.fleet.view import (
    Asked,
    BeatReply,
    Edits,
    EndHold,
    Listing,
    PutHold,
    Request,
    ReturnGrant,
    View,
)
from sidecar.core.types import US_PER_S, Entry, Hold
from sidecar.store.holds import LocalHolds
from sidecar.store.own_beats import OwnBeats, StoreExchange
from sidecar.store.protocol import Conflict, Over, Store, StoreError

T = TypeVar("T")

MAX_ATTEMPTS: Final = 30
FIRST_PAUSE_S: Final = 0.01
MAX_PAUSE_S: Final = 0.2
DECISION_LIMIT_S: Final = 5.0
"""Maximum time of a decision with conflicts."""

MAX_MEMBERS: Final = 2000
"""Maximum number of members in a list for an operator."""

FEW_MEMBERS: Final = 100
"""So many members are read in less than a millisecond: health answers wait no longer."""


class Counter(NamedTuple):
    """The article's counter now: its key, its window, and the rest of the window in seconds."""

    key: str
    window_s: int
    left_s: float


class Decided(NamedTuple):
    """An answer, with the view that it is based on and the edits that were written."""

    answer: Any
    view: View
    edits: Edits


class FleetBudget:
    """The requests of one sidecar and its operators to the fleet. Failures are values; only cancellation is raised.

    ``clock`` gives seconds that also pass while the machine sleeps, ``wall`` Unix seconds. ``rng`` spreads retries.
    ``counter`` gives the article's counter for strategy ``fixed``. ``pause`` waits for a number of seconds.
    ``instance`` is the container of this sidecar. ``other()`` makes the budget of the containers of this service in the
    other mode (shadow or enforce): an order reaches both budgets, or is ``Unknown``.
    """

    def __init__(
        self,
        store: Store,
        settings: FleetSettings,
        *,
        rng: Random,
        clock: Callable[[], float],
        wall: Callable[[], float] = time.time,
        counter: Callable[[], Counter] | None = None,
        pause: Callable[[float], Awaitable[object]] = asyncio.sleep,
        instance: str = "",
        other: Callable[[], FleetBudget] | None = None,
    ) -> None:
        self.store = store
        self.local_holds = LocalHolds(wall, instance)
        self._settings = settings
        self._settings_text = settings.dump()
        self._window_us = settings.window_us
        self._rng = rng
        self._clock = clock
        self._counter = counter
        self._pause = pause
        self._other = other
        self._own = OwnBeats(settings, clock)
        self._last = StoreExchange()

    # -- for the sidecar ----------------------------------------------------------------------------------------

    async def claim(self, claim: Claim) -> Answer:
        """Ask for a token; an id that was granted before is granted again and costs nothing.

        Unknown has one of the words in ``core.explain.words.FAILURES``. A local hold denies, also one that began
        during the claim.
        """
        return await self._unless_held(claim)

    async def retire(self, lease: LeaseRequest) -> Answer:
        """Ask for a lease to retire, as ``claim``; the same holder is granted again. It costs no token."""
        return await self._unless_held(lease)

    async def give_back(self, instance: str, holder: str) -> bool | Unknown:
        """Give back the lease of this holder, or the token of this claim id; whether it was granted."""
        return cast("bool | Unknown", await self._answer(ReturnGrant(instance, holder)))

    async def beat(self, beat: Beat) -> Fleet | Unknown:
        """Report the state of the container to the fleet; the state of the fleet, with the local hold if no other."""
        begin, settings = self._clock(), self._settings
        windows = {"window_us": settings.window_us, "expiry_us": settings.expiry_us}
        reply = await _clear(self.store.beat(beat, settings=self._settings_text, **windows))
        if isinstance(reply, Unknown):
            self._own.unanswered()
            return reply
        exchange = StoreExchange(begin, self._clock(), reply.now_us, reply.epoch)
        self._own.take(beat, reply)
        if self._own.is_due() or is_due(reply, beat, self._last.known_at(exchange), settings):
            reply = await self._attend(beat, reply)
        else:
            self._last = exchange
        fleet = fleet_of(reply, settings, beat.instance, duplicate=self._own.is_duplicate)
        return fleet._replace(hold=fleet.hold or self.local_holds.in_force, lost_hold=self._own.holds.lost)

    # -- for operators ------------------------------------------------------------------------------------------

    async def hold(self, instance: str, author: str, reason: str, for_s: float) -> Hold | Unknown:
        """Freeze the service, or the named instance, for ``for_s`` seconds.

        Without a clear answer of the store this sidecar holds by itself, if the order covers it. The local hold begins
        before the request, so that it counts also while the store hangs.
        """
        local_hold = self.local_holds.begin(instance, author, reason, for_s)
        order = PutHold(instance, author, reason, round(for_s * US_PER_S))
        answer: Hold | Unknown = await self._both(order, lambda other: other.hold(instance, author, reason, for_s))
        if isinstance(answer, Hold):
            self._own.holds.put(answer, order.for_us)
            # Another sidecar may release the stored hold, which would not end the local one.
            self.local_holds.end(local_hold)
        return answer

    async def release(self, instance: str) -> bool | Unknown:
        """End a hold; whether there was one, local or stored. The local hold ends also when the answer is unknown."""
        local_hold = self.local_holds.of(instance)
        self.local_holds.end(local_hold)
        released: bool | Unknown = await self._both(EndHold(instance), lambda other: other.release(instance))
        return released if isinstance(released, Unknown) else released or local_hold is not None

    async def member_list(self) -> MemberList | Unknown:
        """At most ``MAX_MEMBERS`` members of the fleet, for an operator."""
        read = await _clear(self._listed())
        if isinstance(read, Unknown):
            return read
        (view, listing), present = read, dict[str, Member]()
        for begin in range(0, len(listing.members), FEW_MEMBERS):
            present |= members.present(view, listing.members[begin : begin + FEW_MEMBERS])
            await asyncio.sleep(0)  # health answers go between
        member_list = members.member_list_of(view, listing, present, self._settings, most=MAX_MEMBERS)
        fleet = member_list.fleet._replace(duplicate=self._own.is_duplicate, lost_hold=self._own.holds.lost)
        return member_list._replace(fleet=fleet)

    # -- the ledger ---------------------------------------------------------------------------------------------

    async def note(self, entries: Sequence[Entry]) -> int | Unknown:
        """Write entries into the ledger; how many were new. An entry that is sent again is written once."""
        return await _clear(self.store.note(entries))

    async def entries(self, since: float, after: str, most: int) -> Sequence[Entry] | Unknown:
        """At most ``most`` entries of the ledger, written since (Unix seconds) and after that id; none: the end."""
        return await _clear(self.store.entries(since, after, most))

    async def first(self, word: str, for_s: float) -> bool | Unknown:
        """Whether this is the first call with ``word`` in the fleet within the ``for_s`` of the earlier call."""
        return await _clear(self.store.first(word, for_s))

    async def aclose(self) -> None:
        """Close the connection; the budget is not used afterwards."""
        await self.store.aclose()

    # -- decisions ----------------------------------------------------------------------------------------------

    async def _unless_held(self, asked: GrantRequest) -> Answer:
        answer: Answer = self.local_holds.refusal() or await self._answer(asked)
        return self.local_holds.refusal() or answer

    async def _answer(self, asked: GrantRequest | ReturnGrant | PutHold | EndHold) -> Any:
        decided = await _clear(self._decide(asked, asked.instance))
        return decided if isinstance(decided, Unknown) else decided.answer

    async def _both(self, order: PutHold | EndHold, by_other: Callable[[FleetBudget], Awaitable[Any]]) -> Any:
        """The answer of both budgets to an order: unknown if either is, else the first that is not false."""
        own = self._answer(order)
        if self._other is None:
            return await own
        other = self._other()
        try:
            answer, other_answer = await asyncio.gather(own, by_other(other))
        finally:
            await other.aclose()
        return other_answer if isinstance(other_answer, Unknown) else answer or other_answer

    async def _attend(self, beat: Beat, reply: BeatReply) -> BeatReply:
        """Decide what a beat found to be due; the answer to the beat, with the state after the decision."""
        attend = self._own.attend(beat, reply)
        decided = await _clear(self._decide(attend, beat.instance))
        if isinstance(decided, Unknown):
            return reply
        self._own.attended(decided.answer)
        view, edits = decided.view, decided.edits
        return reply._replace(epoch=edits.epoch or view.epoch, state=edits.state or view.state)

    async def _decide(self, asked: Asked, instance: str) -> Decided:
        """Read, decide and commit, until no other commit conflicts. Raises StoreError."""
        until, is_counted = self._clock() + DECISION_LIMIT_S, False
        for attempt in range(MAX_ATTEMPTS):
            view, exchange = await self._read(instance)
            known = self._last.known_at(exchange)
            answer, edits = decide(view, Request(asked, self._settings, known, is_duplicate=self._own.is_duplicate))
            if isinstance(asked, Claim) and isinstance(answer, Granted) and not (answer.replayed or is_counted):
                answer, edits = await self._counted(answer, edits)
                is_counted = True
            try:
                if edits:
                    await self.store.commit(view.revision, edits)
            except (Conflict, Over, StoreError) as failure:
                if isinstance(answer, Denied):
                    return Decided(answer, view, Edits())  # the next decision makes the same edits
                if isinstance(failure, StoreError):
                    raise
            else:
                self._last = exchange._replace(epoch=edits.epoch or view.epoch)
                return Decided(answer, view, edits)
            if self._clock() >= until:
                break
            await self._pause(self._rng.random() * min(MAX_PAUSE_S, FIRST_PAUSE_S * 2**attempt))
        raise StoreError("contended")

    async def _read(self, instance: str) -> tuple[View, StoreExchange]:
        begin = self._clock()
        view = await self.store.read(instance, window_us=self._window_us, expiry_us=self._settings.expiry_us)
        exchange = StoreExchange(begin, self._clock(), view.now_us, view.epoch)
        longest_us = max((settings.window_us for settings in view.settings), default=0)
        if longest_us <= self._window_us:
            return view, exchange
        self._window_us = longest_us  # another sidecar has a longer window, which this read did not cover
        return await self._read(instance)

    async def _listed(self) -> tuple[View, Listing]:
        settings = self._settings
        view = await self.store.read("", window_us=settings.window_us, expiry_us=settings.expiry_us)
        return view, await self.store.members(most=MAX_MEMBERS, since_us=view.now_us - settings.window_us)

    async def _counted(self, granted: Granted, edits: Edits) -> tuple[Answer, Edits]:
        """Let the article's counter decide, if this sidecar runs with its strategy."""
        if self._counter is None:
            return granted, edits
        counter = self._counter()
        used = await self.store.count(counter.key, counter.window_s)
        if used <= granted.capacity:
            return granted._replace(used=used), edits
        denied = Denied("window", used, granted.capacity, counter.left_s, alive=granted.alive, suspect=granted.suspect)
        return denied, Edits()


async def _clear(request: Awaitable[T]) -> T | Unknown:
    """The answer of the store; Unknown with the machine word for a failure."""
    try:
        return await request
    except StoreError as error:
        return Unknown(error.word, error.said)
    except Exception:  # noqa: BLE001 - no failure of a store is an exception for a caller of the budget
        return Unknown("internal")
