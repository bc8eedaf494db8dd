"""How a fleet with these settings is to be renewed, for who reckons whether that can be done in time."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sidecar.config import shares
from sidecar.core.fleet.terms import Share
from sidecar.core.life.lifetime import Plan

if TYPE_CHECKING:
    from sidecar.config.settings import Settings


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
