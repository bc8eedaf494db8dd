"""Which container replaces a missing one.

A new incarnation under the same name is the replacement. Where containers are replaced under new names, the first
container that is new to the fleet takes the place that has been vacant longest. A killed sidecar says no goodbye: its
place is known to be vacant only after an expiry, and a newcomer that may be its replacement waits for that.
"""

from __future__ import annotations

from dataclasses import replace

from sidecar.core.claims import REVIVED, Beat, Presence
from sidecar.core.fleet import outcomes
from sidecar.core.fleet.draft import Draft
from sidecar.core.fleet.records import Cull, CullOutcome
from sidecar.core.fleet.view import differ
from sidecar.core.types import Entry


def arrive(draft: Draft, beat: Beat, waited_us: int = 0) -> bool:
    """Record that a container serves or starts. It may be a new replacement, or a watched one.

    ``waited_us``: how long it has waited for a place. Return whether it has to go on waiting.
    """
    instance, cull = beat.instance, draft.culls.get(beat.instance)
    if cull is not None and draft.is_out(instance, beat.incarnation):
        # Another container of this name, or another sidecar of this one, does not know of the grant.
        if not differ(cull.identity, beat.identity):
            outcomes.change(draft, instance, occupied_us=draft.now_us + draft.limits.expiry_us)
        return False
    is_waiting = _take_place(draft, cull, beat, waited_us)
    if beat.presence is Presence.WELL:
        _free_slot(draft, instance, beat.incarnation)
    outcomes.watch(draft, beat)
    return is_waiting


def _take_place(draft: Draft, cull: Cull | None, beat: Beat, waited_us: int) -> bool:
    """Put the container in the place of the missing one that it replaces; whether it waits for that place to be vacant.

    ``cull``: the row under its own name.
    """
    if cull is not None and cull.phase == "out" and beat.incarnation.startswith(f"{REVIVED}-"):
        _revive(draft, beat.instance, cull)
        return False
    if cull is not None and (cull.phase == "out" or _make_way(draft, cull, beat)):
        _replace(draft, beat.instance, beat)
        return False
    places = _places(draft, draft.now_us - waited_us) if _is_newcomer(draft, beat) else []
    if not places or draft.culls[places[0]].occupied_us > draft.now_us:
        return bool(places)
    _replace(draft, places[0], beat)
    return False


def _is_newcomer(draft: Draft, beat: Beat) -> bool:
    """Whether this container is new to the fleet."""
    is_known = bool(draft.view.departed_us) or beat.instance in draft.culls or beat.instance in draft.leases
    return beat.first and not is_known


def _places(draft: Draft, came_us: int) -> list[str]:
    """The places that a newcomer may have taken at ``came_us``: first the vacant ones, and of these the oldest.

    While the sidecar of a missing container still beats, a new container is no replacement for it, but comes from a
    deployment or a fleet that starts.
    """
    out = [
        (cull.occupied_us > draft.now_us, cull.at_us, name)
        for name, cull in draft.culls.items()
        if cull.phase == "out" and cull.heard_us(draft.limits.expiry_us) <= came_us
    ]
    return [name for _, _, name in sorted(out)]


def _make_way(draft: Draft, cull: Cull, beat: Beat) -> bool:
    """Move the newcomer in this container's place to another one, if the container is back; whether that was done."""
    if cull.phase != "watched" or cull.by == beat.instance or cull.incarnation == beat.incarnation:
        return False
    others = [place for place in _places(draft, cull.since_us) if not draft.culls[place].is_lease]
    if not others:
        return False
    newcomer = {"by": cull.by, "by_incarnation": cull.by_incarnation, "well_us": cull.well_us}
    outcomes.change(draft, others[0], phase="watched", since_us=cull.since_us, **newcomer)
    other = draft.culls[others[0]]
    outcomes.add_entry(draft, Entry("replaced", 0.0, others[0], other.cause or outcomes.UNKNOWN, cull.by), other)
    return True


def _replace(draft: Draft, place: str, beat: Beat) -> None:
    cull, instance = draft.culls[place], beat.instance
    cause = "" if cull.is_lease else cull.cause or outcomes.UNKNOWN
    outcomes.add_entry(draft, Entry("replaced", 0.0, place, cause, instance if instance != place else ""), cull)
    if slot := draft.leases.pop(place, None):
        draft.leases[instance] = replace(slot, arrived=True)  # until the replacement is well
    outcomes.change(draft, place, phase="over" if cull.is_lease else "watched", since_us=draft.now_us)
    if not cull.is_lease:
        outcomes.change(draft, place, by=instance, by_incarnation=beat.incarnation, well_us=0)


def _revive(draft: Draft, instance: str, cull: Cull) -> None:
    """End the cull of a container that a person put back: no replacement can show whether it would have helped."""
    if cull.is_lease:
        del draft.culls[instance]
    else:
        outcomes.judge(draft, instance, CullOutcome.UNCLEAR, REVIVED)


def _free_slot(draft: Draft, instance: str, incarnation: str) -> None:
    """Free the slot of a container whose replacement is well."""
    slot = draft.leases.get(instance)
    if slot is not None and (slot.arrived or slot.incarnation != incarnation):
        del draft.leases[instance]
