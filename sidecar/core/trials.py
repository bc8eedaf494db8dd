"""What became of every cull: its container is missing until it is replaced, and the replacement is on trial.

A replacement that stays well for the probation shows that the cull helped; one that wants to be culled again shows
that it did not; anything else is unclear. Times as in ``roster``.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Final, NamedTuple

HOUR_US: Final = 3_600_000_000
MOST_KINDS: Final = 20
OTHER: Final = "other"


class Outcome(StrEnum):
    """Whether a cull helped."""

    HELPED = "helped"
    UNHELPED = "unhelped"
    UNCLEAR = "unclear"


@dataclass(slots=True)
class Cull:
    """A container that is missing. Until ``occupied_us`` its sidecar is there, or may not know yet of the grant.

    ``down_us``: when it was last heard to be down; for as long as it says so it is not given up on. ``is_lease``: it
    went for its age, which nobody learns from, and ``claim_id`` is the holder of its lease.
    """

    claim_id: str
    incarnation: str
    kind: str
    at_us: int
    occupied_us: int
    is_own: bool
    is_lease: bool = False
    down_us: int = 0

    def is_by(self, claim_id: str, *, is_lease: bool) -> bool:
        """Whether this token, or this lease, is why."""
        return self.claim_id == claim_id and self.is_lease is is_lease


@dataclass(slots=True)
class Trial:
    """A replacement that is watched; ``well_us`` is when it was first seen well, 0 before."""

    claim_id: str
    incarnation: str
    kind: str
    culled_us: int
    is_own: bool
    well_us: int = 0


@dataclass(frozen=True, slots=True)
class Judged:
    """How a cull ended. ``instance`` replaced the container, or is the container itself if nobody did."""

    outcome: Outcome
    instance: str
    claim_id: str
    kind: str
    culled_us: int
    is_own: bool


class Replaced(NamedTuple):
    """Whose place was taken, and the cull that had left it vacant."""

    place: str
    cull: Cull


class Trials:
    """The missing, their replacements, and the kinds of errors that culls have stopped helping with."""

    def __init__(self) -> None:
        self.missing: dict[str, Cull] = {}
        self.trials: dict[str, Trial] = {}
        self.replaced: dict[str, int] = {}
        self.totals = dict.fromkeys(Outcome, 0)
        self._tally: dict[tuple[str, str], int] = {}
        self.unhelped: dict[str, tuple[int, int]] = {}

    @property
    def own(self) -> int:
        """How many are missing by grants of this bucket."""
        return sum(cull.is_own for cull in self.missing.values())

    @property
    def tally(self) -> tuple[tuple[str, str, int], ...]:
        """How many culls of which kind ended how, in order: of twenty kinds, and of all others together."""
        return tuple(sorted((outcome, kind, count) for (outcome, kind), count in self._tally.items()))

    def culled(self, instance: str, cull: Cull) -> None:
        """Note a grant. Whoever was on trial in this place failed it before, by wanting."""
        self.missing[instance] = cull

    def is_down(self, instance: str, heard: Cull) -> bool:
        """Hear from a container that it is down: by our grant, or by another server's. Whether that is news."""
        cull = self.missing.get(instance)
        if cull is not None and cull.is_by(heard.claim_id, is_lease=heard.is_lease):
            cull.occupied_us, cull.down_us = heard.occupied_us, heard.at_us
        elif instance in self.replaced:
            self.replaced[instance] = heard.at_us
        elif heard.claim_id:
            self.missing[instance] = heard
            return True
        return False

    def is_leased(self, instance: str, holder: str) -> bool:
        """Whether the container is missing by the lease of this holder."""
        cull = self.missing.get(instance)
        return cull is not None and cull.is_by(holder, is_lease=True)

    def resigned(self, instance: str, holder: str) -> bool:
        """Take a container back that is missing by the lease of this holder; whether it was."""
        if not self.is_leased(instance, holder):
            return False
        del self.missing[instance]
        return True

    def is_gone(self, instance: str) -> Judged | None:
        """Hear a sidecar say goodbye."""
        if instance in self.missing:
            self.missing[instance].occupied_us = 0
        return self.lost(instance)

    def lost(self, instance: str) -> Judged | None:
        """A replacement that leaves before its probation is over tells nothing."""
        trial = self.trials.get(instance)
        return self._judge(instance, trial, Outcome.UNCLEAR) if trial else None

    def is_still_missing(self, instance: str, incarnation: str, up_until_us: int) -> bool:
        """Whether a container that says it serves counts as missing: its grant may reach it until ``up_until_us``."""
        cull = self.missing.get(instance)
        if cull is None or cull.incarnation != incarnation:
            return False
        cull.occupied_us = up_until_us
        return True

    def arrived(self, instance: str, incarnation: str, now_us: int, *, is_newcomer: bool) -> Replaced | None:
        """Let another incarnation in its place, or the first newcomer, replace a missing one."""
        self.replaced.pop(instance, None)
        place = instance if instance in self.missing else self._vacant(now_us) if is_newcomer else None
        if place is None:
            return None
        cull = self.missing.pop(place)
        if not cull.is_lease:
            self.trials[instance] = Trial(cull.claim_id, incarnation, cull.kind, cull.at_us, cull.is_own)
        if place != instance:
            self.replaced[place] = now_us
        return Replaced(place, cull)

    def watch(
        self, instance: str, incarnation: str, now_us: int, probation_us: int, *, wants: bool, starting: bool
    ) -> Judged | None:
        """See how a replacement does; None while that is open, or when it is none."""
        trial = self.trials.get(instance)
        if trial is None:
            return None
        if trial.incarnation != incarnation:
            return self._judge(instance, trial, Outcome.UNCLEAR)
        if wants:
            return self._judge(instance, trial, Outcome.UNHELPED)
        if starting:
            return None
        trial.well_us = trial.well_us or now_us
        return self._judge(instance, trial, Outcome.HELPED) if now_us - trial.well_us >= probation_us else None

    def expire(self, now_us: int, window_us: int) -> list[Judged]:
        """Give up on who was not replaced, nor heard to be down, within a window; the culls among them."""
        seen = sorted((max(cull.at_us, cull.down_us), one) for one, cull in self.missing.items())
        overdue = [(one, self.missing.pop(one)) for at_us, one in seen if now_us - at_us > window_us]
        self.replaced = {one: at for one, at in self.replaced.items() if now_us - at <= window_us}
        culls = [(one, cull) for one, cull in overdue if not cull.is_lease]
        for _, cull in culls:
            self._count(Outcome.UNCLEAR, cull.kind)
        return [Judged(Outcome.UNCLEAR, one, cull.claim_id, cull.kind, cull.at_us, cull.is_own) for one, cull in culls]

    def learn(self, judged: Judged, now_us: int, *, is_braked: bool = False) -> None:
        """Count the culls of each kind that did not help, in a row.

        Under the brake a failure tells of the incident and not of the kind: whom it leaves stuck, culls may help.
        """
        self._count(judged.outcome, judged.kind)
        self.unhelped = {kind: seen for kind, seen in self.unhelped.items() if now_us - seen[1] <= HOUR_US}
        if judged.outcome is Outcome.HELPED:
            self.unhelped.pop(judged.kind, None)
        elif judged.outcome is Outcome.UNHELPED and not is_braked:
            count, _ = self.unhelped.get(judged.kind, (0, 0))
            self.unhelped[judged.kind] = (count + 1, now_us)

    def suffered(self, kind: str, now_us: int) -> None:
        """Somebody wants because of this kind: after an hour without it, it has a clean sheet."""
        if kind not in self.unhelped:
            return
        count, last_us = self.unhelped.pop(kind)
        if now_us - last_us <= HOUR_US:
            self.unhelped[kind] = (count, now_us)

    def useless(self, after: int, now_us: int) -> tuple[str, ...]:
        """The kinds that no longer cull, in order: ``after`` culls in a row did not help, 0 is off."""
        if not after:
            return ()
        seen = self.unhelped.items()
        return tuple(sorted(kind for kind, (count, at) in seen if count >= after and now_us - at <= HOUR_US))

    def _count(self, outcome: Outcome, kind: str) -> None:
        self.totals[outcome] += 1
        kinds = {kind for _, kind in self._tally}
        one = (outcome.value, kind if kind in kinds or len(kinds) < MOST_KINDS else OTHER)
        self._tally[one] = self._tally.get(one, 0) + 1

    def _vacant(self, now_us: int) -> str | None:
        """The place that is missing longest, of those whose sidecar has gone too.

        As long as that is there the newcomer is another one: of a deployment, or of a fleet that starts.
        """
        vacant = [(cull.at_us, one) for one, cull in self.missing.items() if cull.occupied_us <= now_us]
        return min(vacant)[1] if vacant else None

    def _judge(self, instance: str, trial: Trial, outcome: Outcome) -> Judged:
        del self.trials[instance]
        return Judged(outcome, instance, trial.claim_id, trial.kind, trial.culled_us, trial.is_own)
