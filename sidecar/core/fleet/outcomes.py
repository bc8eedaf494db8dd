"""The outcome of every cull: its container is missing until it is replaced, and the replacement is watched.

A cull helped if the replacement stays well for the probation. The control group consists of suspects of the same cause
that were refused a token: if they recovered as often by themselves the outcome is unclear. A cull did not help if the
replacement becomes suspect. Anything else is unclear.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import Any, Final

from sidecar.core.claims import MANUAL, NAMELESS, Beat, Presence
from sidecar.core.fleet import trial
from sidecar.core.fleet.draft import Draft, cull_end_us, trial_end_us
from sidecar.core.fleet.fleet_settings import OFF
from sidecar.core.fleet.records import Cull, CullOutcome
from sidecar.core.fleet.view import MemberKey
from sidecar.core.types import US_PER_S, Entry

UNKNOWN: Final = "unknown"


# -- what is granted ------------------------------------------------------------------------------------------------


def grant(draft: Draft, instance: str, claim: str, member: MemberKey, cause: str, *, is_lease: bool) -> None:
    """Record that a container was granted a token or a lease: from now on it is missing."""
    if cause == MANUAL:
        lost(draft, (instance,))  # a person's order does not judge the cull before
    close(draft, instance)
    former = draft.culls.get(instance)
    if former is not None and former.phase == "watched":
        judge(draft, instance, CullOutcome.UNCLEAR)
    draft.culls[instance] = Cull(
        claim,
        member.incarnation,
        cause,
        draft.now_us,
        is_lease=is_lease,
        occupied_us=draft.now_us + draft.limits.expiry_us,
        refused=draft.control("refused", cause),
        recovered=draft.control("recovered", cause),
        ended=draft.control("ended", cause),
        identity=member.identity,
    )


def close(draft: Draft, instance: str) -> None:
    """Close the cull whose replacement is culled itself: it did not help."""
    for place in _watched(draft, instance):
        judge(draft, place, CullOutcome.UNHELPED)


def give_back(draft: Draft, instance: str, claim: str) -> bool:
    """Remove the cull and the slot of a container that gives back its token or lease; return whether it had one."""
    slot = draft.leases.get(instance)
    had_cull, had_slot = draft.has_unused(instance, claim), slot is not None and slot.holder == claim
    if had_cull:
        del draft.culls[instance]
    if had_slot:
        del draft.leases[instance]
    return had_cull or had_slot


# -- beats ----------------------------------------------------------------------------------------------------------


def leave(draft: Draft, instance: str) -> None:
    """Record that a sidecar has left: its place is vacant if it was culled, and it is no replacement any more."""
    cull = draft.culls.get(instance)
    if cull is not None and cull.phase == "out":
        change(draft, instance, occupied_us=min(cull.occupied_us, draft.now_us))
    lost(draft, (instance,))


def lost(draft: Draft, instances: Iterable[str]) -> None:
    """Close the culls whose replacements left before their probation was over: the outcome is unclear."""
    for instance in instances:
        for place in _watched(draft, instance):
            judge(draft, place, CullOutcome.UNCLEAR)


def go_down(draft: Draft, beat: Beat) -> bool:
    """Record that a container is down; return whether the store does not know its token."""
    if not beat.lease and beat.cause != MANUAL:
        close(draft, beat.instance)
    claim = beat.lease or beat.claim_id
    cull = draft.culls.get(beat.instance)
    if cull is not None and cull.claim == claim:
        occupied_us = draft.now_us + draft.limits.expiry_us if cull.phase == "out" else cull.occupied_us
        change(draft, beat.instance, down_us=draft.now_us, occupied_us=occupied_us)
        return False
    if not claim:
        return False
    is_known = claim in draft.view.grants
    cause = "" if beat.lease else trial.name(draft, beat.cause)
    grant(draft, beat.instance, claim, MemberKey(beat.incarnation, beat.identity), cause, is_lease=bool(beat.lease))
    if not beat.lease:
        trial.culled(draft, cause)
    change(draft, beat.instance, down_us=draft.now_us)
    return not is_known and not beat.lease


def is_watched(draft: Draft, instance: str) -> bool:
    """Whether this container is a replacement whose probation is not over."""
    slot = draft.leases.get(instance)
    return bool(_watched(draft, instance)) or (slot is not None and slot.arrived)


def expire(draft: Draft) -> None:
    """Remove what is over: culls without a replacement, replacements watched for too long, causes without culls."""
    overdue = [name for name, cull in draft.culls.items() if cull_end_us(cull, draft.limits) <= draft.now_us]
    for instance in sorted(overdue, key=lambda name: draft.culls[name].at_us):
        cull = draft.culls[instance]
        if cull.phase != "over" and not cull.is_lease:
            judge(draft, instance, CullOutcome.UNCLEAR, "" if cull.phase == "watched" else "not_replaced")
        draft.culls.pop(instance, None)
    for cause in [cause for cause, record in draft.trials.items() if trial_end_us(record) <= draft.now_us]:
        if not draft.open_culls(cause):
            del draft.trials[cause]


# -- how the replacement does ---------------------------------------------------------------------------------------


def change(draft: Draft, place: str, **fields: Any) -> None:
    """Change fields of a cull."""
    draft.culls[place] = replace(draft.culls[place], **fields)


def _watched(draft: Draft, instance: str) -> list[str]:
    """The culls whose watched replacement is this container: at most one."""
    return [place for place, cull in draft.culls.items() if cull.phase == "watched" and cull.by == instance]


def watch(draft: Draft, beat: Beat) -> None:
    """Update or close the cull that this container replaces, by its state."""
    for place in _watched(draft, beat.instance):
        if _is_named(draft.culls[place], beat):
            change(draft, place, by_incarnation=beat.incarnation)
        cull = draft.culls[place]
        if cull.by_incarnation != beat.incarnation:
            judge(draft, place, CullOutcome.UNCLEAR)
        elif beat.presence is Presence.SUSPECT:
            judge(draft, place, CullOutcome.UNHELPED)
        elif beat.presence is Presence.WELL and not cull.well_us:
            change(draft, place, well_us=draft.now_us)
        elif beat.presence is Presence.WELL and draft.now_us - cull.well_us >= draft.limits.probation_us:
            judge(draft, place, CullOutcome.HELPED)


def _is_named(cull: Cull, beat: Beat) -> bool:
    """Whether the app has named the replacement only after its first beat."""
    is_new = cull.by_incarnation.startswith(NAMELESS) and not beat.incarnation.startswith(NAMELESS)
    return is_new and not beat.first  # a first beat is of another sidecar


def judge(draft: Draft, place: str, outcome: CullOutcome, reason: str = "") -> None:
    """Close a cull with its outcome, which changes the trial of its cause."""
    cull = draft.culls[place]
    no_better = outcome is CullOutcome.HELPED and _recovered_alone(draft, cull)
    if no_better:
        outcome, reason = CullOutcome.UNCLEAR, "control"
    if outcome is CullOutcome.HELPED:
        trial.helped(draft, cull)
        if draft.limits.refund_max != OFF:
            draft.refund.append(cull.claim)
    elif outcome is CullOutcome.UNHELPED or no_better:
        trial.failed(draft, cull)
    else:
        trial.unclear(draft, cull)
    change(draft, place, phase="over", since_us=draft.now_us)
    key = f"{outcome.value}|{cull.cause}"
    draft.outcomes[key] = draft.outcomes.get(key, 0) + 1
    add_entry(draft, Entry(outcome.value, 0.0, cull.by or place, cull.cause or UNKNOWN, reason), cull)


def _recovered_alone(draft: Draft, cull: Cull) -> bool:
    """Whether at least half of the refused suspects of this cause recovered by themselves since the cull.

    The group: suspects that were refused before the cull and had not ended, and all that were refused since.
    """
    recovered = draft.control("recovered", cull.cause) - cull.recovered
    at_risk = draft.control("refused", cull.cause) - cull.recovered - cull.ended
    return recovered > 0 and 2 * recovered >= at_risk


def add_entry(draft: Draft, entry: Entry, cull: Cull) -> None:
    """Add an entry about this cull to the ledger, with the time since it."""
    seconds = round(max(0, draft.now_us - cull.at_us) / US_PER_S, 3)
    draft.entries.append(entry._replace(seconds=seconds))
