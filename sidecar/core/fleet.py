"""The shared bucket in memory: what sidecars and people ask of it, and how it answers.

Its twins are the Lua files of ``sidecar/budget`` that are named for what is asked, ``claim``, ``retire``, ``resign``,
``beat``, ``roll``, ``hold`` and ``release``; ``fleet.lua`` has the answer to a beat, which is ``_fleet`` here. What the
rest of that file does before anything is answered is in ``hearing``.

A claim is decided in this order: hold, replay, lost memory, useless kind, brake and canary, floor, spacing, window;
a retirement in this one: hold, replay, lost memory, culls that others want, brake, floor, slots.
Every answer carries the fleet's numbers, and every refusal the time after which it is worth asking again.

- The *alive* serve or start. The *missing* were culled and are not replaced yet. The two are the fleet.
- Whoever was granted a token, or a lease to go for its age, counts as missing at once, also while its reply is on the
  way or lost: it may go down by a replay at any time within the window. A container that replaced it before that has
  to pass the gates once more.

Times as in ``hearing``.
"""

from __future__ import annotations

from typing import Final

from sidecar.core import members
from sidecar.core.birth import Birth, Mark
from sidecar.core.gates import Gates, Refusal, Spent, Turn
from sidecar.core.grants import RULES, Grants, Usage, renews
from sidecar.core.hearing import Hearing
from sidecar.core.holds import Holds
from sidecar.core.incident import Incident
from sidecar.core.leases import Leases, Slot
from sidecar.core.roster import Roster
from sidecar.core.stream import EventStream
from sidecar.core.terms import Share, Terms
from sidecar.core.trials import Cull, Outcome, Trials
from sidecar.core.words import (
    MOST_DEPARTED,
    MOST_GRANTS,
    US_PER_S,
    Answer,
    Beat,
    Brake,
    Claim,
    Denied,
    Fleet,
    Granted,
    Hold,
    Lease,
    Member,
    Presence,
    Roll,
)

MOST_EVENTS: Final = 10_000


class FleetBucket:
    """What one server knows of one service."""

    def __init__(self) -> None:
        self.roster = Roster()
        self.trials = Trials()
        self.incident = Incident()
        self.grants = Grants()
        self.leases = Leases()
        self.birth = Birth()
        self.holds = Holds()
        self.events = EventStream(MOST_EVENTS)
        rooms = (self.roster, self.trials, self.incident, self.grants, self.leases, self.birth, self.holds)
        self._gates = Gates(*rooms)
        self._hearing = Hearing(*rooms, self.events)

    # -- what sidecars and people ask ---------------------------------------------------------------------------

    def claim(self, terms: Terms, claim: Claim, known: Mark, told_us: int) -> Answer:
        """Answer a claim. Who claims is heard of, and wants."""
        beat = Beat(claim.instance, claim.incarnation, Presence.WANTS, claim.kind)
        turn = self._hearing.hear(terms, beat, known, told_us)
        usage = self._gates.usage(turn)
        is_known = self.grants.holds(claim.claim_id, turn.now_us, turn.limits.window_us)
        cull = self.trials.missing.get(claim.instance)
        is_standing = is_known and cull is not None and cull.is_by(claim.claim_id, is_lease=False)
        refusal = self._gates.held(turn, claim.instance)
        if not is_standing:
            refusal = refusal or self._gates.claim(turn, claim, usage, is_known=is_known)
        if refusal is not None:
            return self._denied(turn, claim.instance, Spent(usage.used, turn.limits.capacity), refusal)
        is_canary = self.incident.brake is Brake.ON and not is_standing
        return self._granted(turn, claim, usage, is_known=is_known, is_canary=is_canary)

    def retire(self, terms: Terms, lease: Lease, known: Mark, told_us: int) -> Answer:
        """Answer who wants to go for its age. It is heard of, and well."""
        beat = Beat(lease.instance, lease.incarnation, Presence.WELL)
        turn = self._hearing.hear(terms, beat, known, told_us)
        spent = Spent(self.leases.used(turn.now_us), Share.read(lease.slots).at_most(self._hearing.fleet))
        is_holder = self.leases.holder(lease.instance) == lease.holder
        is_standing = is_holder and self.trials.is_leased(lease.instance, lease.holder)
        refusal = self._gates.held(turn, lease.instance)
        if not is_standing:
            refusal = refusal or self._gates.retirement(turn, lease, spent)
        if refusal is not None:
            return self._denied(turn, lease.instance, spent, refusal)
        return self._leaves(turn, lease, Spent(spent.used + (not is_holder), spent.capacity), is_standing=is_standing)

    def resign(self, instance: str, holder: str) -> bool:
        """Give a lease back; whether it was this holder's. The container is missing no longer, if it was by that."""
        return any([self.trials.resigned(instance, holder), self.leases.resigned(instance, holder)])

    def beat(self, terms: Terms, beat: Beat, known: Mark, told_us: int) -> Fleet:
        """Take in a sign of life; the answer is the fleet as it is now."""
        turn = self._hearing.hear(terms, beat, known, told_us)
        if beat.about:
            self.roster.tells(beat.instance, beat.about, self.trials.missing)
        return self._fleet(turn, beat.instance)

    def roll(self, terms: Terms, told_us: int, most: int) -> Roll:
        """Show the fleet, at most so many members of it. Nothing is written, and nobody struck off, by looking."""
        turn = self._hearing.listen(terms, told_us)
        now_us = turn.now_us
        oldest_us = now_us - terms.window_us
        used = [at_us for at_us in self.grants.counted() if at_us >= oldest_us]
        return Roll(
            self._fleet(turn, ""),
            len(used),
            tuple(self._member(one, now_us) for one in sorted({*self.roster.alive, *self.trials.missing})[:most]),
            self.holds.every(now_us),
            tuple(sorted(map(str, self._hearing.terms))),
            tuple(at_us / US_PER_S for at_us in used[:MOST_GRANTS]),
            self._departed(now_us, turn.limits.window_us),
        )

    def hold(self, instance: str, author: str, reason: str, for_us: int, told_us: int) -> Hold:
        """Freeze the service, or one instance of it if named."""
        return self.holds.put(instance, author, reason, self._hearing.now_us(told_us) + for_us)

    def release(self, instance: str) -> bool:
        """End a hold, and with that of the service also what the bucket learned of culls that do not help."""
        if not instance:
            self.trials.unhelped.clear()
            self.incident.released()
        return self.holds.release(instance)

    # -- what they are shown --------------------------------------------------------------------------------------

    def _departed(self, now_us: int, window_us: int) -> tuple[tuple[str, float], ...]:
        there = {*self.roster.alive, *self.trials.missing, *self.trials.replaced}
        ones = ((at, one) for one, at in self.roster.departed.items() if one not in there and now_us - at <= window_us)
        return tuple((one, (now_us - at) / US_PER_S) for at, one in sorted(ones, reverse=True)[:MOST_DEPARTED])

    def _member(self, instance: str, now_us: int) -> Member:
        cull, about = self.trials.missing.get(instance), members.unpack(self.roster.about.get(instance, ""))
        if cull is not None:
            return Member(instance, Presence.DOWN, cull.kind, (now_us - cull.at_us) / US_PER_S, about)
        kind = self.roster.kinds.get(instance)
        presence = Presence.WELL if kind is None else Presence.WANTS
        return Member(instance, presence, kind or "", (now_us - self.roster.alive[instance]) / US_PER_S, about)

    def _fleet(self, turn: Turn, instance: str) -> Fleet:
        totals = self.trials.totals
        return Fleet(
            alive=len(self.roster.alive),
            wanting=self.roster.wanting,
            down=len(self.trials.missing),
            brake=self.incident.brake,
            cause=self.roster.cause(),
            policies=len(self._hearing.terms),
            losses=self.birth.losses,
            helped=totals[Outcome.HELPED],
            unhelped=totals[Outcome.UNHELPED],
            unclear=totals[Outcome.UNCLEAR],
            useless=self.trials.useless(turn.limits.useless_after, turn.now_us),
            hold=held[1] if (held := self.holds.on(instance, turn.now_us)) else None,
            retiring=self.leases.used(turn.now_us),
            culls_by=self.trials.tally,
            used=self._gates.usage(turn).used,
            capacity=turn.limits.capacity,
        )

    # -- a claim ------------------------------------------------------------------------------------------------

    def _granted(self, turn: Turn, claim: Claim, usage: Usage, *, is_known: bool, is_canary: bool) -> Granted:
        now_us, rules = turn.now_us, turn.limits
        answer = Granted(
            usage.used + (not is_known),
            rules.capacity,
            replayed=is_known,
            canary=is_canary,
            alive=len(self.roster.alive),
            wanting=self.roster.wanting,
        )
        is_renewed = not is_known or renews(RULES[turn.terms.strategy])
        if is_renewed:
            self.grants.note(claim.claim_id, now_us, rules.window_us)
        if is_canary:
            self.incident.canary_us = now_us
        if not is_known:
            self.birth.granted()
        self._miss(turn, claim, is_renewed=is_renewed)
        return answer

    def _miss(self, turn: Turn, claim: Claim, *, is_renewed: bool) -> None:
        """From now on the container counts as missing, and may not know it yet."""
        cull = self.trials.missing.get(claim.instance)
        occupied_us = turn.now_us + turn.limits.expiry_us
        at_us = turn.now_us if is_renewed or cull is None else cull.at_us
        self.roster.left(claim.instance)
        self.trials.culled(
            claim.instance,
            Cull(claim.claim_id, claim.incarnation, claim.kind, at_us, occupied_us, is_own=True),
        )

    def _denied(self, turn: Turn, instance: str, spent: Spent, refusal: Refusal) -> Denied:
        held = self.holds.on(instance, turn.now_us)
        return Denied(
            refusal.reason,
            spent.used,
            spent.capacity,
            (refusal.wait_us + turn.now_us - turn.told_us) / US_PER_S,
            alive=len(self.roster.alive),
            wanting=self.roster.wanting,
            cause=self.roster.cause(),
            hold=held[1] if refusal.reason == "hold" and held else None,
        )

    # -- a retirement -------------------------------------------------------------------------------------------

    def _leaves(self, turn: Turn, lease: Lease, spent: Spent, *, is_standing: bool) -> Granted:
        now_us, instance = turn.now_us, lease.instance
        until_us = now_us + round(lease.timeout_s * US_PER_S)
        if is_standing:
            until_us = self.leases.slots[instance].until_us
        answer = Granted(
            *spent,
            replayed=is_standing,
            alive=len(self.roster.alive),
            wanting=self.roster.wanting,
            left_s=(until_us - now_us) / US_PER_S,
        )
        if not is_standing:
            self.birth.granted()
            self._hearing.learn_from(turn, self.trials.lost(instance))
        self.leases.granted(instance, Slot(lease.holder, lease.incarnation, until_us), now_us)
        self.roster.left(instance)
        gone = Cull(
            lease.holder,
            lease.incarnation,
            "",
            now_us,
            now_us + turn.limits.expiry_us,
            is_own=True,
            is_lease=True,
        )
        self.trials.culled(instance, gone)
        return answer
