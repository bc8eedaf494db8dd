"""The compared policies, each from settings as an operator writes them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import partial
from typing import Final

from sidecar.app import build, build_store
from sidecar.config.settings import load_config
from sidecar.controller.container_controller import Pace
from sidecar.core.fleet.terms import Share, Terms
from sidecar.core.types import Policy
from sidecar.store.decisions import Counter

_EVERYWHERE: Final = {"ARBITER_REDIS_URL": "redis://127.0.0.1/0", "ARBITER_SERVICE": "web", "ARBITER_INSTANCE": "c"}
"""The URL is never opened: the store is in memory."""


@dataclass(frozen=True)
class Rules:
    """The policy and the terms of every sidecar of the fleet.

    ``watches``: there are sidecars. ``counter``: the counter of the article at a local time. ``reports_results``: the
    app reports all requests, not only errors, so that its weight follows its success rate.
    """

    name: str
    policy: Policy = field(default_factory=Policy)
    terms: Terms = field(default_factory=Terms)
    pace: Pace = field(default_factory=Pace)
    counter: Callable[[Callable[[], datetime]], Counter] | None = None
    watches: bool = True
    reports_results: bool = False

    def counted(self, wall_s: Callable[[], float]) -> Callable[[], Counter] | None:
        """The counter of the article at this moment, if the policy uses it."""
        if self.counter is None:
            return None
        return partial(self.counter, lambda: datetime.fromtimestamp(wall_s(), UTC))


def rules(name: str, *, reports_results: bool = False, **given: str) -> Rules:
    """The rules of these settings."""
    settings = load_config(given, _EVERYWHERE)
    return Rules(
        name,
        build.policy(settings),
        build_store.terms(settings.budget, settings.redis),
        Pace(settings.judging.check_jitter, settings.judging.check_on_report),
        partial(build_store.article_counter, settings, "") if settings.budget.budget_strategy == "fixed" else None,
        reports_results=reports_results,
    )


NO_CULLING: Final = Rules("no culling", watches=False)
ARTICLE: Final = rules("article", preset="classdojo")
TRIAL: Final = rules("trial + outlier", soft_drain="off", refund="off")
SOFT: Final = rules("+ soft drain", refund="off")
OURS: Final = rules("+ refund (defaults)")
WEIGHTS: Final = rules("weights", reports_results=True, mode="shadow")
"""Shadow mode, without culls."""

OURS_WEIGHTS: Final = rules("defaults and results", reports_results=True)
POLICIES: Final = (NO_CULLING, ARTICLE, TRIAL, SOFT, OURS)

REPLACE_S: Final = 60.0
"""``ARBITER_REPLACE_TIME`` as shipped: the usual duration of a replacement."""


def rotation_s(policy: Policy, apps: int) -> float:
    """Seconds for the retirement of ``apps`` containers that are due together: n * d / k."""
    return apps * REPLACE_S / Share.read(policy.retire_slots).at_most(apps)
