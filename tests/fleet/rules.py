"""The rules by which every sidecar of the laboratory decides, from settings as an operator writes them."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, replace
from typing import Final

from sidecar.app import build, build_store
from sidecar.config import syntax
from sidecar.config.load import load
from sidecar.core.fleet.fleet_settings import FleetSettings
from sidecar.core.measure.weight import FLOOR, FULL
from sidecar.core.types import Policy

_EVERYWHERE: Final = {"ARBITER_REDIS_URL": "redis://127.0.0.1/0", "ARBITER_SERVICE": "web", "ARBITER_INSTANCE": "c"}
"""The URL is never opened: the store is in memory."""


@dataclass(frozen=True)
class FleetRules:
    """What the parts of a sidecar get from its settings."""

    name: str
    policy: Policy
    settings: FleetSettings
    window_s: int
    ignored_kinds: Collection[str]
    weight_floor: int
    reports_results: bool
    """Whether the app reports all requests, not only errors, so that its weight follows its success rate."""


def rules(name: str, *, reports_results: bool = False, **given: str) -> FleetRules:
    """The rules of these settings."""
    config = load(given, _EVERYWHERE)
    return FleetRules(
        name,
        build.policy(config),
        build_store.fleet_settings(config),
        round(config.judging.error_window),
        syntax.ignored_kinds(config.judging.kind_limits),
        FLOOR if config.culling.weight == "on" else FULL,
        reports_results,
    )


OURS: Final = rules("defaults")
SOFT: Final = rules("no refund", refund="off")
TRIAL: Final = rules("neither refund nor soft drain", weight="off", refund="off")
NO_CULLING: Final = rules("no culling", error_limit="1000000", error_ratio="0")
"""No limit is ever reached. Shadow mode would have no weights either."""

WEIGHTS: Final = rules("weights alone", reports_results=True, error_limit="1000000", error_ratio="0")
OURS_WEIGHTS: Final = rules("defaults and results", reports_results=True)

REPLACE_S: Final = 60.0
"""The usual duration of a replacement."""


def aging(slots: str, lifetime_s: float = 3600.0) -> FleetRules:
    """The defaults with a lifetime and ``slots``: ``1``, or ``50p`` for 5 %."""
    policy = OURS.policy._replace(lifetime_s=lifetime_s, retire_slots=slots)
    return replace(OURS, name=f"{slots} slots", policy=policy)
