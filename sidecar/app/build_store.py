"""Builds the budget: over the memory of this process, over one Redis, or over several Redis servers that share it."""

from __future__ import annotations

import random
import time
from datetime import datetime
from functools import partial
from hashlib import blake2b
from math import nan
from typing import TYPE_CHECKING, Final, NamedTuple

from sidecar.config import redis_urls, shares
from sidecar.config.rollout import ENFORCE, SHADOW
from sidecar.core.fleet.terms import OFF, Share, Terms
from sidecar.core.types import US_PER_S
from sidecar.store.access import Access
from sidecar.store.alone import AloneBudget
from sidecar.store.budget import FleetBudget
from sidecar.store.budget_with_holds import BudgetWithHolds
from sidecar.store.decisions import Counter

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from sidecar.config.slices import BudgetConfig, Config, RedisConfig
    from sidecar.store.protocol import Store

MEMORY: Final = "memory"
"""The name of the store of a sidecar without Redis."""


class RedisServer(NamedTuple):
    """One Redis by its masked URL, and the store on it."""

    name: str
    url: str
    store: Store


def budget(config: Config, on_failure: Callable[[Exception], None]) -> BudgetWithHolds:
    """Build the budget, which connects at its first use. ``on_failure`` receives errors of URLs and files."""
    own = config.identity
    if not config.redis.redis_url:
        from sidecar.store.memory import MemoryStore  # noqa: PLC0415 - 0.2 MiB, and a sidecar has only one of the stores

        alone = [(MEMORY, MemoryStore(lambda: time.time_ns() // 1_000))]
        return BudgetWithHolds(fleet_budget(config, alone), time.time, own.instance)

    def shared(mode: str) -> FleetBudget:
        stores = [(server.name, server.store) for server in servers(config, mode, on_failure)]
        return fleet_budget(config, stores, mode)

    other = partial(shared, ENFORCE if own.mode == SHADOW else SHADOW) if own.has_other_mode else None
    return BudgetWithHolds(shared(own.mode), time.time, own.instance, other)


def servers(
    config: Config, mode: str = "", on_failure: Callable[[Exception], None] = lambda _: None
) -> list[RedisServer]:
    """Every Redis server, in the order of the shares of the budget; ``mode`` as for ``prefix``."""
    from sidecar.store.redis import RedisStore  # noqa: PLC0415 - as in budget

    return [
        RedisServer(
            redis_urls.masked(url),
            url,
            RedisStore(
                url,
                prefix=prefix(config, mode),
                timeout_s=config.redis.redis_timeout,
                access=access(config.redis),
                events_max=config.redis.events_max,
                on_failure=on_failure,
            ),
        )
        for url in _urls(config.redis)
    ]


def fleet_budget(config: Config, stores: Sequence[tuple[str, Store]], mode: str = "") -> FleetBudget:
    """The budget over these stores; without Redis one that no other sidecar shares."""
    is_fixed = config.budget.budget_strategy == "fixed"
    return (FleetBudget if config.redis.redis_url else AloneBudget)(
        stores,
        terms(config),
        rng=random.Random(),  # noqa: S311 - it spreads retries, it guards nothing
        clock=boot_time,
        counter=partial(article_counter, config, mode, datetime.now) if is_fixed else None,
    )


def terms(config: Config) -> Terms:
    """The rules of this sidecar. Without Redis it knows no fleet: no floor of healthy ones, and no loss of data."""
    rules, redis = config.budget, config.redis
    is_shared = bool(redis.redis_url)
    return Terms(
        strategy=rules.budget_strategy,
        capacity=str(Share(*shares.parse(rules.budget))),
        window_us=_us(rules.budget_window),
        min_healthy=str(Share(*shares.parse(rules.min_healthy))) if is_shared else "0",
        never_last=rules.never_last and is_shared,
        spacing_us=_us(rules.spacing),
        trial=rules.trial == "on",
        probation_us=_us(rules.probation),
        refund_max=rules.refund_max if rules.refund == "on" else OFF,
        after_loss_wait=rules.after_data_loss == "wait" and is_shared,
        beat_us=_us(rules.beat_interval),
        servers=_digest(redis),
        error_limit=config.judging.error_limit,
    )


def known_capacity(rules: BudgetConfig) -> float:
    """Tokens per window; NaN if that depends on the fleet."""
    amount, is_part = shares.parse(rules.budget)
    return nan if is_part else amount


def prefix(config: Config, mode: str = "") -> str:
    """The prefix of the service's keys: those of this container's mode, or of another ``mode``."""
    own = config.identity
    return f"{{ha:{own.namespace}/{own.service}}}{_suffix(mode or own.mode)}"


def access(redis: RedisConfig) -> Access:
    """The files that are needed to log in."""
    return Access(redis.redis_password_file, redis.redis_ca, redis.redis_cert, redis.redis_key)


def boot_time() -> float:
    """Seconds that also pass while the machine sleeps: else its wake-up would look like a stepped clock of Redis."""
    return time.clock_gettime(time.CLOCK_BOOTTIME)


def article_counter(config: Config, mode: str, local_time: Callable[[], datetime]) -> Counter:
    """The article's counter: its windows are numbered within the hour of the local clock."""
    window_us, now = _us(config.budget.budget_window), local_time()
    into_hour_us = (now.minute * 60 + now.second) * US_PER_S + now.microsecond
    index, elapsed_us = divmod(into_hour_us, window_us)
    key = f"{config.budget.budget_key}{_suffix(mode or config.identity.mode)}:{index}"
    return Counter(key, window_us // US_PER_S, (window_us - elapsed_us) / US_PER_S)


def _urls(redis: RedisConfig) -> list[str]:
    """Return the URLs in the same order in the whole fleet, because the shares of the budget depend on it."""
    return sorted(redis_urls.redis_urls(redis.redis_url), key=lambda url: str(redis_urls.place(url)))


def _digest(redis: RedisConfig) -> str:
    """Return a digest of the list of servers, which reveals none of them."""
    if not redis.redis_url:
        return ""
    places = "\n".join(str(redis_urls.place(url)) for url in _urls(redis))
    return blake2b(places.encode(), digest_size=6).hexdigest()


def _suffix(mode: str) -> str:
    """Shadow mode has a budget and a fleet of its own."""
    return ":shadow" if mode == SHADOW else ""


def _us(seconds: float) -> int:
    return round(seconds * US_PER_S)
