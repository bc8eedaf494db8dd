"""What has happened to the fleet and its store between two answers to beats. Log and ledger are tables of these."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

from sidecar.core.claims import CauseTrial, Fleet, Unknown
from sidecar.core.types import Hold


@dataclass(frozen=True, slots=True)
class StoreAway:
    """A beat had no clear answer, the first after one that had."""

    error: str


@dataclass(frozen=True, slots=True)
class StoreBack:
    """The store answers again."""

    away_s: float


@dataclass(frozen=True, slots=True)
class CausePaused:
    """Culls for a cause are paused. Its failures in a row tell two pauses apart."""

    trial: CauseTrial


@dataclass(frozen=True, slots=True)
class PauseEnded:
    """The pause of culls for a cause is over, or forgotten."""

    cause: str


@dataclass(frozen=True, slots=True)
class Duplicated:
    """Another container runs under this instance name."""


@dataclass(frozen=True, slots=True)
class DuplicateEnded:
    """No other container runs under this instance name any more."""


@dataclass(frozen=True, slots=True)
class SettingsDiffer:
    """The sidecars of the fleet run with this number of different settings."""

    settings: int


@dataclass(frozen=True, slots=True)
class ProcessUnknown:
    """The store does not tell its process any more, so that its restart is not noticed."""


@dataclass(frozen=True, slots=True)
class DataLost:
    """The store lost its record of earlier culls."""

    fleet: Fleet


@dataclass(frozen=True, slots=True)
class HoldLost:
    """The store lost a hold that this sidecar saw in force."""

    hold: Hold


@dataclass(frozen=True, slots=True)
class HoldBegan:
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
    known = {(trial.cause, trial.failures) for trial in before.trials if trial.paused_s > 0}
    for trial in after.trials:
        if trial.paused_s > 0 and (trial.cause, trial.failures) not in known:
            yield CausePaused(trial)
    for cause in before.paused:
        if cause not in after.paused:
            yield PauseEnded(cause)
