"""One decision while it is made: copies of the view's tables, which the rules change, and the edits that follow."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Final, TypeVar

from sidecar.core.fleet.fleet_settings import Limits, limits
from sidecar.core.fleet.records import Cull, FleetState, HoldRow, Slot, Trial
from sidecar.core.fleet.view import Edits, Request, View
from sidecar.core.types import US_PER_S, Entry

R = TypeVar("R", Cull, Slot, HoldRow)

HOUR_US: Final = 3600 * US_PER_S

SHARED_BY: Final = 3
SHARED_PART: Final = 800
"""Thousandths of the suspects that make a cause their common one, but at least ``SHARED_BY`` of them."""


class Draft:
    """The tables as they will be once the edits are written. The rules read and change them by plain assignment."""

    def __init__(self, view: View, request: Request) -> None:
        state = view.state
        self.view, self.request = view, request
        self.now_us, self.settings = view.now_us, request.settings
        # The rules change the epoch and the rows.
        self.epoch = view.epoch
        self.culls, self.holds = dict(view.culls), dict(view.holds)
        self.leases = {name: slot for name, slot in view.leases.items() if slot.left_us(view.now_us)}
        # They change the fleet's state, too, but for what follows from the rows.
        self.trials, self.outcomes, self.duplicates = dict(state.trials), dict(state.outcomes), dict(state.duplicates)
        self.several_us, self.majority_us = state.several_us, state.majority_us
        # They add what happened.
        self.refund: list[str] = []
        self.entries: list[Entry] = []
        self.limits = self.limits_of(self.fleet)  # for the fleet as the view has it

    def limits_of(self, fleet: int) -> Limits:
        """The strictest of all settings in force, the requester's included, for a fleet of this size."""
        return limits((*self.view.settings, self.settings), fleet)

    # -- counts ---------------------------------------------------------------------------------------------------

    @property
    def missing(self) -> int:
        """Containers that were granted a token or a lease, and are not replaced yet."""
        return sum(cull.phase == "out" for cull in self.culls.values())

    @property
    def available(self) -> int:
        """Containers that serve or start, and were granted neither token nor lease."""
        beating = self.view.beating.items()
        granted = sum(self.is_out(instance, incarnation) for instance, incarnation in beating)
        return max(0, self.view.alive - granted)

    @property
    def fleet(self) -> int:
        """Containers of the fleet: the available and the missing."""
        return self.available + self.missing

    @property
    def suspect(self) -> int:
        """Suspect containers."""
        return sum(self.view.causes.values())

    def is_out(self, instance: str, incarnation: str) -> bool:
        """Whether this incarnation was granted a token or a lease and is not replaced yet."""
        cull = self.culls.get(instance)
        return cull is not None and cull.phase == "out" and cull.incarnation == incarnation

    def has_unused(self, instance: str, claim: str) -> bool:
        """Whether this instance was granted this token or lease, and was neither replaced nor gave it back."""
        cull = self.culls.get(instance)
        return cull is not None and cull.phase == "out" and cull.claim == claim

    def open_culls(self, cause: str) -> int:
        """Culls for this cause without an outcome."""
        return sum(cull.cause == cause and cull.phase != "over" and not cull.is_lease for cull in self.culls.values())

    def trial(self, cause: str) -> Trial:
        """The trial of culls for this cause."""
        return self.trials.get(cause, Trial())

    def control(self, word: str, cause: str) -> int:
        """Suspects of this cause that were ``refused`` a token, or those of them that ``recovered`` or ``ended``."""
        return self.view.control.get(f"{word}|{cause}", 0)

    # -- what is written ------------------------------------------------------------------------------------------

    def edits(self) -> Edits:
        """What differs from the view."""
        view, state = self.view, self._state()
        own = (state, self.epoch, self.culls, self.leases, self.holds)
        if own == (view.state, view.epoch, view.culls, view.leases, view.holds):
            return Edits()  # as after most refusals
        open_culls = {cause: count for cause in self.trials if (count := self.open_culls(cause))}
        state = replace(
            state, due_us=self._due_us(), open_culls=open_culls, missing=self.missing, retiring=len(self.leases)
        )
        return Edits(
            state=None if state == view.state else state,
            epoch=None if self.epoch == view.epoch else self.epoch,
            culls=changed(view.culls, self.culls),
            leases=changed(view.leases, self.leases),
            holds=changed(view.holds, self.holds),
            refund=tuple(self.refund),
            entries=tuple(self.entries),
        )

    def _state(self) -> FleetState:
        """The state with what the rules have changed; what follows from the rows is as in the view."""
        return replace(
            self.view.state,
            trials=self.trials,
            outcomes=self.outcomes,
            duplicates=self.duplicates,
            several_us=self.several_us,
            majority_us=self.majority_us,
        )

    def _due_us(self) -> int:
        """The first instant at which a row ends by itself; 0: no row does."""
        window_us = self.limits.window_us
        ends = [cull_end_us(cull, self.limits) for cull in self.culls.values()]
        ends += [slot.at_us + slot.for_us for slot in self.leases.values()]
        ends += [hold.at_us + max(hold.for_us, window_us) for hold in self.holds.values()]
        ends += [trial_end_us(trial) for cause, trial in self.trials.items() if not self.open_culls(cause)]
        ends += [trial.quiet_us + self.limits.probation_us for trial in self.trials.values() if trial.quiet_us]
        ends += [at + window_us + 1 for at in self.duplicates.values()]
        return min(ends, default=0)


def changed(before: Mapping[str, R], after: Mapping[str, R]) -> dict[str, R | None]:
    """The rows that differ, as they are now; None for rows that are gone."""
    written: dict[str, R | None] = {name: row for name, row in after.items() if before.get(name) != row}
    return written | dict.fromkeys(before.keys() - after.keys())


def cull_end_us(cull: Cull, limits: Limits) -> int:
    """When a row of ``culls`` is over if no beat changes it.

    A container has a window to be replaced, or longer while it beats that it is down; its outcome has a window and a
    probation.
    """
    if cull.phase == "watched":
        return cull.since_us + limits.window_us + limits.probation_us + 1
    return max(cull.at_us, cull.down_us, cull.since_us) + max(limits.window_us, limits.expiry_us) + 1


def trial_end_us(trial: Trial) -> int:
    """When a cause is forgotten: an hour after its last cull, outcome or pause."""
    return max(trial.last_us, trial.paused_us + trial.pause_us) + HOUR_US + 1


def common_cause(causes: Mapping[str, int]) -> str:
    """The cause that most suspects share, at least three of them; empty if there is none."""
    cause = max(causes, key=lambda cause: (causes[cause], cause), default="")
    shared = causes.get(cause, 0)
    return cause if shared >= SHARED_BY and shared * 1000 >= SHARED_PART * sum(causes.values()) else ""
