"""Builds the budget, over the memory of this process or over Redis, and the rules of the fleet."""

from __future__ import annotations

import random
import time
from datetime import datetime
from functools import partial
from hashlib import blake2b
from math import nan
from typing import TYPE_CHECKING, Final

from sidecar.config import redis_urls, syntax
from sidecar.config.settings import ENFORCE, SHADOW
from sidecar.core.fleet.fleet_settings import OFF, FleetSettings, Share
from sidecar.core.fleet.rotation import RotationPlan
from sidecar.core.types import US_PER_S
from sidecar.store.budget import Counter, FleetBudget

if TYPE_CHECKING:
    from collections.abc import Callable

    from sidecar.config.settings import BudgetConfig, Config, RedisConfig
    from sidecar.store.protocol import Store
    from sidecar.store.redis import RedisStore


REPLACE_TIME_S: Final = 60.0
"""Usual time to replace a container, to calculate whether retirements keep up."""

ARTICLE_KEY: Final = "errorWatcher"
"""The prefix of the key in which the article counts."""


def budget(config: Config, on_failure: Callable[[Exception], None]) -> FleetBudget:
    """Build the budget, which connects at its first use. ``on_failure`` receives errors of URLs and files."""
    own = config.identity
    if not config.redis.redis_url:
        from sidecar.store import alone  # noqa: PLC0415 - 0.2 MiB, and a sidecar has only one of the stores

        return fleet_budget(config, alone.AloneStore(lambda: time.time_ns() // 1_000), kind=alone.AloneBudget)

    def shared(mode: str, other: Callable[[], FleetBudget] | None = None) -> FleetBudget:
        return fleet_budget(config, redis_store(config, mode, on_failure), mode, other)

    other = partial(shared, ENFORCE if own.mode == SHADOW else SHADOW) if own.has_other_mode else None
    return shared(own.mode, other)


def redis_store(config: Config, mode: str = "", on_failure: Callable[[Exception], None] = lambda _: None) -> RedisStore:
    """The store on Redis; ``mode`` as for ``prefix``."""
    from sidecar.store.redis import RedisStore  # noqa: PLC0415 - as in budget

    return RedisStore(
        config.redis.redis_url,
        prefix=prefix(config, mode),
        timeout_s=config.redis.redis_timeout,
        password_file=config.redis.redis_password_file,
        on_failure=on_failure,
    )


def fleet_budget(
    config: Config,
    store: Store,
    mode: str = "",
    other: Callable[[], FleetBudget] | None = None,
    *,
    kind: type[FleetBudget] = FleetBudget,
) -> FleetBudget:
    """The budget over this store. ``other`` as in ``FleetBudget``."""
    is_fixed = config.budget.budget_strategy == "fixed"
    return kind(
        store,
        fleet_settings(config),
        rng=random.Random(),  # noqa: S311 - it spreads retries, it guards nothing
        clock=boot_time,
        counter=partial(article_counter, config, mode, datetime.now) if is_fixed else None,
        instance=config.identity.instance,
        other=other,
    )


def fleet_settings(config: Config) -> FleetSettings:
    """The rules of this sidecar. Without Redis it knows no fleet: no floor of healthy ones, and no loss of data."""
    rules, redis = config.budget, config.redis
    is_shared = bool(redis.redis_url)
    return FleetSettings(
        strategy=rules.budget_strategy,
        capacity=str(share(rules.budget)),
        window_us=_us(rules.budget_window),
        min_healthy=str(share(rules.min_healthy)) if is_shared else "0",
        spacing_us=_us(rules.spacing),
        trial=rules.trial == "on",
        probation_us=_us(rules.probation),
        refund_max=0 if rules.refund == "on" else OFF,
        after_loss_wait=rules.after_data_loss == "wait" and is_shared,
        beat_us=_us(rules.beat_interval),
        servers=_digest(redis),
        error_limit=config.judging.error_limit,
    )


def rotation_plan(config: Config) -> RotationPlan:
    """Return how a fleet with this configuration retires, to calculate whether it can keep up."""
    return RotationPlan(
        config.retirement.lifetime,
        share(config.retirement.retire_slots),
        max(REPLACE_TIME_S, config.culling.drain),  # a container is replaced after its drain
        share(config.budget.min_healthy),
    )


def share(text: str) -> Share:
    """The count or the part of the fleet that a setting names."""
    return Share(*syntax.parse_share(text))


def known_capacity(rules: BudgetConfig) -> float:
    """Tokens per window; NaN if that depends on the fleet."""
    capacity = share(rules.budget)
    return nan if capacity.is_part else capacity.amount


def prefix(config: Config, mode: str = "") -> str:
    """The prefix of the service's keys: those of this container's mode, or of another ``mode``."""
    own = config.identity
    return f"{{ha:{own.namespace}/{own.service}}}{_suffix(mode or own.mode)}"


def boot_time() -> float:
    """Seconds that also pass while the machine sleeps: else its wake-up would look like a stepped clock of Redis."""
    return time.clock_gettime(time.CLOCK_BOOTTIME)


def article_counter(config: Config, mode: str, local_time: Callable[[], datetime]) -> Counter:
    """The article's counter: its windows are numbered within the hour of the local clock."""
    window_us, now = _us(config.budget.budget_window), local_time()
    into_hour_us = (now.minute * 60 + now.second) * US_PER_S + now.microsecond
    index, elapsed_us = divmod(into_hour_us, window_us)
    key = f"{ARTICLE_KEY}{_suffix(mode or config.identity.mode)}:{index}"
    return Counter(key, window_us // US_PER_S, (window_us - elapsed_us) / US_PER_S)


def _digest(redis: RedisConfig) -> str:
    """Return a digest of the address of Redis, which does not reveal it. Version 0.2 makes the same of a single URL."""
    if not redis.redis_url:
        return ""
    return blake2b(str(redis_urls.split(redis.redis_url).address).encode(), digest_size=6).hexdigest()


def _suffix(mode: str) -> str:
    """Shadow mode has a budget and a fleet of its own."""
    return ":shadow" if mode == SHADOW else ""


def _us(seconds: float) -> int:
    return round(seconds * US_PER_S)
