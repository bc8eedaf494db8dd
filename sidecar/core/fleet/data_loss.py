"""The gate of memory: a server that lost what it knew of former grants grants nothing for a window.

A loss is noticed by what the sidecars know. A server that is flushed, or fails over to an older copy, has another birth
or fewer grants than a sidecar remembers. A clock that is stepped moves by another time than the sidecar has counted, or
leaves instants in the future. A container that is down names a claim id that no server knows. A key alone was lost
where the server's last grant is not among its grants, or nothing is left of the culls or leases of which the state
tells.
A list of servers that changed is a loss as well: the new ones know nothing of the grants of the old.

However many sidecars notice one loss, it is counted once: a server that has recorded one since a sidecar last spoke to
it has recorded this one.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Final, TypeVar

from sidecar.core.fleet.draft import Draft
from sidecar.core.fleet.majority import is_majority
from sidecar.core.fleet.records import Cull, Epoch, Row
from sidecar.core.fleet.refusal import Refusal
from sidecar.core.fleet.view import Known
from sidecar.core.types import US_PER_S

R = TypeVar("R", bound=Row)

STEP_US: Final = 2 * US_PER_S
"""Clocks that run apart by more than this, and by more than a hundredth of the time, have been stepped."""

AHEAD_US: Final = US_PER_S
"""An instant that is later than the clock by less was written between two looks at it."""

DRIFT: Final = 100
"""The hundredth. Clocks that are slewed run apart by a two-thousandth."""


def notice(draft: Draft) -> None:
    """Record every loss that this request shows, and let a new server begin."""
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
    """Record that every server here has lost what a container remembers, unless a loss was recorded within a window."""
    for at, epoch in enumerate(draft.epochs):
        if not epoch.lost_us or draft.now_us - epoch.lost_us > draft.limits.window_us:
            draft.epochs[at] = replace(epoch, losses=epoch.losses + 1, lost_us=draft.now_us)


def refusal(draft: Draft) -> Refusal | None:
    """Refuse a grant unless a majority of the servers remembers the last window, and has heard the fleet."""
    if not draft.limits.after_loss_wait or _is_enough(draft, usable(draft)):
        return None
    heard = [at for at, epoch in enumerate(draft.epochs) if not lost_wait_us(draft, epoch)]
    if not _is_enough(draft, heard):
        return Refusal("data_loss", max(lost_wait_us(draft, epoch) for epoch in draft.epochs))
    return Refusal("newborn", max(newborn_wait_us(draft, epoch) for epoch in draft.epochs))


def usable(draft: Draft) -> list[int]:
    """The servers, by place in the view, whose tokens may be taken."""
    if not draft.limits.after_loss_wait:
        return list(range(len(draft.epochs)))
    waits = [lost_wait_us(draft, epoch) + newborn_wait_us(draft, epoch) for epoch in draft.epochs]
    return [at for at, wait_us in enumerate(waits) if not wait_us]


def lost_wait_us(draft: Draft, epoch: Epoch) -> int:
    """Microseconds until a window has passed since the server's last loss; 0 once it has."""
    return max(0, epoch.lost_us + draft.limits.window_us + 1 - draft.now_us) if epoch.lost_us else 0


def newborn_wait_us(draft: Draft, epoch: Epoch) -> int:
    """Microseconds until the server has heard the fleet, since it was born or half of the fleet fell silent at once.

    That is half as long as a silent member stays one: until then a loss may not have been noticed, nor is it known how
    many others there are.
    """
    return max(0, max(epoch.born_us, epoch.silent_us) + draft.limits.expiry_us // 2 - draft.now_us)


def _is_enough(draft: Draft, places: list[int]) -> bool:
    """Whether these servers, by place in the view, are a majority of those that the fleet has."""
    return is_majority((draft.view.servers[at].number for at in places), draft.view.configured)


def _noticed(draft: Draft, at: int, known: Known) -> Epoch:
    """The epoch of one server after what a sidecar knows of it."""
    epoch, now_us = draft.epochs[at], draft.now_us
    # What was recorded longer ago than our last exchange is another loss: the clock has been set forward since.
    is_later = not known.now_us or now_us - epoch.lost_us <= _longest_us(known)
    is_recorded = is_later and epoch.losses > known.epoch.losses
    was_born = bool(known.epoch.born_us)
    is_lost = (was_born and not is_recorded and _is_lost(draft, at, known)) or _lacks_last_grant(draft, at)
    if draft.view.servers[at].is_ahead or max(epoch.born_us, epoch.lost_us) > now_us + AHEAD_US:
        # It stays ahead until all that lies in the future is rewritten: that is one loss.
        is_lost = is_lost or not epoch.lost_us or not 0 <= now_us - epoch.lost_us <= draft.limits.window_us
    if not epoch.born_us:
        epoch = replace(epoch, born_us=now_us, servers=draft.terms.servers)
    if is_lost:
        losses = max(epoch.losses, known.epoch.losses) + 1
        grants = max(epoch.grants, known.epoch.grants)
        epoch = replace(epoch, losses=losses, lost_us=now_us, grants=grants, granted_us=0)
    return epoch


def _with_list(draft: Draft, epoch: Epoch) -> Epoch:
    """The epoch of one server where one of them was used with another list of servers: all of them have lost.

    Not a loss of memory, but as good as one: a server that is new knows nothing of the grants of the old list. While
    both lists are in use each beat could write its own.
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
    """Whether the server's last grant is of this window, and is not among those that it knows."""
    granted_us, grants = draft.epochs[at].granted_us, draft.view.servers[at].grants
    told_us = min(draft.limits.window_us, draft.terms.window_us)
    return draft.now_us - told_us <= granted_us and max(grants.values(), default=0) + AHEAD_US < granted_us


def is_stepped(known: Known, now_us: int) -> bool:
    """Whether the server's clock and the sidecar's have moved apart since their last exchange."""
    if not known.now_us:
        return False
    return abs(now_us - known.now_us - known.elapsed_us) > _longest_us(known) - known.elapsed_us


def _longest_us(known: Known) -> int:
    """For how long the sidecar has not spoken to the server, by any clock that has not been stepped."""
    return known.elapsed_us + STEP_US + known.slack_us + known.elapsed_us // DRIFT


def _retime(draft: Draft) -> None:
    """Let begin now what began in the future: by a clock that was ahead it would last for as long as that was."""
    now_us = draft.now_us
    draft.epochs = [_begun(epoch, now_us) for epoch in draft.epochs]
    draft.culls = {name: _occupied(draft, _begun(cull, now_us)) for name, cull in draft.culls.items()}
    draft.leases = {name: _begun(slot, now_us) for name, slot in draft.leases.items()}
    draft.holds = {name: _begun(hold, now_us) for name, hold in draft.holds.items()}
    draft.trials = {cause: _begun(trial, now_us) for cause, trial in draft.trials.items()}
    draft.several_us = min(draft.several_us, now_us)


def _begun(row: R, now_us: int) -> R:
    late_us = now_us + AHEAD_US
    late = {name: now_us for name in row.INSTANTS if name != "occupied_us" and getattr(row, name) > late_us}
    return replace(row, **late) if late else row


def _occupied(draft: Draft, cull: Cull) -> Cull:
    latest_us = draft.now_us + draft.limits.expiry_us
    return cull if cull.occupied_us <= latest_us + AHEAD_US else replace(cull, occupied_us=latest_us)
