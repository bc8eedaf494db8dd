"""The answer to a beat: the fleet, and whether anything is due that needs a decision."""

from __future__ import annotations

from collections import Counter
from typing import Any, Final

from sidecar.core.claims import Beat, CauseTrial, Fleet, Presence
from sidecar.core.fleet import data_loss, trial
from sidecar.core.fleet.decide import SEVERAL_EVERY_US
from sidecar.core.fleet.draft import common_cause
from sidecar.core.fleet.fleet_settings import FleetSettings, Share
from sidecar.core.fleet.records import CullOutcome, FleetState
from sidecar.core.fleet.view import BeatReply, Known, member_incarnation
from sidecar.core.types import US_PER_S, Hold

COMPARED_FROM: Final = 3
"""Least number of members for a median that a member can be compared with."""

PER_MILLION: Final = 1_000_000


def is_due(reply: BeatReply, beat: Beat, known: Known, settings: FleetSettings) -> bool:
    """Whether the answer to a beat shows anything that has to be decided and written."""
    state = reply.state
    if beat.first or beat.presence in (Presence.DOWN, Presence.GONE) or not reply.former:
        return True
    has_members_gone = bool(reply.struck) and (
        state.missing > 0 or bool(state.open_culls) or 2 * reply.silent >= reply.alive
    )
    has_ended = 0 < state.due_us <= reply.now_us
    has_several = reply.alive > 1 and reply.now_us - state.several_us >= SEVERAL_EVERY_US
    is_other_incarnation = member_incarnation(reply.former) != beat.incarnation
    is_seen = has_members_gone or has_ended or has_several or is_other_incarnation
    return is_seen or _shows_episode(reply, settings) or _shows_loss(reply, known, settings)


def _shows_episode(reply: BeatReply, settings: FleetSettings) -> bool:
    suspect = sum(reply.causes.values())
    is_sick = trial.is_majority(reply.median_errors, settings.error_limit, suspect, reply.alive)
    return trial.is_due(reply.state, reply.causes, reply.now_us, is_sick=is_sick)


def _shows_loss(reply: BeatReply, known: Known, settings: FleetSettings) -> bool:
    epoch, former = reply.epoch, known.epoch
    if not epoch.born_us or epoch.servers != settings.servers:
        return True
    if data_loss.is_other_process(reply.run_id, epoch, known, reply.now_us):
        return True
    if not former.born_us:
        return False
    is_other = epoch.born_us != former.born_us or epoch.grants < former.grants
    return (is_other and epoch.losses <= former.losses) or data_loss.is_stepped(known, reply.now_us)


def fleet_of(reply: BeatReply, settings: FleetSettings, instance: str, *, duplicate: bool = False) -> Fleet:
    """The fleet by the answer to a beat of ``instance``."""
    state = reply.state
    totals = _totals(state)
    fleet_size = reply.alive + state.missing
    return Fleet(
        alive=reply.alive,
        suspect=max(0, sum(reply.causes.values())),
        down=state.missing,
        draining=min(reply.draining, state.missing),
        cause=common_cause({cause: count for cause, count in reply.causes.items() if count > 0}),
        trials=_trials(state, reply.now_us),
        settings=reply.settings,
        losses=reply.epoch.losses,
        helped=totals[CullOutcome.HELPED],
        unhelped=totals[CullOutcome.UNHELPED],
        unclear=totals[CullOutcome.UNCLEAR],
        hold=_hold(reply, instance),
        retiring=state.retiring,
        culls_by=_culls_by(state),
        used=reply.used,
        capacity=Share.load(settings.capacity).at_most(fleet_size),
        **_medians(reply.alive, reply.median_errors, reply.median_ratio),
        duplicate=duplicate,
        tells_process=bool(reply.run_id),
    )


def _medians(alive: int, errors: int, ratio: int) -> dict[str, Any]:
    is_compared = alive >= COMPARED_FROM
    return {
        "median_errors": errors if is_compared and errors >= 0 else None,
        "median_ratio": ratio / PER_MILLION if is_compared and ratio >= 0 else None,
    }


def _totals(state: FleetState) -> Counter[str]:
    totals: Counter[str] = Counter()
    for key, count in state.outcomes.items():
        totals[key.partition("|")[0]] += count
    return totals


def _culls_by(state: FleetState) -> tuple[tuple[str, str, int], ...]:
    rows = ((*key.partition("|"), count) for key, count in state.outcomes.items())
    return tuple(sorted((outcome, cause, count) for outcome, _, cause, count in rows))


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


def _hold(reply: BeatReply, instance: str) -> Hold | None:
    """The hold in force, that of the service before that of the instance."""
    rows = ((scope, reply.holds.get(scope)) for scope in ("", instance))
    return next((row.shown(scope) for scope, row in rows if row and row.left_us(reply.now_us)), None)
