"""What every claim and every beat does to the fleet before it is answered: the twin of ``sidecar/budget/fleet.lua``.

Who asks is heard of and whoever fell silent is struck off, what became of culls is learned and told, and the brake
looks at how many suffer. The functions are called as in the Lua: hear, strike off, take in, go down, learn. What is
asked, and how it is answered, is the matter of ``fleet``.

Times are microseconds of the server's clock; one that steps back is read as standing still at the newest grant.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Final

from sidecar.core.birth import Birth, Mark
from sidecar.core.gates import Turn
from sidecar.core.grants import Grants
from sidecar.core.holds import Holds
from sidecar.core.incident import Incident
from sidecar.core.leases import Leases, Slot
from sidecar.core.roster import Roster
from sidecar.core.stream import EventStream
from sidecar.core.strictest import limits
from sidecar.core.terms import Terms
from sidecar.core.trials import Cull, Judged, Outcome, Replaced, Trials
from sidecar.core.words import US_PER_S, Beat, Brake, Entry, Presence

MINUTE_US: Final = 60 * US_PER_S
UNKNOWN: Final = "unknown"


@dataclass(slots=True)
class Hearing:
    """How one bucket hears of its fleet; what it learns goes into the rooms of the bucket, which it is handed.

    ``terms``: those that sidecars run with, and when they were last heard. ``several_us``: when the fleet last had
    several members, to the minute.
    """

    roster: Roster
    trials: Trials
    incident: Incident
    grants: Grants
    leases: Leases
    birth: Birth
    holds: Holds
    events: EventStream
    terms: dict[Terms, int] = field(default_factory=dict)
    several_us: int = 0

    @property
    def fleet(self) -> int:
        """How many the fleet are: the alive and the missing."""
        return len(self.roster.alive) + len(self.trials.missing)

    def now_us(self, told_us: int) -> int:
        """The time of a call, by what the clock says."""
        return max(told_us, self.grants.newest_us, self.leases.newest_us)

    def hear(self, terms: Terms, beat: Beat, known: Mark, told_us: int) -> Turn:
        """Take in a sign of life from who knows this birth mark; the turn in which it is answered."""
        now_us = self.now_us(told_us)
        self.birth.recognise(known, now_us)
        self.terms[terms] = now_us
        self.terms = {one: at for one, at in self.terms.items() if now_us - at <= one.expiry_us}
        turn = Turn(terms, limits(self.terms, 0), now_us, told_us)
        rules = turn.limits
        if rules.earned < 0:
            self.grants.unearn()
        self._strike_off(turn)
        self._take_in(turn, beat)
        if self.fleet > 1 and now_us - self.several_us >= MINUTE_US:
            self.several_us = now_us
        self.incident.look(len(self.roster.alive), self.roster.wanting, now_us, rules.brake, rules.probation_us)
        return self._turn(terms, self.terms, now_us, told_us)

    def listen(self, terms: Terms, told_us: int) -> Turn:
        """The turn of who only looks, of whom nothing is heard."""
        return self._turn(terms, [*self.terms, terms], self.now_us(told_us), told_us)

    def learn_from(self, turn: Turn, judged: Judged | None) -> None:
        """Learn from a trial that is over, if it is, whether culls help."""
        if judged is None:
            return
        self._tell_judged(turn, judged)
        self.trials.learn(judged, turn.now_us, is_braked=self.incident.brake in (Brake.ON, Brake.CLOSED))
        if judged.outcome is not Outcome.UNCLEAR:
            self.incident.judged(judged.culled_us, helped=judged.outcome is Outcome.HELPED)
        if judged.outcome is Outcome.HELPED and turn.limits.earned >= 0:
            self.grants.earn(judged.claim_id)

    def _turn(self, terms: Terms, every: Iterable[Terms], now_us: int, told_us: int) -> Turn:
        """By the limits of all these terms, for a fleet as large as it is now."""
        return Turn(terms, limits(every, self.fleet), now_us, told_us, now_us - self.several_us)

    # -- who is there -------------------------------------------------------------------------------------------

    def _strike_off(self, turn: Turn) -> None:
        alive = self.roster.alive
        silent = sorted(self.roster.silent(turn.now_us, turn.limits.expiry_us), key=lambda one: (alive[one], one))
        if silent and len(silent) * 2 >= len(alive):
            self.birth.gathers(turn.now_us)
        for instance in silent:
            self.roster.departs(instance, turn.now_us, turn.limits.window_us)
            self.learn_from(turn, self.trials.lost(instance))
        for given_up in self.trials.expire(turn.now_us, turn.limits.window_us):
            self._tell_judged(turn, given_up, "not_replaced")
        self.leases.expire(turn.now_us)
        self.holds.strike_off(turn.now_us)

    def _take_in(self, turn: Turn, beat: Beat) -> None:
        instance, now_us, presence = beat.instance, turn.now_us, beat.presence
        if presence is Presence.GONE:
            self.roster.departs(instance, now_us, turn.limits.window_us)
            self.learn_from(turn, self.trials.is_gone(instance))
            return
        wants = presence is Presence.WANTS
        if wants:
            self.trials.suffered(beat.kind, now_us)
        if presence is Presence.DOWN:
            self._goes_down(turn, beat)
            return
        if self.trials.is_still_missing(instance, beat.incarnation, now_us + turn.limits.expiry_us):
            self.roster.left(instance)
            return
        is_known = instance in self.trials.replaced or self.roster.is_known(instance, now_us, turn.limits.window_us)
        is_newcomer = beat.first and not is_known and not self.leases.holder(instance)
        replaced = self.trials.arrived(instance, beat.incarnation, now_us, is_newcomer=is_newcomer)
        if replaced is not None:
            self.leases.arrived(replaced.place, instance)
            self._tell_replaced(turn, replaced, instance)
        if presence is Presence.WELL:
            self.leases.is_well(instance, beat.incarnation)
        self._watch(turn, beat, wants=wants)
        self.roster.heard(instance, now_us, beat.kind if wants else None)

    def _goes_down(self, turn: Turn, beat: Beat) -> None:
        instance, now_us, is_lease = beat.instance, turn.now_us, bool(beat.lease)
        self.roster.left(instance)
        if is_lease:
            self.learn_from(turn, self.trials.lost(instance))
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
        self.learn_from(turn, judged)

    # -- what nobody else knows ---------------------------------------------------------------------------------

    def _tell_replaced(self, turn: Turn, replaced: Replaced, by: str) -> None:
        place, cull = replaced
        kind = "" if cull.is_lease else cull.kind or UNKNOWN
        entry = Entry("replaced", 0.0, place, kind, by if by != place else "")
        self._tell(turn, entry, cull.at_us, is_own=cull.is_own)

    def _tell_judged(self, turn: Turn, judged: Judged, reason: str = "") -> None:
        entry = Entry(judged.outcome.value, 0.0, judged.instance, judged.kind or UNKNOWN, reason)
        self._tell(turn, entry, judged.culled_us, is_own=judged.is_own)

    def _tell(self, turn: Turn, entry: Entry, since_us: int, *, is_own: bool) -> None:
        """Write down what became of a cull. Of several servers the one does that granted it."""
        if is_own or turn.terms.servers == 1:
            seconds = round(max(0, turn.now_us - since_us) / US_PER_S, 3)
            self.events.append(entry._replace(seconds=seconds), turn.told_us)
