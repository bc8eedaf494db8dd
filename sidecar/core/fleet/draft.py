"""One decision while it is made: copies of the view's tables, which the rules change, and the edits that follow."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, TypeVar

from sidecar.core.fleet.fleet_settings import Limits, limits
from sidecar.core.fleet.records import Cull, FleetState, HoldRow, Slot, Trial
from sidecar.core.fleet.view import Edits, Request, View
from sidecar.core.types import US_PER_S, Entry

R = TypeVar("R", Cull, Slot, HoldRow)

HOUR_US: Final = 3600 * US_PER_S


class Draft:
    """The tables as they will be once the edits are written. The rules read and change them by plain assignment.

    ``now_us``: the store's clock. ``limits``: the strictest settings in force, for the fleet as the view has it.
    """

    def __init__(self, view: View, request: Request) -> None:
        self.view = view
        self.request = request
        self.now_us = view.now_us
        self.settings = request.settings
        self.culls = dict(view.culls)
        self.leases = dict(view.leases)
        self.holds = dict(view.holds)
        self.trials = dict(view.state.trials)
        self.epoch = view.epoch
        self.outcomes = dict(view.state.outcomes)
        self.several_us = view.state.several_us
        self.duplicates = dict(view.state.duplicates)
        self.majority_us = view.state.majority_us
        self.refund: list[str] = []
        self.entries: list[Entry] = []
        self.limits = self.limits_of(self.fleet)

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

    def open_culls(self, cause: str) -> int:
        """Culls for this cause without an outcome."""
        return sum(cull.cause == cause and cull.phase != "over" and not cull.is_lease for cull in self.culls.values())

    def trial(self, cause: str) -> Trial:
        """The trial of culls for this cause."""
        return self.trials.get(cause, Trial())

    def control(self, word: str, cause: str) -> int:
        """Suspects of this cause that were ``refused`` a token, or those of them that ``recovered`` or ``ended``."""
        return self.view.control.get(f"{word}|{cause}", 0)

    def hold_on(self, instance: str) -> tuple[str, HoldRow] | None:
        """The hold in force on the service, or else on this instance, with its scope."""
        for scope in dict.fromkeys(("", instance)):
            row = self.holds.get(scope)
            if row is not None and row.left_us(self.now_us):
                return scope, row
        return None

    # -- what is written ------------------------------------------------------------------------------------------

    def edits(self) -> Edits:
        """What differs from the view."""
        view, former = self.view, self.view.state
        rows = (view.culls, view.leases, view.holds, former.trials, former.outcomes, former.duplicates)
        values = (former.several_us, former.majority_us, view.epoch)
        is_same = (rows, values) == (
            (self.culls, self.leases, self.holds, self.trials, self.outcomes, self.duplicates),
            (self.several_us, self.majority_us, self.epoch),
        )
        if is_same:
            return Edits()  # as after most refusals, though the time alone may change the state
        state = self._state()
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
        return FleetState(
            trials=self.trials,
            several_us=self.several_us,
            due_us=self._due_us(),
            open_culls={cause: self.open_culls(cause) for cause in self.trials if self.open_culls(cause)},
            missing=self.missing,
            retiring=sum(slot.left_us(self.now_us) > 0 for slot in self.leases.values()),
            outcomes=self.outcomes,
            duplicates=self.duplicates,
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


def cull_end_us(cull: Cull, rules: Limits) -> int:
    """When a row of ``culls`` is over if no beat changes it.

    A container has a window to be replaced, or longer while it beats that it is down; its outcome has a window and a
    probation.
    """
    if cull.phase == "watched":
        return cull.since_us + rules.window_us + rules.probation_us + 1
    return max(cull.at_us, cull.down_us, cull.since_us) + max(rules.window_us, rules.expiry_us) + 1


def trial_end_us(trial: Trial) -> int:
    """When a cause is forgotten: an hour after its last cull, outcome or pause."""
    return max(trial.last_us, trial.paused_us + trial.pause_us) + HOUR_US + 1


SHARED_BY: Final = 3
SHARED_PART: Final = 800
"""Thousandths of the suspects that make a cause their common one, but at least ``SHARED_BY`` of them."""


def common_cause(causes: Mapping[str, int]) -> str:
    """The cause that most suspects share, at least three of them; empty if there is none."""
    cause = max(causes, key=lambda cause: (causes[cause], cause), default="")
    shared = causes.get(cause, 0)
    return cause if shared >= SHARED_BY and shared * 1000 >= SHARED_PART * sum(causes.values()) else ""
