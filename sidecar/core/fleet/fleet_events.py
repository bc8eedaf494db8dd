"""The fleet as the answer to a beat shows it, and what has happened to it and its store since the last answer.

Log, metrics, messages and ledger are tables of these events.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final, NamedTuple

from sidecar.core.claims import CauseTrial, Fleet, Unknown
from sidecar.core.fleet.draft import common_cause
from sidecar.core.fleet.fleet_settings import FleetSettings, Share
from sidecar.core.fleet.records import CullOutcome, FleetState
from sidecar.core.fleet.view import BeatReply
from sidecar.core.types import US_PER_S, Hold

COMPARED_FROM: Final = 3
"""Least number of members for a median that a member can be compared with."""

PER_MILLION: Final = 1_000_000


def fleet_of(reply: BeatReply, settings: FleetSettings, instance: str, *, duplicate: bool = False) -> Fleet:
    """The fleet by the answer to a beat of ``instance``."""
    state, epoch, holds = reply.state, reply.epoch, reply.holds
    outcomes = ((*key.partition("|"), count) for key, count in state.outcomes.items())
    culls_by = tuple(sorted((outcome, cause, count) for outcome, _, cause, count in outcomes))
    rows = ((scope, holds.get(scope)) for scope in ("", instance))  # that of the service before that of the instance
    is_compared = reply.alive >= COMPARED_FROM
    return Fleet(
        alive=reply.alive,
        suspect=max(0, sum(reply.causes.values())),
        down=state.missing,
        draining=min(reply.draining, state.missing),
        cause=common_cause({cause: count for cause, count in reply.causes.items() if count > 0}),
        trials=_trials(state, reply.now_us),
        settings=reply.settings,
        losses=epoch.losses,
        helped=_sum_of(culls_by, CullOutcome.HELPED),
        unhelped=_sum_of(culls_by, CullOutcome.UNHELPED),
        unclear=_sum_of(culls_by, CullOutcome.UNCLEAR),
        hold=next((row.shown(scope) for scope, row in rows if row and row.left_us(reply.now_us)), None),
        retiring=state.retiring,
        culls_by=culls_by,
        used=reply.used,
        capacity=Share.load(settings.capacity).at_most(reply.alive + state.missing),
        median_errors=reply.median_errors if is_compared and reply.median_errors >= 0 else None,
        median_ratio=reply.median_ratio / PER_MILLION if is_compared and reply.median_ratio >= 0 else None,
        duplicate=duplicate,
        tells_process=bool(reply.run_id),
    )


def _sum_of(culls_by: tuple[tuple[str, str, int], ...], word: str) -> int:
    return sum(count for outcome, _, count in culls_by if outcome == word)


def _trials(state: FleetState, now_us: int) -> tuple[CauseTrial, ...]:
    return tuple(
        CauseTrial(
            cause,
            record.limit,
            state.open_culls.get(cause, 0),
            record.pause_left_us(now_us) / US_PER_S if record.failures else 0.0,
            record.failures,
            record.began_us / US_PER_S,
        )
        for cause, record in sorted(state.trials.items())
    )


# -- events ---------------------------------------------------------------------------------------------------------


class StoreAway(NamedTuple):
    """A beat had no clear answer, the first after one that had."""

    error: str


class StoreBack(NamedTuple):
    """The store answers again."""

    away_s: float


class CausePaused(NamedTuple):
    """Culls for a cause are paused. Its failures in a row tell two pauses apart."""

    trial: CauseTrial


class PauseEnded(NamedTuple):
    """The pause of culls for a cause is over, or forgotten."""

    cause: str


@dataclass(frozen=True, slots=True)
class Duplicated:
    """Another container runs under this instance name."""


@dataclass(frozen=True, slots=True)
class DuplicateEnded:
    """No other container runs under this instance name any more."""


class SettingsDiffer(NamedTuple):
    """The sidecars of the fleet run with this number of different settings."""

    settings: int


@dataclass(frozen=True, slots=True)
class ProcessUnknown:
    """The store does not tell its process any more, so that its restart is not noticed."""


class DataLost(NamedTuple):
    """The store lost its record of earlier culls."""

    fleet: Fleet


class HoldLost(NamedTuple):
    """The store lost a hold that this sidecar saw in force."""

    hold: Hold


class HoldBegan(NamedTuple):
    """A person holds the service or this container; it may be in the place of another hold."""

    hold: Hold


@dataclass(frozen=True, slots=True)
class HoldEnded:
    """No hold is in force any more."""


FleetEvent = (
    StoreAway
    | StoreBack
    | CausePaused
    | PauseEnded
    | Duplicated
    | DuplicateEnded
    | SettingsDiffer
    | ProcessUnknown
    | DataLost
    | HoldLost
    | HoldBegan
    | HoldEnded
)


class BeatRecord(NamedTuple):
    """The answer to a beat, and what has happened since the last one; ``is_first``: there was none before."""

    answer: Fleet | Unknown
    events: tuple[FleetEvent, ...] = ()
    is_first: bool = False


class FleetWatch:
    """Compares each answer to a beat with the last one. A fleet that was away is compared with how it was before."""

    def __init__(self) -> None:
        self._fleet: Fleet | None = None
        self._away_since: float | None = None

    def record(self, answer: Fleet | Unknown, now: float) -> BeatRecord:
        """Return the answer with its events; ``now`` in monotonic seconds."""
        if isinstance(answer, Unknown):
            if self._away_since is not None:
                return BeatRecord(answer)
            self._away_since = now
            return BeatRecord(answer, (StoreAway(answer.error),))
        back = () if self._away_since is None else (StoreBack(now - self._away_since),)
        before, self._fleet, self._away_since = self._fleet, answer, None
        return BeatRecord(answer, (*back, *changes(before, answer)), is_first=before is None)


def changes(before: Fleet | None, after: Fleet) -> Iterator[FleetEvent]:
    """Yield an event for each change since ``before``; without it, for each unusual value."""
    before = before or Fleet(alive=0, losses=after.losses)
    yield from _pauses(before, after)
    if after.duplicate is not before.duplicate:
        yield Duplicated() if after.duplicate else DuplicateEnded()
    if after.settings > 1 and after.settings != before.settings:
        yield SettingsDiffer(after.settings)
    if before.tells_process and not after.tells_process:
        yield ProcessUnknown()
    if after.hold != before.hold:
        yield HoldBegan(after.hold) if after.hold else HoldEnded()
    if after.lost_hold is not None and after.lost_hold != before.lost_hold:
        yield HoldLost(after.lost_hold)
    if after.losses > before.losses:
        yield DataLost(after)


def _pauses(before: Fleet, after: Fleet) -> Iterator[FleetEvent]:
    paused_before = {(trial.cause, trial.failures) for trial in before.trials if trial.paused_s > 0}
    for trial in after.trials:
        if trial.paused_s > 0 and (trial.cause, trial.failures) not in paused_before:
            yield CausePaused(trial)
    for cause in before.paused:
        if cause not in after.paused:
            yield PauseEnded(cause)
