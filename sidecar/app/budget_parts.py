"""Which budget the settings ask for: one in this process, one in Redis, or one that several servers share."""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from datetime import datetime
from functools import partial
from hashlib import blake2b
from math import nan
from typing import TYPE_CHECKING, Final, NamedTuple

from sidecar.config import redis_urls, rollout, shares
from sidecar.core.fleet.terms import OFF, Share, Terms
from sidecar.core.types import US_PER_S
from sidecar.store.alone import AloneBudget
from sidecar.store.budget import Budget, Counter, FleetBudget
from sidecar.store.held_budget import HeldBudget
from sidecar.store.later_budget import Later

if TYPE_CHECKING:
    from collections.abc import Sequence

    from sidecar.config.settings import Settings
    from sidecar.store.access import Access
    from sidecar.store.protocol import Store

_OTHER: Final = {rollout.ENFORCE: rollout.SHADOW, rollout.SHADOW: rollout.ENFORCE}

MEMORY: Final = "memory"
"""The name of the store of a sidecar without Redis."""


def opened(settings: Settings, on_failure: Callable[[Exception], None]) -> HeldBudget:
    """The budget; nothing of Redis is imported before it is first asked."""
    if not settings.redis_url:
        return HeldBudget(_own(settings), time.time, settings.instance)
    own = rollout.mode(settings)
    other = partial(_shared, settings, on_failure, _OTHER[own]) if rollout.is_parted(settings) else None
    return HeldBudget(_shared(settings, on_failure, own), time.time, settings.instance, other)


def terms(settings: Settings) -> Terms:
    """What this sidecar asks by. Without Redis it knows no fleet: no container has to stay, and no memory is lost."""
    is_shared = bool(settings.redis_url)
    return Terms(
        strategy=settings.budget_strategy,
        capacity=str(Share(*shares.parse(settings.budget))),
        window_us=_us(settings.budget_window),
        min_healthy=str(Share(*shares.parse(settings.min_healthy))) if is_shared else "0",
        never_last=settings.never_last and is_shared,
        spacing_us=_us(settings.spacing),
        trial=settings.trial == "on",
        probation_us=_us(settings.probation),
        refund_max=settings.refund_max if settings.refund == "on" else OFF,
        after_loss_wait=settings.after_data_loss == "wait" and is_shared,
        beat_us=_us(settings.beat_interval),
        servers=_digest(settings),
    )


def known_capacity(settings: Settings) -> float:
    """Tokens a window; not a number if that depends on the fleet."""
    amount, is_part = shares.parse(settings.budget)
    return nan if is_part else amount


def prefix(settings: Settings, mode: str = "") -> str:
    """What the keys of the service begin with; of those in another ``mode`` than this container if it is given."""
    return f"{{ha:{settings.namespace}/{settings.service}}}{_shadow(mode or rollout.mode(settings))}"


def access(settings: Settings) -> Access:
    """The files that it takes to be let in."""
    from sidecar.store.access import Access  # noqa: PLC0415 - the client of Redis, as in _store

    return Access(settings.redis_password_file, settings.redis_ca, settings.redis_cert, settings.redis_key)


class Server(NamedTuple):
    """One Redis by its masked URL, and the store that it keeps."""

    name: str
    url: str
    store: Store


def servers(settings: Settings, mode: str = "") -> list[Server]:
    """Every Redis server, in the order of the shares; ``mode`` as for ``prefix``.

    Raises ValueError for what cannot be used.
    """
    return [Server(redis_urls.masked(url), url, _store(settings, url, mode)) for url in _urls(settings)]


def fleet_budget(settings: Settings, stores: Sequence[tuple[str, Store]], mode: str = "") -> FleetBudget:
    """The budget over these stores: one that nobody else shares, without Redis."""
    is_fixed = settings.budget_strategy == "fixed"
    return (FleetBudget if settings.redis_url else AloneBudget)(
        stores,
        terms(settings),
        rng=random.Random(),  # noqa: S311 - it spreads what is tried anew, it guards nothing
        clock=awake_or_not,
        counter=partial(_counter, settings, mode, datetime.now) if is_fixed else None,
    )


def awake_or_not() -> float:
    """Seconds that also pass while the machine sleeps: or a laptop that wakes would take Redis' clock for stepped."""
    return time.clock_gettime(time.CLOCK_BOOTTIME)


def _own(settings: Settings) -> Budget:
    from sidecar.store.memory import MemoryStore  # noqa: PLC0415 - as for Redis: only one of the two is needed

    return fleet_budget(settings, [(MEMORY, MemoryStore(lambda: time.time_ns() // 1_000))])


def _shared(settings: Settings, on_failure: Callable[[Exception], None], mode: str) -> Budget:
    def make() -> Budget:
        stores = [(server.name, server.store) for server in servers(settings, mode)]
        return fleet_budget(settings, stores, mode)

    return Later(make, on_failure)


def _store(settings: Settings, url: str, mode: str) -> Store:
    from sidecar.store.redis import RedisStore  # noqa: PLC0415 - 7 MiB that a store in memory does not need

    return RedisStore(
        url,
        prefix=prefix(settings, mode),
        timeout_s=settings.redis_timeout,
        access=access(settings),
        events_max=settings.events_max,
    )


def _urls(settings: Settings) -> list[str]:
    """In one order for the whole fleet, whatever each sidecar was told: the shares go by it."""
    return sorted(redis_urls.redis_urls(settings.redis_url), key=lambda url: str(redis_urls.place(url)))


def _digest(settings: Settings) -> str:
    """A word for the list of servers that tells nothing of it."""
    if not settings.redis_url:
        return ""
    places = "\n".join(str(redis_urls.place(url)) for url in _urls(settings))
    return blake2b(places.encode(), digest_size=6).hexdigest()


def _counter(settings: Settings, mode: str, local_time: Callable[[], datetime]) -> Counter:
    """The article's counter: its windows are numbered within the hour of the local clock."""
    window_us, now = _us(settings.budget_window), local_time()
    into_hour_us = (now.minute * 60 + now.second) * US_PER_S + now.microsecond
    index, elapsed_us = divmod(into_hour_us, window_us)
    key = f"{settings.budget_key}{_shadow(mode or rollout.mode(settings))}:{index}"
    return Counter(key, window_us // US_PER_S, (window_us - elapsed_us) / US_PER_S)


def _shadow(mode: str) -> str:
    """Shadow mode counts in a bucket of its own, with a fleet of its own."""
    return ":shadow" if mode == rollout.SHADOW else ""


def _us(seconds: float) -> int:
    return round(seconds * US_PER_S)
