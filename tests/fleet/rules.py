"""The rules by which every sidecar of a laboratory fleet decides, from a configuration as operators write it."""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import partial
from typing import Final

from sidecar.app import build, build_store
from sidecar.config import kinds
from sidecar.config.load import load
from sidecar.config.settings import Config
from sidecar.core.fleet.fleet_settings import FleetSettings, Share
from sidecar.core.measure.weight import FLOOR, FULL
from sidecar.core.types import US_PER_S, Policy
from sidecar.store.budget import Counter


@dataclass(frozen=True)
class FleetRules:
    """The policy and the terms of every sidecar of a fleet.

    ``watches``: there are sidecars. ``counter``: the counter of the article at a local time. ``window_s``: length of
    the window of errors. ``reports_results``: the app reports all requests, not only errors, so that its weight
    follows its success rate.
    """

    name: str
    policy: Policy = field(default_factory=Policy)
    terms: FleetSettings = field(default_factory=FleetSettings)
    window_s: int = 60
    ignored_kinds: Collection[str] = ()
    weight_floor: int = FLOOR
    counter: Callable[[Callable[[], datetime]], Counter] | None = None
    watches: bool = True
    reports_results: bool = False

    @classmethod
    def of(cls, name: str, config: Config, *, reports_results: bool = False) -> FleetRules:
        """The rules of a sidecar with this configuration."""
        return cls(
            name,
            build.policy(config),
            build_store.terms(config),
            round(config.judging.error_window),
            kinds.names(config.judging.ignore_kinds),
            FLOOR if config.weight.weight == "on" else FULL,
            partial(build_store.article_counter, config, "") if config.budget.budget_strategy == "fixed" else None,
            reports_results=reports_results,
        )

    @property
    def beat_s(self) -> float:
        """The interval of beats in seconds."""
        return self.terms.beat_us / US_PER_S

    def counter_at(self, wall_s: Callable[[], float]) -> Callable[[], Counter] | None:
        """The counter of the article at the time of this clock, if it is used."""
        if self.counter is None:
            return None
        return partial(self.counter, lambda: datetime.fromtimestamp(wall_s(), UTC))


NO_CULLING: Final = FleetRules("do nothing", watches=False)
"""No sidecars at all."""

_EVERYWHERE: Final = {"ARBITER_REDIS_URL": "redis://127.0.0.1/0", "ARBITER_SERVICE": "web", "ARBITER_INSTANCE": "c"}
"""The URL is never opened: the store is in memory."""


def rules(name: str, *, reports_results: bool = False, **given: str) -> FleetRules:
    """The rules of these settings."""
    return FleetRules.of(name, load(given, _EVERYWHERE), reports_results=reports_results)


ARTICLE: Final = rules("article", preset="classdojo")
TRIAL: Final = rules("trial + outlier", soft_drain="off", refund="off")
SOFT: Final = rules("+ soft drain", refund="off")
OURS: Final = rules("+ refund (defaults)")
WEIGHTS: Final = rules("weights", reports_results=True, error_limit="1000000", error_ratio="0")
"""Without culls: no limit is ever reached. Shadow mode has no weights either."""

OURS_WEIGHTS: Final = rules("defaults and results", reports_results=True)

REPLACE_S: Final = 60.0
"""``ARBITER_REPLACE_TIME`` as shipped: the usual duration of a replacement."""


def rotation_s(policy: Policy, apps: int) -> float:
    """Seconds for the retirement of ``apps`` containers that are due together: n * d / k."""
    return apps * REPLACE_S / Share.load(policy.retire_slots).at_most(apps)
