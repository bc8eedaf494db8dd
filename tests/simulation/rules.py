"""The compared rules, each from settings as an operator writes them."""

from __future__ import annotations

from typing import Final

from sidecar.config.settings import load_config
from sidecar.core.fleet.terms import Share
from sidecar.core.types import Policy
from sidecar.simulation.fleet_rules import NO_CULLING, FleetRules

_EVERYWHERE: Final = {"ARBITER_REDIS_URL": "redis://127.0.0.1/0", "ARBITER_SERVICE": "web", "ARBITER_INSTANCE": "c"}
"""The URL is never opened: the store is in memory."""


def rules(name: str, *, reports_results: bool = False, **given: str) -> FleetRules:
    """The rules of these settings."""
    return FleetRules.of(name, load_config(given, _EVERYWHERE), reports_results=reports_results)


ARTICLE: Final = rules("article", preset="classdojo")
TRIAL: Final = rules("trial + outlier", soft_drain="off", refund="off")
SOFT: Final = rules("+ soft drain", refund="off")
OURS: Final = rules("+ refund (defaults)")
WEIGHTS: Final = rules("weights", reports_results=True, error_limit="1000000", error_ratio="0")
"""Without culls: no limit is ever reached. Shadow mode has no weights either."""

OURS_WEIGHTS: Final = rules("defaults and results", reports_results=True)
POLICIES: Final = (NO_CULLING, ARTICLE, TRIAL, SOFT, OURS)

REPLACE_S: Final = 60.0
"""The usual duration of a replacement."""


def rotation_s(policy: Policy, apps: int) -> float:
    """Seconds for the retirement of ``apps`` containers that are due together: n * d / k."""
    return apps * REPLACE_S / Share.read(policy.retire_slots).at_most(apps)
