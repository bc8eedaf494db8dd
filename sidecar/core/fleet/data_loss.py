"""Notices that the store has lost its record of grants: then ``gates.by_data_loss`` refuses every grant for a window.

A sidecar remembers the store's epoch, and notices a loss by one of these:

- The store has another epoch or fewer grants: it was flushed, or failed over to an older copy.
- The store's clock has moved by another time than the sidecar's, or instants lie in its future: it was stepped.
- A container that is down names a claim id that the store does not know.
- The last grant is not among the grants, or the state counts culls or leases without rows: a single key was lost.
- A hold that a sidecar saw in force is gone, and was not released.
- The store has another address than before: its content may be a copy, and the grants went on at the old address.

A server process that the fleet has not met yet may lack the last grants: it was restarted from an older copy, or a
replica was promoted. Only the containers that are down know of these grants. So it grants nothing until every sidecar
has had the time to beat there.

One loss counts once, also if several sidecars notice it: if the store has recorded a loss since its last exchange with
a sidecar, it has recorded this one.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Final, TypeVar

from sidecar.core.fleet.draft import Draft
from sidecar.core.fleet.fleet_settings import FleetSettings
from sidecar.core.fleet.records import Cull, Epoch, StoredRecord, instants
from sidecar.core.fleet.view import AHEAD_US, BeatReply, Known
from sidecar.core.types import US_PER_S

R = TypeVar("R", bound=StoredRecord)

STEP_US: Final = 2 * US_PER_S
"""A clock was stepped if it runs apart by more than this, and by more than a hundredth of the time."""

DRIFT: Final = 100
"""The hundredth. A clock that is slewed runs apart by one two-thousandth."""


def notice(draft: Draft) -> None:
    """Record every loss that this request shows, and begin the epoch of a new store."""
    draft.epoch = _with_loss(draft, draft.request.known)
    state, view = draft.view.state, draft.view
    if (state.missing and not view.culls) or (state.retiring and not view.leases):
        lose(draft)
    if draft.epoch.servers != draft.settings.servers and draft.now_us - draft.epoch.lost_us > draft.settings.beat_us:
        # While the sidecars use two addresses, each could write its own: at most once a beat interval. Version 0.2
        # compares in the same way, with the same digest.
        draft.epoch = replace(draft.epoch, servers=draft.settings.servers, lost_us=draft.now_us)
    _retime(draft)


def lose(draft: Draft) -> None:
    """Record a loss, unless one was recorded within the window."""
    epoch = draft.epoch
    if not epoch.lost_us or draft.now_us - epoch.lost_us > draft.limits.window_us:
        draft.epoch = replace(epoch, losses=epoch.losses + 1, lost_us=draft.now_us)


def is_other_process(run_id: str, epoch: Epoch, known: Known, now_us: int) -> bool:
    """Whether the server that tells this ``run_id`` is another process than that of the epoch.

    An epoch without a ``run_id``, of an earlier version, may be of any process. The fleet may also go back to a process
    that has an epoch of its own: then it is another one than at the sidecar's last exchange, and nobody met it since.
    """
    if not run_id or run_id != epoch.run_id:
        return bool(run_id)
    was_met = bool(epoch.met_us) and now_us - epoch.met_us <= _longest_us(known)
    return known.epoch.run_id not in ("", run_id) and not was_met


def is_due(reply: BeatReply, known: Known, settings: FleetSettings) -> bool:
    """Whether the answer to a beat shows a loss, or another process or address, that has to be recorded."""
    epoch = reply.epoch
    if not epoch.born_us or epoch.servers != settings.servers:
        return True
    if is_other_process(reply.run_id, epoch, known, reply.now_us):
        return True
    return _shows_loss(epoch, known, reply.now_us)


def _with_loss(draft: Draft, known: Known) -> Epoch:
    """The epoch, with the loss that the sidecar notices."""
    epoch, now_us = draft.epoch, draft.now_us
    # A recorded loss that is older than the last exchange is not the one that this sidecar notices now.
    is_later = not known.now_us or now_us - epoch.lost_us <= _longest_us(known)
    is_recorded = is_later and epoch.losses > known.epoch.losses
    is_lost = (not is_recorded and _shows_loss(epoch, known, now_us)) or _lacks_last_grant(draft)
    if draft.view.is_ahead or max(epoch.born_us, epoch.lost_us) > now_us + AHEAD_US:
        # Until all future instants are rewritten, the store stays ahead: that is one loss.
        is_lost = is_lost or not epoch.lost_us or not 0 <= now_us - epoch.lost_us <= draft.limits.window_us
    run_id = draft.view.run_id
    if not epoch.born_us:
        epoch = replace(epoch, born_us=now_us, servers=draft.settings.servers, run_id=run_id)
    elif is_other_process(run_id, epoch, known, now_us):
        epoch = replace(epoch, run_id=run_id, met_us=now_us)
    if is_lost:
        losses = max(epoch.losses, known.epoch.losses) + 1
        grants = max(epoch.grants, known.epoch.grants)
        epoch = replace(epoch, losses=losses, lost_us=now_us, grants=grants, granted_us=0)
    return epoch


def _shows_loss(epoch: Epoch, known: Known, now_us: int) -> bool:
    """Whether the store has less than this sidecar knows, or its clock was stepped; False if it knows nothing."""
    former = known.epoch
    is_other = epoch.born_us != former.born_us or epoch.grants < former.grants
    return bool(former.born_us) and (is_other or is_stepped(known, now_us))


def _lacks_last_grant(draft: Draft) -> bool:
    """Whether the last grant is of this window and not among the grants."""
    granted_us, grants = draft.epoch.granted_us, draft.view.grants
    window_us = min(draft.limits.window_us, draft.settings.window_us)
    return draft.now_us - window_us <= granted_us and max(grants.values(), default=0) + AHEAD_US < granted_us


def is_stepped(known: Known, now_us: int) -> bool:
    """Whether the store's clock and the sidecar's have moved apart since their last exchange."""
    if not known.now_us:
        return False
    return abs(now_us - known.now_us - known.elapsed_us) > _longest_us(known) - known.elapsed_us


def _longest_us(known: Known) -> int:
    """The longest time since the last exchange that a clock shows if it was not stepped."""
    return known.elapsed_us + STEP_US + known.slack_us + known.elapsed_us // DRIFT


def _retime(draft: Draft) -> None:
    """Move future instants to now; otherwise what they begin would last for as long as the clock was ahead."""
    now_us = draft.now_us
    draft.epoch = _not_later(draft.epoch, now_us)
    draft.culls = {name: _occupied(draft, _not_later(cull, now_us)) for name, cull in draft.culls.items()}
    draft.leases = {name: _not_later(slot, now_us) for name, slot in draft.leases.items()}
    draft.holds = {name: _not_later(hold, now_us) for name, hold in draft.holds.items()}
    draft.trials = {cause: _not_later(trial, now_us) for cause, trial in draft.trials.items()}
    draft.several_us = min(draft.several_us, now_us)


def _not_later(row: R, now_us: int) -> R:
    names = instants(type(row))  # type: ignore[arg-type]  # a class can be hashed
    late = {name: now_us for name in names if getattr(row, name) > now_us + AHEAD_US and name != "occupied_us"}
    return replace(row, **late) if late else row


def _occupied(draft: Draft, cull: Cull) -> Cull:
    latest_us = draft.now_us + draft.limits.expiry_us
    return cull if cull.occupied_us <= latest_us + AHEAD_US else replace(cull, occupied_us=latest_us)
