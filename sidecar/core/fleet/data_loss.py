"""The gate of data loss: a server that has lost its record of grants grants nothing for a window.

A sidecar remembers the server's epoch, and notices a loss by one of these:

- The server has another epoch or fewer grants: it was flushed, or failed over to an older copy.
- The server's clock has moved by another time than the sidecar's, or instants lie in its future: it was stepped.
- A container that is down names a claim id that no server knows.
- The last grant is not among the grants, or the state counts culls or leases without rows: a single key was lost.
- A hold that a sidecar saw in force is gone, and was not released.
- The list of servers has changed: the new servers know nothing of the grants of the old.

A server process that the fleet has not met yet may lack the last grants: it was restarted from an older copy, or a
replica was promoted. Only the containers that are down know of these grants. So it grants nothing until every sidecar
has had the time to beat there.

One loss counts once, also if several sidecars notice it: if the server has recorded a loss since its last exchange with
a sidecar, it has recorded this one.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Final, TypeVar

from sidecar.core.fleet.draft import Draft
from sidecar.core.fleet.majority import is_majority
from sidecar.core.fleet.records import Cull, Epoch, StoredRecord
from sidecar.core.fleet.refusal import GateRefusal
from sidecar.core.fleet.view import Known
from sidecar.core.types import US_PER_S

R = TypeVar("R", bound=StoredRecord)

STEP_US: Final = 2 * US_PER_S
"""A clock was stepped if it runs apart by more than this, and by more than a hundredth of the time."""

AHEAD_US: Final = US_PER_S
"""Tolerance for instants ahead of the clock: they were written between two readings of it."""

DRIFT: Final = 100
"""The hundredth. A clock that is slewed runs apart by one two-thousandth."""


OTHER_PROCESS_US: Final = 15 * US_PER_S
"""How long another process of the server grants nothing at least. A master that Sentinel demotes takes writes for up to
11.6 s more. Then its connections are closed, and the sidecars beat at the new master within two seconds."""


def notice(draft: Draft) -> None:
    """Record every loss that this request shows, and begin the epoch of a new server."""
    for at, (server, known) in enumerate(zip(draft.view.servers, draft.request.known, strict=True)):
        now_us = known.now_us and known.now_us + server.offset_us
        moved = known._replace(epoch=known.epoch.shifted(server.offset_us), now_us=now_us)
        draft.epochs[at] = _noticed(draft, at, moved)
    state, view = draft.view.state, draft.view
    if (state.missing and not view.culls) or (state.retiring and not view.leases):
        lose(draft)
    if any(epoch.servers != draft.terms.servers for epoch in draft.epochs):
        draft.epochs = [_with_list(draft, epoch) for epoch in draft.epochs]
    _retime(draft)


def lose(draft: Draft) -> None:
    """Record a loss of every server in the view, unless one was recorded within the window."""
    for at, epoch in enumerate(draft.epochs):
        if not epoch.lost_us or draft.now_us - epoch.lost_us > draft.limits.window_us:
            draft.epochs[at] = replace(epoch, losses=epoch.losses + 1, lost_us=draft.now_us)


def refusal(draft: Draft) -> GateRefusal | None:
    """Refuse a grant unless a majority of the servers knows the whole last window and the whole fleet."""
    if not draft.limits.after_loss_wait or _is_enough(draft, usable(draft)):
        return None
    complete = [at for at, epoch in enumerate(draft.epochs) if not lost_wait_us(draft, epoch)]
    if not _is_enough(draft, complete):
        return GateRefusal("data_loss", max(lost_wait_us(draft, epoch) for epoch in draft.epochs))
    return GateRefusal("newborn", max(newborn_wait_us(draft, epoch) for epoch in draft.epochs))


def usable(draft: Draft) -> list[int]:
    """The servers whose tokens may be taken, by their place in the view."""
    if not draft.limits.after_loss_wait:
        return list(range(len(draft.epochs)))
    waits = [lost_wait_us(draft, epoch) + newborn_wait_us(draft, epoch) for epoch in draft.epochs]
    return [at for at, wait_us in enumerate(waits) if not wait_us]


def lost_wait_us(draft: Draft, epoch: Epoch) -> int:
    """Microseconds until a window has passed since the server's last loss; 0 after that."""
    return max(0, epoch.lost_us + draft.limits.window_us + 1 - draft.now_us) if epoch.lost_us else 0


def newborn_wait_us(draft: Draft, epoch: Epoch) -> int:
    """Microseconds until the server knows the fleet.

    That takes half the expiry of a beat, after its epoch began or half of the fleet fell silent at once. Before, no
    sidecar may have noticed a loss, and the size of the fleet is not known. Another process of the server takes
    ``OTHER_PROCESS_US`` at least.
    """
    wait_us = max(epoch.born_us, epoch.silent_us) + draft.limits.expiry_us // 2 - draft.now_us
    return max(0, wait_us, other_process_wait_us(draft, epoch))


def other_process_wait_us(draft: Draft, epoch: Epoch) -> int:
    """Microseconds until every sidecar has had the time to beat at the process that follows another; 0 after that."""
    return max(0, epoch.met_us + max(OTHER_PROCESS_US, draft.limits.expiry_us // 2) - draft.now_us)


def is_other_process(run_id: str, epoch: Epoch, known: Known, now_us: int) -> bool:
    """Whether the server that tells this ``run_id`` is another process than that of the epoch.

    An epoch without a ``run_id``, of an earlier version, may be of any process. The fleet may also go back to a process
    that has an epoch of its own: then it is another one than at the sidecar's last exchange, and nobody met it since.
    """
    if not run_id or run_id != epoch.run_id:
        return bool(run_id)
    was_met = bool(epoch.met_us) and now_us - epoch.met_us <= _longest_us(known)
    return known.epoch.run_id not in ("", run_id) and not was_met


def _is_enough(draft: Draft, places: list[int]) -> bool:
    """Whether these servers, by their place in the view, are a majority of the configured ones."""
    return is_majority((draft.view.servers[at].number for at in places), draft.view.configured)


def _noticed(draft: Draft, at: int, known: Known) -> Epoch:
    """The epoch of one server, with the loss that the sidecar notices."""
    epoch, now_us = draft.epochs[at], draft.now_us
    # A loss that was recorded before the last exchange is another one: the clock was set forward since.
    is_later = not known.now_us or now_us - epoch.lost_us <= _longest_us(known)
    is_recorded = is_later and epoch.losses > known.epoch.losses
    was_born = bool(known.epoch.born_us)
    is_lost = (was_born and not is_recorded and _is_lost(draft, at, known)) or _lacks_last_grant(draft, at)
    if draft.view.servers[at].is_ahead or max(epoch.born_us, epoch.lost_us) > now_us + AHEAD_US:
        # Until all future instants are rewritten, the server stays ahead: that is one loss.
        is_lost = is_lost or not epoch.lost_us or not 0 <= now_us - epoch.lost_us <= draft.limits.window_us
    run_id = draft.view.servers[at].run_id
    if not epoch.born_us:
        epoch = replace(epoch, born_us=now_us, servers=draft.terms.servers, run_id=run_id)
    elif is_other_process(run_id, epoch, known, now_us):
        epoch = replace(epoch, run_id=run_id, met_us=now_us)
    if is_lost:
        losses = max(epoch.losses, known.epoch.losses) + 1
        grants = max(epoch.grants, known.epoch.grants)
        epoch = replace(epoch, losses=losses, lost_us=now_us, grants=grants, granted_us=0)
    return epoch


def _with_list(draft: Draft, epoch: Epoch) -> Epoch:
    """The epoch of one server after the list of servers has changed: all servers count as having lost data.

    A new server knows nothing of the grants of the old list. While both lists are in use, each beat could write its
    own, so the list changes at most once a beat interval.
    """
    if draft.now_us - epoch.lost_us <= draft.terms.beat_us:
        return epoch
    return replace(epoch, servers=draft.terms.servers, lost_us=draft.now_us)


def _is_lost(draft: Draft, at: int, known: Known) -> bool:
    epoch = draft.epochs[at]
    if epoch.born_us != known.epoch.born_us or epoch.grants < known.epoch.grants:
        return True
    return is_stepped(known, draft.now_us)


def _lacks_last_grant(draft: Draft, at: int) -> bool:
    """Whether the server's last grant is of this window and not among its grants."""
    granted_us, grants = draft.epochs[at].granted_us, draft.view.servers[at].grants
    window_us = min(draft.limits.window_us, draft.terms.window_us)
    return draft.now_us - window_us <= granted_us and max(grants.values(), default=0) + AHEAD_US < granted_us


def is_stepped(known: Known, now_us: int) -> bool:
    """Whether the server's clock and the sidecar's have moved apart since their last exchange."""
    if not known.now_us:
        return False
    return abs(now_us - known.now_us - known.elapsed_us) > _longest_us(known) - known.elapsed_us


def _longest_us(known: Known) -> int:
    """The longest time since the last exchange that a clock shows if it was not stepped."""
    return known.elapsed_us + STEP_US + known.slack_us + known.elapsed_us // DRIFT


def _retime(draft: Draft) -> None:
    """Move future instants to now; otherwise what they begin would last for as long as the clock was ahead."""
    now_us = draft.now_us
    draft.epochs = [_begun(epoch, now_us) for epoch in draft.epochs]
    draft.culls = {name: _occupied(draft, _begun(cull, now_us)) for name, cull in draft.culls.items()}
    draft.leases = {name: _begun(slot, now_us) for name, slot in draft.leases.items()}
    draft.holds = {name: _begun(hold, now_us) for name, hold in draft.holds.items()}
    draft.trials = {cause: _begun(trial, now_us) for cause, trial in draft.trials.items()}
    draft.several_us = min(draft.several_us, now_us)


def _begun(row: R, now_us: int) -> R:
    late = {}
    for name in row.INSTANTS:
        if getattr(row, name) > now_us + AHEAD_US and name != "occupied_us":
            late[name] = now_us
    return replace(row, **late) if late else row


def _occupied(draft: Draft, cull: Cull) -> Cull:
    latest_us = draft.now_us + draft.limits.expiry_us
    return cull if cull.occupied_us <= latest_us + AHEAD_US else replace(cull, occupied_us=latest_us)
