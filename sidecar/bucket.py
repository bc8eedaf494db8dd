"""Which bucket the settings ask for: one in this process, one in Redis, or one that several servers share."""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from functools import partial
from math import nan
from typing import TYPE_CHECKING, Final, NamedTuple

from sidecar import ramp
from sidecar.budget import Budget
from sidecar.budget.held import HeldBudget
from sidecar.budget.later import Later
from sidecar.core.terms import Share, Terms
from sidecar.core.words import US_PER_S
from sidecar.notation import redis_urls, shares

if TYPE_CHECKING:
    from sidecar.budget.access import Access
    from sidecar.budget.redis import RedisBudget
    from sidecar.settings import Settings

_OTHER: Final = {ramp.ENFORCE: ramp.SHADOW, ramp.SHADOW: ramp.ENFORCE}


def opened(settings: Settings, on_failure: Callable[[Exception], None]) -> HeldBudget:
    """The bucket; nothing of Redis is imported before it is first asked."""
    if not settings.redis_url:
        return HeldBudget(_own(settings), time.time, settings.instance)
    own = ramp.mode(settings)
    other = partial(_shared, settings, on_failure, _OTHER[own]) if ramp.is_parted(settings) else None
    return HeldBudget(_shared(settings, on_failure, own), time.time, settings.instance, other)


def terms(settings: Settings, index: int = 0, servers: int = 1) -> Terms:
    """What this sidecar asks by at the server with this number."""
    return Terms(
        strategy=settings.budget_strategy,
        capacity=Share(*shares.parse(settings.budget)),
        window_us=_us(settings.budget_window),
        min_healthy=Share(*shares.parse(settings.min_healthy)),
        never_last=settings.never_last,
        spacing_us=_us(settings.spacing),
        brake=round(settings.brake * 1000),
        probation_us=_us(settings.probation),
        useless_after=settings.useless_after,
        earn_max=settings.earn_max if settings.earn == "on" else -1,
        lost_is_empty=settings.lost_memory == "empty",
        beat_us=_us(settings.beat),
        index=index,
        servers=servers,
    )


def known_capacity(settings: Settings) -> float:
    """Tokens a window; not a number if that depends on the fleet."""
    amount, is_part = shares.parse(settings.budget)
    return nan if is_part else amount


def prefix(settings: Settings, mode: str = "") -> str:
    """What the keys of the service begin with; of those in another ``mode`` than this container if it is given."""
    return f"{{ha:{settings.namespace}/{settings.service}}}{_shadow(mode or ramp.mode(settings))}"


def access(settings: Settings) -> Access:
    """The files that it takes to be let in."""
    from sidecar.budget.access import Access  # noqa: PLC0415 - the client of Redis, as in _server

    return Access(settings.redis_password_file, settings.redis_ca, settings.redis_cert, settings.redis_key)


def _own(settings: Settings) -> Budget:
    from sidecar.budget.memory import MemoryBudget  # noqa: PLC0415 - as for Redis: only one of the two is needed
    from sidecar.core.grants import Quota  # noqa: PLC0415 - as above

    amount, _ = shares.parse(settings.budget)
    quota = Quota(amount, _us(settings.budget_window))
    return MemoryBudget(settings.budget_strategy, quota, lambda: time.time_ns() // 1_000, _us(settings.spacing))


class Server(NamedTuple):
    """One Redis, by its masked URL, and its share of the bucket."""

    name: str
    url: str
    share: RedisBudget


def servers(settings: Settings, mode: str = "") -> list[Server]:
    """Every Redis server, in the order of the shares; ``mode`` as for ``prefix``.

    Raises ValueError for what cannot be used.
    """
    # In one order for the whole fleet, whatever each sidecar was told: the shares go by it.
    urls = sorted(redis_urls.redis_urls(settings.redis_url), key=lambda url: str(redis_urls.place(url)))
    return [
        Server(redis_urls.masked(url), url, _server(settings, url, terms(settings, index, len(urls)), mode))
        for index, url in enumerate(urls)
    ]


def _shared(settings: Settings, on_failure: Callable[[Exception], None], mode: str) -> Budget:
    def make() -> Budget:
        every = servers(settings, mode)
        if len(every) == 1:
            return every[0].share
        from sidecar.budget.spread import Spread  # noqa: PLC0415 - most fleets have one Redis

        rng = random.Random()  # noqa: S311 - it orders servers, it guards nothing
        return Spread([(one.name, one.share) for one in every], rng, time.monotonic, time.time)

    return Later(make, on_failure)


def _server(settings: Settings, url: str, asks_by: Terms, mode: str) -> RedisBudget:
    from sidecar.budget.redis import RedisBudget  # noqa: PLC0415 - 7 MiB that a bucket in memory does not need

    return RedisBudget(
        url,
        terms=asks_by,
        prefix=prefix(settings, mode),
        fixed_key=settings.budget_key + _shadow(mode or ramp.mode(settings)),
        timeout_s=settings.redis_timeout,
        access=access(settings),
        events_max=settings.events_max,
    )


def _shadow(mode: str) -> str:
    """Shadow mode counts in a bucket of its own, with a fleet of its own."""
    return ":shadow" if mode == ramp.SHADOW else ""


def _us(seconds: float) -> int:
    return round(seconds * US_PER_S)
