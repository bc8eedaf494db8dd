"""The shared bucket in memory: a bucket that knows its fleet. The Lua in ``sidecar/budget`` is its twin, word for word.

A claim is decided in this order: hold, replay, lost memory, useless kind, brake and canary, floor, spacing, window;
a retirement in this one: hold, replay, lost memory, culls that others want, brake, floor, slots.
Every answer carries the fleet's numbers, and every refusal the time after which it is worth asking again.

- The *alive* serve or start. The *missing* were culled and are not replaced yet. The two are the fleet.
- Whoever was granted a token, or a lease to go for its age, counts as missing at once, also while its reply is on the
  way or lost: it may go down by a replay at any time within the window. A container that replaced it before that has
  to pass the gates once more.

Times are microseconds of the server's clock; one that steps back is read as standing still at the newest grant.
"""

from __future__ import annotations

from typing import Final

from sidecar.core import members
from sidecar.core.birth import Birth, Mark
from sidecar.core.gates import Gates, Refusal, Spent, Turn
from sidecar.core.grants import RULES, Grants, Usage, renews
from sidecar.core.holds import Holds
from sidecar.core.incident import Incident
from sidecar.core.leases import Leases, Slot
from sidecar.core.roster import Roster
from sidecar.core.stream import EventStream
from sidecar.core.strictest import limits
from sidecar.core.terms import Share, Terms
from sidecar.core.trials import Cull, Judged, Outcome, Replaced, Trials
from sidecar.core.words import (
    MOST_DEPARTED,
    MOST_GRANTS,
    US_PER_S,
    Answer,
    Beat,
    Brake,
    Claim,
    Denied,
    Entry,
    Fleet,
    Granted,
    Hold,
    Lease,
    Member,
    Presence,
    Roll,
)

MINUTE_US: Final = 60 * US_PER_S
MOST_EVENTS: Final = 10_000
UNKNOWN: Final = "unknown"


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
        self._gates = Gates(self.roster, self.trials, self.incident, self.grants, self.leases, self.birth, self.holds)
        self._terms: dict[Terms, int] = {}
        self._several_us = 0

    # -- what sidecars and people ask ---------------------------------------------------------------------------

    def claim(self, terms: Terms, claim: Claim, known: Mark, told_us: int) -> Answer:
        """Answer a claim. Who claims is heard of, and wants."""
        beat = Beat(claim.instance, claim.incarnation, Presence.WANTS, claim.kind)
        turn = self._heard(terms, beat, known, told_us)
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
        turn = self._heard(terms, beat, known, told_us)
        spent = Spent(
            self.leases.used(turn.now_us),
            Share.read(lease.slots).at_most(len(self.roster.alive) + len(self.trials.missing)),
        )
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
        turn = self._heard(terms, beat, known, told_us)
        if beat.about:
            self.roster.tells(beat.instance, beat.about, self.trials.missing)
        return self._fleet(turn, beat.instance)

    def roll(self, terms: Terms, told_us: int, most: int) -> Roll:
        """Show the fleet, at most so many members of it. Nothing is written, and nobody struck off, by looking."""
        now_us = self._now_us(told_us)
        fleet = len(self.roster.alive) + len(self.trials.missing)
        turn = Turn(terms, limits([*self._terms, terms], fleet), now_us, told_us)
        oldest_us = now_us - terms.window_us
        used = [at_us for at_us in self.grants.counted() if at_us >= oldest_us]
        return Roll(
            self._fleet(turn, ""),
            len(used),
            tuple(self._member(one, now_us) for one in sorted({*self.roster.alive, *self.trials.missing})[:most]),
            self.holds.every(now_us),
            tuple(sorted(map(str, self._terms))),
            tuple(at_us / US_PER_S for at_us in used[:MOST_GRANTS]),
            self._departed(now_us, turn.limits.window_us),
        )

    def hold(self, instance: str, author: str, reason: str, for_us: int, told_us: int) -> Hold:
        """Freeze the service, or one instance of it if named."""
        return self.holds.put(instance, author, reason, self._now_us(told_us) + for_us)

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
            policies=len(self._terms),
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

    # -- every call ---------------------------------------------------------------------------------------------

    def _now_us(self, told_us: int) -> int:
        return max(told_us, self.grants.newest_us, self.leases.newest_us)

    def _heard(self, terms: Terms, beat: Beat, known: Mark, told_us: int) -> Turn:
        now_us = self._now_us(told_us)
        self.birth.recognise(known, now_us)
        self._terms[terms] = now_us
        self._terms = {one: at for one, at in self._terms.items() if now_us - at <= one.expiry_us}
        turn = Turn(terms, limits(self._terms, 0), now_us, told_us)
        if turn.limits.earned < 0:
            self.grants.unearn()
        self._strike_off(turn)
        self._take_in(turn, beat)
        fleet = len(self.roster.alive) + len(self.trials.missing)
        if fleet > 1 and now_us - self._several_us >= MINUTE_US:
            self._several_us = now_us
        rules = turn.limits
        self.incident.look(len(self.roster.alive), self.roster.wanting, now_us, rules.brake, rules.probation_us)
        return Turn(terms, limits(self._terms, fleet), now_us, told_us, now_us - self._several_us)

    def _strike_off(self, turn: Turn) -> None:
        alive = self.roster.alive
        silent = sorted(self.roster.silent(turn.now_us, turn.limits.expiry_us), key=lambda one: (alive[one], one))
        if silent and len(silent) * 2 >= len(alive):
            self.birth.gathers(turn.now_us)
        for instance in silent:
            self.roster.departs(instance, turn.now_us, turn.limits.window_us)
            self._learn(turn, self.trials.lost(instance))
        for given_up in self.trials.expire(turn.now_us, turn.limits.window_us):
            self._judged(turn, given_up, "not_replaced")
        self.leases.expire(turn.now_us)
        self.holds.strike_off(turn.now_us)

    def _take_in(self, turn: Turn, beat: Beat) -> None:
        instance, now_us, presence = beat.instance, turn.now_us, beat.presence
        if presence is Presence.GONE:
            self.roster.departs(instance, now_us, turn.limits.window_us)
            self._learn(turn, self.trials.is_gone(instance))
            return
        wants = presence is Presence.WANTS
        if wants:
            self.trials.suffered(beat.kind, now_us)
        if presence is Presence.DOWN:
            self._is_down(turn, beat)
            return
        if self.trials.is_still_missing(instance, beat.incarnation, now_us + turn.limits.expiry_us):
            self.roster.left(instance)
            return
        is_known = instance in self.trials.replaced or self.roster.is_known(instance, now_us, turn.limits.window_us)
        is_newcomer = beat.first and not is_known and not self.leases.holder(instance)
        replaced = self.trials.arrived(instance, beat.incarnation, now_us, is_newcomer=is_newcomer)
        if replaced is not None:
            self._replaced(turn, replaced, instance)
        if presence is Presence.WELL:
            self.leases.is_well(instance, beat.incarnation)
        self._watch(turn, beat, wants=wants)
        self.roster.heard(instance, now_us, beat.kind if wants else None)

    def _is_down(self, turn: Turn, beat: Beat) -> None:
        instance, now_us, is_lease = beat.instance, turn.now_us, bool(beat.lease)
        self.roster.left(instance)
        if is_lease:
            self._learn(turn, self.trials.lost(instance))
        else:
            self._watch(turn, beat, wants=True)
        heard = Cull(
            beat.lease or beat.claim_id,
            beat.incarnation,
            "" if is_lease else beat.kind,
            now_us,
            now_us + turn.limits.expiry_us,
            is_own=False,
            is_lease=is_lease,
        )
        if self.trials.is_down(instance, heard) and is_lease and turn.terms.index == 0:
            # When it was granted, and for how long, is forgotten; a window is how long all else is remembered.
            self.leases.down(instance, Slot(beat.lease, beat.incarnation, now_us + turn.limits.window_us))

    def _watch(self, turn: Turn, beat: Beat, *, wants: bool) -> None:
        starting = beat.presence is Presence.STARTING
        judged = self.trials.watch(
            beat.instance, beat.incarnation, turn.now_us, turn.limits.probation_us, wants=wants, starting=starting
        )
        self._learn(turn, judged)

    def _learn(self, turn: Turn, judged: Judged | None) -> None:
        if judged is None:
            return
        self._judged(turn, judged)
        self.trials.learn(judged, turn.now_us, is_braked=self.incident.brake in (Brake.ON, Brake.CLOSED))
        if judged.outcome is not Outcome.UNCLEAR:
            self.incident.judged(judged.culled_us, helped=judged.outcome is Outcome.HELPED)
        if judged.outcome is Outcome.HELPED and turn.limits.earned >= 0:
            self.grants.earn(judged.claim_id)

    # -- what nobody else knows ---------------------------------------------------------------------------------

    def _replaced(self, turn: Turn, replaced: Replaced, by: str) -> None:
        place, cull = replaced
        self.leases.arrived(place, by)
        kind = "" if cull.is_lease else cull.kind or UNKNOWN
        entry = Entry("replaced", 0.0, place, kind, by if by != place else "")
        self._tell(turn, entry, cull.at_us, is_own=cull.is_own)

    def _judged(self, turn: Turn, judged: Judged, reason: str = "") -> None:
        entry = Entry(judged.outcome.value, 0.0, judged.instance, judged.kind or UNKNOWN, reason)
        self._tell(turn, entry, judged.culled_us, is_own=judged.is_own)

    def _tell(self, turn: Turn, entry: Entry, since_us: int, *, is_own: bool) -> None:
        """Write down what became of a cull. Of several servers the one does that granted it."""
        if is_own or turn.terms.servers == 1:
            seconds = round(max(0, turn.now_us - since_us) / US_PER_S, 3)
            self.events.append(entry._replace(seconds=seconds), turn.told_us)

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
            self._learn(turn, self.trials.lost(instance))
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
