"""The holds: a person froze the service or the instance, also for claims that were granted before."""

from __future__ import annotations

from sidecar.core.fleet.draft import Draft
from sidecar.core.fleet.records import HoldRow
from sidecar.core.types import US_PER_S, Hold


def in_force(draft: Draft, instance: str) -> tuple[str, HoldRow] | None:
    """The hold on the service, or else on this instance, with its scope."""
    for scope in dict.fromkeys(("", instance)):
        row = draft.holds.get(scope)
        if row is not None and row.left_us(draft.now_us):
            return scope, row
    return None


def shown(scope: str, row: HoldRow) -> Hold:
    """A hold as it is shown to people."""
    return Hold(row.author, row.reason, (row.at_us + row.for_us) / US_PER_S, scope)


def put(draft: Draft, instance: str, author: str, reason: str, for_us: int) -> Hold:
    """Set a hold; it replaces the one before."""
    row = HoldRow(author, reason, draft.now_us, for_us)
    draft.holds[instance] = row
    return shown(instance, row)


def release(draft: Draft, instance: str) -> bool:
    """End a hold; return whether there was one. Its row stays for a window, to tell the end from a loss."""
    row = draft.holds.get(instance)
    was_held = row is not None and bool(row.left_us(draft.now_us))
    if was_held:
        draft.holds[instance] = HoldRow("", "", draft.now_us, 0)
    return was_held
