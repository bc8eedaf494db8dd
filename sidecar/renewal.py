"""How a fleet with these settings is to be renewed, for who reckons whether that can be done in time."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sidecar.core.fleet.terms import Share
from sidecar.core.retirement import Plan
from sidecar.notation import shares

if TYPE_CHECKING:
    from sidecar.settings import Settings


def slots(settings: Settings) -> Share:
    """So many containers may be away for their age at once."""
    return Share(*shares.parse(settings.retire_slots))


def plan(settings: Settings) -> Plan:
    """The lifetime, the floor, and what replacing one takes: nobody is replaced before it has drained."""
    return Plan(
        settings.lifetime,
        slots(settings),
        max(settings.replace_time, settings.drain),
        Share(*shares.parse(settings.min_healthy)),
        settings.never_last,
    )
