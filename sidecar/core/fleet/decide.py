"""The decision: ``decide(view, request) -> (answer, edits)``.

The gates and their order are in ``gates``. Every answer has the fleet's numbers, and every refusal
the time after which it is worth asking again. A refusal may have edits, too, for example after a data loss.

This module knows no store, clock or chance: the view has the time.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any, Final

from sidecar.core.claims import Answer, Beat, Claim, Denied, Granted, LeaseRequest, Presence
from sidecar.core.fleet import data_loss, gates, grant_window, outcomes, replacements, trial
from sidecar.core.fleet.draft import HOUR_US, Draft, common_cause
from sidecar.core.fleet.fleet_settings import FleetSettings
from sidecar.core.fleet.gates import GateRefusal
from sidecar.core.fleet.records import HoldRow, Slot
from sidecar.core.fleet.view import (
    AHEAD_US,
    Asked,
    Attend,
    Attended,
    BeatReply,
    Edits,
    EndHold,
    Known,
    MemberKey,
    PutHold,
    Request,
    ReturnGrant,
    View,
)
from sidecar.core.types import US_PER_S, Hold

SEVERAL_EVERY_US: Final = HOUR_US // 6
"""Interval at which a fleet of several members is recorded as such."""

MOST_DUPLICATES: Final = 100


def decide(view: View, request: Request) -> tuple[Any, Edits]:
    """Answer a request, and return what has to be written.

    The answer to a Claim or a LeaseRequest is Granted or Denied, to Attend Attended, to PutHold the Hold, and to
    ReturnGrant and EndHold whether there was one to end.
    """
    draft = Draft(view, request)
    data_loss.notice(draft)
    trial.notice(draft)
    return _RULES[type(request.asked)](draft, request.asked)


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
    is_other_incarnation = MemberKey.load(reply.former).incarnation != beat.incarnation
    is_sick = trial.is_majority(reply.median_errors, settings.error_limit, sum(reply.causes.values()), reply.alive)
    return (
        (has_members_gone or has_ended or has_several or is_other_incarnation)
        or trial.is_due(state, reply.causes, reply.now_us, is_sick=is_sick)
        or data_loss.is_due(reply, known, settings)
    )


# -- a claim --------------------------------------------------------------------------------------------------------


def _claim(draft: Draft, claim: Claim) -> tuple[Answer, Edits]:
    cause, member = trial.name(draft, claim.cause), MemberKey(claim.incarnation, claim.identity)
    used, capacity, alive = grant_window.usage(draft).used, draft.limits.capacity, draft.available
    if refusal := gates.refuse_claim(draft, claim, cause):
        return _denied(draft, used, capacity, refusal), draft.edits()
    has_token, is_replay = grant_window.has_token(draft, claim), gates.is_replay(draft, claim)
    outcomes.grant(draft, claim.instance, claim.claim_id, member, cause, is_lease=False)
    trial.culled(draft, cause)
    if not has_token:
        draft.epoch = replace(draft.epoch, grants=draft.epoch.grants + 1, granted_us=draft.now_us)
    granted = Granted(used + (not has_token), capacity, replayed=is_replay, alive=alive, suspect=draft.suspect)
    bounds, window_us = grant_window.bounds(draft), draft.limits.window_us
    return granted, draft.edits()._replace(grant=claim.claim_id, window_us=window_us, **bounds._asdict())


# -- a retirement ---------------------------------------------------------------------------------------------------


def _retire(draft: Draft, lease: LeaseRequest) -> tuple[Answer, Edits]:
    instance, holder = lease.instance, lease.holder
    slot, capacity, alive = gates.replayed_slot(draft, lease), gates.slots(draft, lease), draft.available
    is_replay = slot is not None
    if refusal := gates.refuse_retirement(draft, lease):
        return _denied(draft, len(draft.leases), capacity, refusal), draft.edits()
    if slot is None:
        slot = draft.leases[instance] = Slot(holder, lease.incarnation, draft.now_us, round(lease.timeout_s * US_PER_S))
        outcomes.lost(draft, (instance,))
        outcomes.grant(draft, instance, holder, MemberKey(lease.incarnation, holder), "", is_lease=True)
        draft.epoch = replace(draft.epoch, grants=draft.epoch.grants + 1)
    left_s = slot.left_us(draft.now_us) / US_PER_S
    answer = Granted(len(draft.leases), capacity, replayed=is_replay, alive=alive, suspect=draft.suspect, left_s=left_s)
    return answer, draft.edits()


def _give_back(draft: Draft, order: ReturnGrant) -> tuple[bool, Edits]:
    was_granted = outcomes.give_back(draft, order.instance, order.holder)
    return was_granted, draft.edits()


# -- a beat ---------------------------------------------------------------------------------------------------------


def _attend(draft: Draft, attend: Attend) -> tuple[Attended, Edits]:
    beat, is_waiting = attend.beat, False
    if 2 * attend.silent >= attend.alive > 1:
        draft.epoch = replace(draft.epoch, silent_us=draft.now_us)
    if attend.is_hold_lost:
        data_loss.lose(draft)
    outcomes.lost(draft, attend.struck)
    if beat.presence is Presence.GONE:
        outcomes.leave(draft, beat.instance)
    elif beat.presence is Presence.DOWN:
        if outcomes.go_down(draft, beat):
            data_loss.lose(draft)
    else:
        is_waiting = replacements.arrive(draft, beat, attend.waited_us)
    outcomes.expire(draft)
    _expire_holds(draft)
    _note_duplicates(draft, beat.instance)
    if draft.fleet > 1 and draft.now_us - draft.several_us >= SEVERAL_EVERY_US:
        draft.several_us = draft.now_us
    return Attended(outcomes.is_watched(draft, beat.instance), is_waiting), draft.edits()


def _note_duplicates(draft: Draft, instance: str) -> None:
    """Record the instance names that two containers use; forget those of earlier windows."""
    oldest_us = draft.now_us - draft.limits.window_us
    recent = {name: at for name, at in draft.duplicates.items() if oldest_us <= at <= draft.now_us + AHEAD_US}
    if draft.request.is_duplicate:
        recent[instance] = draft.now_us
    newest = sorted(recent, key=lambda name: (recent[name], name))[-MOST_DUPLICATES:]
    draft.duplicates = {name: recent[name] for name in newest}


def _expire_holds(draft: Draft) -> None:
    """Forget holds that are over; the row of a released hold stays for a window."""
    now_us, window_us = draft.now_us, draft.limits.window_us
    draft.holds = {scope: row for scope, row in draft.holds.items() if row.at_us + (row.for_us or window_us) > now_us}


# -- orders of people -----------------------------------------------------------------------------------------------


def _put_hold(draft: Draft, order: PutHold) -> tuple[Hold, Edits]:
    row = draft.holds[order.instance] = HoldRow(order.author, order.reason, draft.now_us, order.for_us)
    return row.shown(order.instance), draft.edits()


def _release(draft: Draft, order: EndHold) -> tuple[bool, Edits]:
    row = draft.holds.get(order.instance)
    was_in_force = row is not None and bool(row.left_us(draft.now_us))
    if was_in_force:  # the row stays for a window, to tell the end from a loss
        draft.holds[order.instance] = HoldRow("", "", draft.now_us, 0)
    if not order.instance:
        trial.release(draft)
    return was_in_force, draft.edits()


# -- refusals -------------------------------------------------------------------------------------------------------


def _denied(draft: Draft, used: int, capacity: int, refusal: GateRefusal) -> Denied:
    return Denied(
        refusal.reason,
        used,
        capacity,
        max(1, refusal.wait_us) / US_PER_S,
        alive=draft.available,
        suspect=draft.suspect,
        cause=common_cause(draft.view.causes),
        hold=refusal.hold,
        is_other_process=refusal.is_other_process,
    )


_RULES: Final[dict[type[Asked], Callable[[Draft, Any], tuple[Any, Edits]]]] = {
    Claim: _claim,
    LeaseRequest: _retire,
    ReturnGrant: _give_back,
    Attend: _attend,
    PutHold: _put_hold,
    EndHold: _release,
}
