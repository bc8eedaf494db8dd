"""The gates, in their order: each refuses a claim or a retirement, or leaves it to the next one.

A claim: hold, replay, duplicate, data loss, trial, floor, spacing, window. A retirement: hold, replay, duplicate, data
loss, culls pending, floor, slots.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from sidecar.core.claims import MANUAL, Claim, LeaseRequest
from sidecar.core.fleet import grant_window
from sidecar.core.fleet.draft import HOUR_US, Draft
from sidecar.core.fleet.fleet_settings import OFF, Share
from sidecar.core.fleet.grant_window import RULES, Quota
from sidecar.core.fleet.records import Slot
from sidecar.core.fleet.trial import FIRST
from sidecar.core.fleet.view import MemberKey, differ
from sidecar.core.types import US_PER_S, Hold

OTHER_PROCESS_US: Final = 15 * US_PER_S
"""How long another process of the server grants nothing at least. A master that Sentinel demotes takes writes for up to
11.6 s more. Then its connections are closed, and the sidecars beat at the new master within two seconds."""

UNPROVEN_CAUSES: Final = 2


class GateRefusal(NamedTuple):
    """Why a gate refuses."""

    reason: str
    """A word of ``words.REFUSALS``."""
    wait_us: int
    """After this time it is worth asking again."""
    hold: Hold | None = None
    """The hold that refuses."""
    is_other_process: bool = False
    """The store is another process than before."""


def refuse_claim(draft: Draft, claim: Claim, cause: str) -> GateRefusal | None:
    """The first gate that refuses. A claim that has a token already does not wait for another one."""
    if refusal := by_hold(draft, claim.instance):
        return refusal
    if is_replay(draft, claim):
        return by_duplicate_holder(draft, claim)
    refusal = (
        by_duplicate(draft, claim.instance, MemberKey(claim.incarnation, claim.identity))
        or by_data_loss(draft)
        or by_trial(draft, cause)
        or by_floor(draft, claim.instance)
    )
    if refusal is not None or grant_window.has_token(draft, claim):
        return refusal
    return by_spacing(draft) or by_window(draft)


def refuse_retirement(draft: Draft, lease: LeaseRequest) -> GateRefusal | None:
    """The first gate that refuses. Culls come first, and only as many containers retire at once as there are slots."""
    refusal = by_hold(draft, lease.instance)
    if refusal is not None or replayed_slot(draft, lease) is not None:
        return refusal
    return (
        by_duplicate(draft, lease.instance, MemberKey(lease.incarnation, lease.holder))
        or by_data_loss(draft)
        or by_pending_culls(draft)
        or by_floor(draft, lease.instance)
        or by_slots(draft, lease)
    )


# -- hold, replay, duplicate ----------------------------------------------------------------------------------------


def by_hold(draft: Draft, instance: str) -> GateRefusal | None:
    """Refuse everything while a hold is in force on the service, or else on this instance."""
    for scope in ("", instance):
        row = draft.holds.get(scope)
        if row is not None and (left_us := row.left_us(draft.now_us)):
            return GateRefusal("hold", left_us, row.shown(scope))
    return None


def is_replay(draft: Draft, claim: Claim) -> bool:
    """Whether the claim was granted before, its container is not replaced, and the token was not given back."""
    return grant_window.has_token(draft, claim) and draft.has_unused(claim.instance, claim.claim_id)


def replayed_slot(draft: Draft, lease: LeaseRequest) -> Slot | None:
    """The slot of a lease that was granted before, if its container is neither replaced nor gave it back."""
    slot = draft.leases.get(lease.instance)
    has_slot = slot is not None and slot.holder == lease.holder
    return slot if has_slot and draft.has_unused(lease.instance, lease.holder) else None


def by_duplicate_holder(draft: Draft, claim: Claim) -> GateRefusal | None:
    """Refuse to repeat a grant while a duplicate, of the same name and incarnation, may use it.

    A sidecar that was restarted without its state has another identity, too: it gets its token after an expiry.
    """
    cull = draft.culls[claim.instance]
    wait_us = cull.occupied_us - draft.now_us
    is_other = wait_us > 0 and differ(cull.identity, claim.identity)
    return GateRefusal("duplicate", wait_us) if is_other else None


def by_duplicate(draft: Draft, instance: str, member: MemberKey) -> GateRefusal | None:
    """Refuse while another container beats under this instance name: a cull might reach either.

    A record by any sidecar counts, because this sidecar may have been restarted since.
    """
    recorded_us = draft.duplicates.get(instance, 0)
    is_recorded = bool(recorded_us) and draft.now_us - recorded_us < draft.limits.expiry_us
    is_other = member.is_other(draft.view.member)
    is_duplicate = is_recorded or draft.request.is_duplicate or is_other
    return GateRefusal("duplicate", draft.settings.beat_us) if is_duplicate else None


# -- data loss ------------------------------------------------------------------------------------------------------


def by_data_loss(draft: Draft) -> GateRefusal | None:
    """Refuse a grant unless the store knows the whole last window and the whole fleet.

    It knows the fleet half an expiry after its epoch began, or after half of the fleet fell silent at once: before, no
    sidecar may have noticed a loss, and the size of the fleet is not known.
    """
    limits, epoch = draft.limits, draft.epoch
    if not limits.after_loss_wait:
        return None
    wait_us = epoch.lost_us + limits.window_us + 1 - draft.now_us
    if epoch.lost_us and wait_us > 0:
        return GateRefusal("data_loss", wait_us)
    # Until then every sidecar has had the time to beat at the process that follows another.
    process_us = epoch.met_us + max(OTHER_PROCESS_US, limits.expiry_us // 2) - draft.now_us
    wait_us = max(process_us, max(epoch.born_us, epoch.silent_us) + limits.expiry_us // 2 - draft.now_us)
    return GateRefusal("newborn", wait_us, is_other_process=process_us > 0) if wait_us > 0 else None


# -- trial ----------------------------------------------------------------------------------------------------------


def by_trial(draft: Draft, cause: str) -> GateRefusal | None:
    """Refuse a cull while culls for its cause are paused, or too many have no outcome; never a person's order."""
    if not draft.limits.trial or cause == MANUAL:
        return None
    trial, out = draft.trial(cause), draft.open_culls(cause)
    if pause_us := trial.pause_left_us(draft.now_us):
        return GateRefusal("paused" if trial.failures else "trial", pause_us)
    if out >= trial.limit:
        return GateRefusal("trial", draft.settings.beat_us)
    if trial.limit == FIRST and _others_tried(draft, cause) >= UNPROVEN_CAUSES:
        return GateRefusal("causes", draft.settings.beat_us)
    return None


def _others_tried(draft: Draft, cause: str) -> int:
    """Number of other unproven causes with a cull without an outcome, or one that failed within the window."""
    oldest_us = draft.now_us - draft.limits.window_us
    tried = {cull.cause for cull in draft.culls.values() if cull.phase != "over" and not cull.is_lease}
    tried |= {name for name, trial in draft.trials.items() if trial.failures and trial.paused_us >= oldest_us}
    return sum(draft.trial(other).limit == FIRST for other in tried - {cause, MANUAL})


# -- floor ----------------------------------------------------------------------------------------------------------


def by_floor(draft: Draft, instance: str) -> GateRefusal | None:
    """Refuse to leave too few containers in service. A service that had a single one for an hour may lose it."""
    cull, is_counted = draft.culls.get(instance), _is_available(draft, instance)
    is_missing = cull is not None and cull.phase == "out"
    fleet = draft.fleet + (not is_counted and not is_missing)  # the requester is there even if it has not beaten
    single_us = draft.now_us - max(draft.several_us, draft.epoch.born_us)  # as far as the store knows
    if fleet == 1 and single_us >= HOUR_US:
        return None
    after = draft.available - is_counted
    if after >= draft.limits_of(fleet).floor:
        return None
    return GateRefusal("floor" if after else "last", draft.settings.beat_us)


def _is_available(draft: Draft, instance: str) -> bool:
    """Whether the requester is among the available."""
    view = draft.view
    is_alive = bool(view.seen_us) and draft.now_us - view.seen_us <= draft.limits.expiry_us
    return is_alive and not draft.is_out(instance, view.member.incarnation)


# -- spacing, window ------------------------------------------------------------------------------------------------


def by_spacing(draft: Draft) -> GateRefusal | None:
    """Refuse a grant too soon after the last one, also after one that only the rows of culls show."""
    if not draft.limits.spacing_us:
        return None
    culls = (cull.at_us for cull in draft.culls.values() if not cull.is_lease)
    times = grant_window.times(draft, (*culls, *draft.view.grants.values()))
    wait_us = times[-1] + draft.limits.spacing_us - draft.now_us if times else 0
    return GateRefusal("spacing", wait_us) if wait_us > 0 else None


def by_window(draft: Draft) -> GateRefusal | None:
    """Refuse a grant while the window has no token left."""
    limits = draft.limits
    if limits.capacity < 1:  # by the settings of another sidecar
        return GateRefusal("window", limits.window_us)
    if limits.strategy == "fixed":
        return None  # the article's counter decides, and the view does not have it
    if wait_us := grant_window.usage(draft).wait_us:
        return GateRefusal("window", wait_us)
    if limits.refund_max == OFF:
        return None
    every = grant_window.times(draft, draft.view.grants.values())
    wait_us = RULES["log"](every, draft.now_us, Quota(max(1, limits.refund_max), limits.window_us)).wait_us
    return GateRefusal("refund_max", wait_us) if wait_us else None


# -- culls pending, slots -------------------------------------------------------------------------------------------


def by_pending_culls(draft: Draft) -> GateRefusal | None:
    """Refuse a retirement while there are suspects that may be culled; suspects of a paused cause may not."""
    causes = (cause for cause, count in draft.view.causes.items() if count > 0)
    is_pending = any(not draft.trial(cause).pause_left_us(draft.now_us) for cause in causes)
    return GateRefusal("culls", draft.settings.beat_us) if is_pending else None


def by_slots(draft: Draft, lease: LeaseRequest) -> GateRefusal | None:
    """Refuse a retirement without a free slot. The requester may hold a slot without knowing it."""
    slot = draft.leases.get(lease.instance)
    others = len(draft.leases) - (slot is not None)
    is_free = others < slots(draft, lease) and (slot is None or slot.holder == lease.holder)
    return None if is_free else GateRefusal("slots", draft.settings.beat_us)


def slots(draft: Draft, lease: LeaseRequest) -> int:
    """Number of containers that may retire at once, in the present fleet."""
    return Share.load(lease.slots).at_most(draft.fleet)
