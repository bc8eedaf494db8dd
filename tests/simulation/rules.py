"""The ways to run a fleet that are put side by side, each from the settings that a user would write."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import partial
from typing import Final

from sidecar.app import budget_parts, parts
from sidecar.config.settings import load
from sidecar.controller.controller import Pace
from sidecar.core.fleet.terms import Share, Terms
from sidecar.core.types import Policy
from sidecar.store.budget import Counter

_EVERYWHERE: Final = {"ARBITER_REDIS_URL": "redis://127.0.0.1/0", "ARBITER_SERVICE": "web", "ARBITER_INSTANCE": "c"}
"""Nothing is opened: the store is in memory."""


@dataclass(frozen=True)
class Rules:
    """How every sidecar of the fleet judges and by which terms it asks.

    ``watches``: there are sidecars at all. ``counter``: the article's, at a local time. ``reports_results``: the app
    reports all its requests, and so has a weight at the balancer by how well they go, not only its errors.
    """

    name: str
    policy: Policy = field(default_factory=Policy)
    terms: Terms = field(default_factory=Terms)
    pace: Pace = field(default_factory=Pace)
    counter: Callable[[Callable[[], datetime]], Counter] | None = None
    watches: bool = True
    reports_results: bool = False

    def counted(self, wall_s: Callable[[], float]) -> Callable[[], Counter] | None:
        """The article's counter at this moment, if it decides."""
        if self.counter is None:
            return None
        return partial(self.counter, lambda: datetime.fromtimestamp(wall_s(), UTC))


def rules(name: str, *, reports_results: bool = False, **given: str) -> Rules:
    """What follows from these settings."""
    settings = load(given, _EVERYWHERE)
    return Rules(
        name,
        parts.policy(settings),
        budget_parts.terms(settings),
        Pace(settings.check_jitter, settings.check_on_report),
        partial(budget_parts._counter, settings, "") if settings.budget_strategy == "fixed" else None,
        reports_results=reports_results,
    )


NOBODY: Final = Rules("no culling", watches=False)
ARTICLE: Final = rules("article", preset="classdojo")
TRIAL: Final = rules("trial + outlier", soft_drain="off", refund="off")
SOFT: Final = rules("+ soft drain", refund="off")
OURS: Final = rules("+ refund (defaults)")
WEIGHTS: Final = rules("weights", reports_results=True, mode="shadow")
"""No culls: shadow mode only says what would be culled."""

OURS_WEIGHTS: Final = rules("defaults and results", reports_results=True)
POLICIES: Final = (NOBODY, ARTICLE, TRIAL, SOFT, OURS)

REPLACE_S: Final = 60.0
"""``ARBITER_REPLACE_TIME`` as shipped: what replacing one takes as a rule."""


def renewal_s(policy: Policy, apps: int) -> float:
    """Seconds that retiring so many takes when all are due: n * d / k."""
    return apps * REPLACE_S / Share.read(policy.retire_slots).at_most(apps)
