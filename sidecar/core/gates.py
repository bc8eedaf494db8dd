"""What stands between who asks and a token, or a lease to go for its age: each gate gives a reason while it is shut.

Nothing is written here. Times are microseconds of the bucket's clock.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from sidecar.core.birth import Birth
from sidecar.core.grants import RULES, Grants, Quota, Usage, spaced
from sidecar.core.holds import Holds
from sidecar.core.incident import Incident
from sidecar.core.leases import Leases
from sidecar.core.roster import Roster
from sidecar.core.strictest import Limits, split
from sidecar.core.terms import Terms
from sidecar.core.trials import HOUR_US, Trials
from sidecar.core.words import Brake, Claim, Lease


class Refusal(NamedTuple):
    """Why the answer is no: the machine's word, and the microseconds after which to ask again."""

    reason: str
    wait_us: int


class Spent(NamedTuple):
    """How much is in use of what there is."""

    used: int
    capacity: int


@dataclass(frozen=True, slots=True)
class Turn:
    """One call on the bucket: by whose terms, under which limits, and when; ``told_us`` is what the clock says.

    ``single_us``: so long ago there were last several members.
    """

    terms: Terms
    limits: Limits
    now_us: int
    told_us: int
    single_us: int = 0


@dataclass(frozen=True, slots=True)
class Gates:
    """The gates of one bucket, by what it knows."""

    roster: Roster
    trials: Trials
    incident: Incident
    grants: Grants
    leases: Leases
    birth: Birth
    holds: Holds

    def held(self, turn: Turn, instance: str) -> Refusal | None:
        """The hold, which stops everybody, also who was granted before."""
        held = self.holds.on(instance, turn.now_us)
        return Refusal("hold", held[0] - turn.now_us) if held else None

    def claim(self, turn: Turn, claim: Claim, usage: Usage, *, is_known: bool) -> Refusal | None:
        """The first gate that is shut for a cull; a token that was granted before has no pace to keep."""
        return (
            self._memory(turn)
            or self._useless(turn, claim.kind)
            or self._brake(turn)
            or self._floor(turn, claim.instance)
            or (None if is_known else self._pace(turn, usage))
        )

    def retirement(self, turn: Turn, lease: Lease, spent: Spent) -> Refusal | None:
        """The first gate that is shut for who goes for its age. Whoever suffers goes first."""
        return (
            self._memory(turn)
            or (Refusal("culls", turn.terms.beat_us) if self._may_cull_somebody(turn) else None)
            or (Refusal("brake", turn.terms.beat_us) if self.incident.brake is not Brake.OFF else None)
            or self._floor(turn, lease.instance)
            or self._slots(turn, lease, spent)
        )

    def _may_cull_somebody(self, turn: Turn) -> bool:
        """Whether somebody wants a cull who may get one: for a kind that culls do not help with nobody has to wait."""
        useless = self.trials.useless(turn.limits.useless_after, turn.now_us)
        return any(kind not in useless for kind in self.roster.causes)

    def usage(self, turn: Turn) -> Usage:
        """The tokens in use, by the caller's strategy."""
        return _usage(turn, self.grants.counted(), turn.terms.strategy, turn.limits.capacity)

    def _memory(self, turn: Turn) -> Refusal | None:
        """Nothing for a window after a loss, nor before a loss could have been noticed."""
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
        """The fleet after it; a service that had one member for the past hour may lose it."""
        missing = len(self.trials.missing)
        after = len(self.roster.alive) - (instance in self.roster.alive)
        if missing + len(self.roster.alive) == 1 and self._was_single_for(turn) >= HOUR_US:
            return None if split(1, turn.terms.index, turn.terms.servers) else Refusal("share", turn.terms.beat_us)
        if after < turn.limits.floor:
            return Refusal("floor" if after else "last", turn.terms.beat_us)
        return Refusal("share", turn.terms.beat_us) if self.trials.own >= turn.limits.gone else None

    def _was_single_for(self, turn: Turn) -> int:
        return min(turn.single_us, turn.now_us - self.birth.mark.born_us)

    def _pace(self, turn: Turn, usage: Usage) -> Refusal | None:
        if wait_us := spaced(self.grants.newest_us, turn.now_us, turn.limits.spacing_us):
            return Refusal("spacing", wait_us)
        if usage.wait_us:
            return Refusal("window", usage.wait_us)
        if turn.limits.earned < 0:
            return None
        most = _usage(turn, self.grants.every(), "log", turn.limits.earned)
        return Refusal("earn_max", most.wait_us) if most.wait_us else None

    def _slots(self, turn: Turn, lease: Lease, spent: Spent) -> Refusal | None:
        """A slot of its own that has not been answered for is one that it may still have."""
        holder = self.leases.holder(lease.instance)
        others = spent.used - bool(holder)
        is_free = others < spent.capacity and holder in ("", lease.holder)
        return None if is_free else Refusal("slots", turn.terms.beat_us)


def _usage(turn: Turn, times: list[int], strategy: str, capacity: int) -> Usage:
    """As the rule says; a server whose share is nothing has no token ever."""
    window_us = turn.limits.window_us
    used = RULES[strategy](times, turn.now_us, Quota(max(1, capacity), window_us))
    return used if capacity else Usage(used.used, window_us)
