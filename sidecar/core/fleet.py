"""The shared bucket in memory: a bucket that knows its fleet. The Lua in ``sidecar/budget`` is its twin, word for word.

A claim is decided in this order: hold, replay, lost memory, useless kind, brake and canary, floor, spacing, window.
Every answer carries the fleet's numbers, and every refusal the time after which it is worth asking again.

- The *alive* serve or start. The *missing* were culled and are not replaced yet. The two are the fleet.
- Whoever was granted a token counts as missing at once, also while its reply is on the way or lost: it may go down
  by a replay at any time within the window. A container that replaced it before that has to pass the gates once more.

Times are microseconds of the server's clock; one that steps back is read as standing still at the newest grant.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, NamedTuple

from sidecar.core.birth import Birth, Mark
from sidecar.core.grants import RULES, Grants, Quota, Usage, renews, spaced
from sidecar.core.holds import Holds
from sidecar.core.incident import Incident
from sidecar.core.roster import Roster
from sidecar.core.strictest import Limits, limits, split
from sidecar.core.terms import Terms
from sidecar.core.trials import Cull, Judged, Outcome, Trials
from sidecar.core.words import (
    US_PER_S,
    Answer,
    Beat,
    Brake,
    Claim,
    Denied,
    Fleet,
    Granted,
    Hold,
    Member,
    Presence,
    Roll,
)

HOUR_US: Final = 3600 * US_PER_S
MINUTE_US: Final = 60 * US_PER_S


class Refusal(NamedTuple):
    """Why there is no token: the machine's word, and the microseconds after which to ask again."""

    reason: str
    wait_us: int


@dataclass(frozen=True, slots=True)
class Turn:
    """One call on the bucket: by whose terms, under which limits, and when; ``told_us`` is what the clock says."""

    terms: Terms
    limits: Limits
    now_us: int
    told_us: int


class FleetBucket:
    """What one server knows of one service."""

    def __init__(self) -> None:
        self.roster = Roster()
        self.trials = Trials()
        self.incident = Incident()
        self.grants = Grants()
        self.birth = Birth()
        self.holds = Holds()
        self._terms: dict[Terms, int] = {}
        self._several_us = 0

    # -- what sidecars and people ask ---------------------------------------------------------------------------

    def claim(self, terms: Terms, claim: Claim, known: Mark, told_us: int) -> Answer:
        """Answer a claim. Who claims is heard of, and wants."""
        beat = Beat(claim.instance, claim.incarnation, Presence.WANTS, claim.kind)
        turn = self._heard(terms, beat, known, told_us)
        usage = self._usage(turn)
        is_known = self.grants.holds(claim.claim_id, turn.now_us, turn.limits.window_us)
        cull = self.trials.missing.get(claim.instance)
        is_standing = is_known and cull is not None and cull.claim_id == claim.claim_id
        refusal = self._held(turn, claim.instance)
        if not is_standing:
            refusal = refusal or self._refusal(turn, claim, usage, is_known=is_known)
        if refusal is not None:
            return self._denied(turn, claim, usage, refusal)
        is_canary = self.incident.brake is Brake.ON and not is_standing
        return self._granted(turn, claim, usage, is_known=is_known, is_canary=is_canary)

    def beat(self, terms: Terms, beat: Beat, known: Mark, told_us: int) -> Fleet:
        """Take in a sign of life; the answer is the fleet as it is now."""
        turn = self._heard(terms, beat, known, told_us)
        return self._fleet(turn, beat.instance)

    def roll(self, terms: Terms, told_us: int, most: int) -> Roll:
        """Show the fleet, at most so many members of it. Nothing is written, and nobody struck off, by looking."""
        now_us = max(told_us, self.grants.newest_us)
        turn = Turn(terms, limits([*self._terms, terms], 0), now_us, told_us)
        oldest_us = now_us - terms.window_us
        return Roll(
            self._fleet(turn, ""),
            sum(at_us >= oldest_us for at_us in self.grants.counted()),
            tuple(self._member(one, now_us) for one in sorted({*self.roster.alive, *self.trials.missing})[:most]),
            self.holds.every(now_us),
            tuple(sorted(map(str, self._terms))),
        )

    def _member(self, instance: str, now_us: int) -> Member:
        cull = self.trials.missing.get(instance)
        if cull is not None:
            return Member(instance, Presence.DOWN, cull.kind, (now_us - cull.at_us) / US_PER_S)
        kind = self.roster.kinds.get(instance)
        presence = Presence.WELL if kind is None else Presence.WANTS
        return Member(instance, presence, kind or "", (now_us - self.roster.alive[instance]) / US_PER_S)

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
        )

    def hold(self, instance: str, author: str, reason: str, for_us: int, told_us: int) -> Hold:
        """Freeze the service, or one instance of it if named."""
        return self.holds.put(instance, author, reason, max(told_us, self.grants.newest_us) + for_us)

    def release(self, instance: str) -> bool:
        """End a hold, and with that of the service also what the bucket learned of culls that do not help."""
        if not instance:
            self.trials.unhelped.clear()
            self.incident.released()
        return self.holds.release(instance)

    # -- every call ---------------------------------------------------------------------------------------------

    def _heard(self, terms: Terms, beat: Beat, known: Mark, told_us: int) -> Turn:
        now_us = max(told_us, self.grants.newest_us)
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
        return Turn(terms, limits(self._terms, fleet), now_us, told_us)

    def _strike_off(self, turn: Turn) -> None:
        silent = self.roster.silent(turn.now_us, turn.limits.expiry_us)
        if silent and len(silent) * 2 >= len(self.roster.alive):
            self.birth.gathers(turn.now_us)
        for instance in silent:
            self.roster.departs(instance, turn.now_us, turn.limits.window_us)
            self._learn(turn, self.trials.lost(instance))
        self.trials.expire(turn.now_us, turn.limits.window_us)
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
            self.roster.left(instance)
            self._watch(turn, beat, wants=True)
            occupied_us = now_us + turn.limits.expiry_us
            heard = Cull(beat.claim_id, beat.incarnation, beat.kind, now_us, occupied_us, is_own=False)
            self.trials.is_down(instance, heard)
            return
        if self.trials.is_still_missing(instance, beat.incarnation, now_us + turn.limits.expiry_us):
            self.roster.left(instance)
            return
        is_known = instance in self.trials.replaced or self.roster.is_known(instance, now_us, turn.limits.window_us)
        is_newcomer = beat.first and not is_known
        self.trials.arrived(instance, beat.incarnation, now_us, is_newcomer=is_newcomer)
        self._watch(turn, beat, wants=wants)
        self.roster.heard(instance, now_us, beat.kind if wants else None)

    def _watch(self, turn: Turn, beat: Beat, *, wants: bool) -> None:
        starting = beat.presence is Presence.STARTING
        judged = self.trials.watch(
            beat.instance, beat.incarnation, turn.now_us, turn.limits.probation_us, wants=wants, starting=starting
        )
        self._learn(turn, judged)

    def _learn(self, turn: Turn, judged: Judged | None) -> None:
        if judged is None:
            return
        self.trials.learn(judged, turn.now_us, is_braked=self.incident.brake in (Brake.ON, Brake.CLOSED))
        if judged.outcome is not Outcome.UNCLEAR:
            self.incident.judged(judged.culled_us, helped=judged.outcome is Outcome.HELPED)
        if judged.outcome is Outcome.HELPED and turn.limits.earned >= 0:
            self.grants.earn(judged.claim_id)

    # -- a claim ------------------------------------------------------------------------------------------------

    def _refusal(self, turn: Turn, claim: Claim, usage: Usage, *, is_known: bool) -> Refusal | None:
        """The first of the gates that is shut."""
        return (
            self._memory(turn)
            or self._useless(turn, claim.kind)
            or self._brake(turn)
            or self._floor(turn, claim.instance)
            or (None if is_known else self._pace(turn, usage))
        )

    def _held(self, turn: Turn, instance: str) -> Refusal | None:
        held = self.holds.on(instance, turn.now_us)
        return Refusal("hold", held[0] - turn.now_us) if held else None

    def _memory(self, turn: Turn) -> Refusal | None:
        """No tokens for a window after a loss, nor before a loss could have been noticed."""
        if not turn.limits.lost_is_empty:
            return None
        if wait_us := self.birth.lost_wait_us(turn.now_us, turn.limits.window_us):
            return Refusal("lost_memory", wait_us)
        wait_us = self.birth.newborn_wait_us(turn.now_us, turn.limits.expiry_us)
        return Refusal("newborn", wait_us) if wait_us else None

    def _useless(self, turn: Turn, kind: str) -> Refusal | None:
        is_useless = kind in self.trials.useless(turn.limits.useless_after, turn.now_us)
        return Refusal("useless", HOUR_US) if is_useless else None

    def _brake(self, turn: Turn) -> Refusal | None:
        if self.incident.may_cull(turn.now_us, turn.limits.window_us, turn.terms.index):
            return None
        return Refusal("brake", turn.terms.beat_us)

    def _floor(self, turn: Turn, instance: str) -> Refusal | None:
        """The fleet after the cull; a service that had one member for the past hour may lose it."""
        missing = len(self.trials.missing)
        after = len(self.roster.alive) - (instance in self.roster.alive)
        if missing + len(self.roster.alive) == 1 and self._was_single_for(turn.now_us) >= HOUR_US:
            return None if split(1, turn.terms.index, turn.terms.servers) else Refusal("share", turn.terms.beat_us)
        if after < turn.limits.floor:
            return Refusal("floor" if after else "last", turn.terms.beat_us)
        return Refusal("share", turn.terms.beat_us) if self.trials.own >= turn.limits.gone else None

    def _was_single_for(self, now_us: int) -> int:
        return now_us - max(self.birth.mark.born_us, self._several_us)

    def _pace(self, turn: Turn, usage: Usage) -> Refusal | None:
        if wait_us := spaced(self.grants.newest_us, turn.now_us, turn.limits.spacing_us):
            return Refusal("spacing", wait_us)
        if usage.wait_us:
            return Refusal("window", usage.wait_us)
        if turn.limits.earned < 0:
            return None
        most = _usage(turn, self.grants.every(), "log", turn.limits.earned)
        return Refusal("earn_max", most.wait_us) if most.wait_us else None

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

    def _denied(self, turn: Turn, claim: Claim, usage: Usage, refusal: Refusal) -> Denied:
        held = self.holds.on(claim.instance, turn.now_us)
        return Denied(
            refusal.reason,
            usage.used,
            turn.limits.capacity,
            (refusal.wait_us + turn.now_us - turn.told_us) / US_PER_S,
            alive=len(self.roster.alive),
            wanting=self.roster.wanting,
            cause=self.roster.cause(),
            hold=held[1] if refusal.reason == "hold" and held else None,
        )

    def _usage(self, turn: Turn) -> Usage:
        return _usage(turn, self.grants.counted(), turn.terms.strategy, turn.limits.capacity)


def _usage(turn: Turn, times: list[int], strategy: str, capacity: int) -> Usage:
    """As the rule says; a server whose share is nothing has no token ever."""
    window_us = turn.limits.window_us
    used = RULES[strategy](times, turn.now_us, Quota(max(1, capacity), window_us))
    return used if capacity else Usage(used.used, window_us)
