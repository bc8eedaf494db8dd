"""What a fleet costs its Redis, by the store of this checkout: claims beside PINGs, and the beats of a service."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Iterator
from functools import partial
from random import Random
from typing import Final

from redis.asyncio import Redis

from bench import machine
from bench.rig import Rig
from bench.table import NOW, Row
from sidecar.core.fleet.fleet_settings import FleetSettings
from sidecar.core.types import US_PER_S, Beat, Claim, Denied, Granted, Presence, Unknown
from sidecar.store.budget import FleetBudget
from sidecar.store.redis import RedisStore

TOKENS: Final = 10
SERVICES: Final = 20
MEMBERS: Final = 200
BEATS: Final = 2_000
SETTINGS: Final = FleetSettings(beat_us=300 * US_PER_S, min_healthy="0", trial=False, after_loss_wait=False)
"""No member is removed between two rounds, and a new service may cull at once, and its last container."""

_INCARNATION: Final = "boot-2026-11-20T12:00:00Z"


def measure(rig: Rig) -> Iterator[Row]:
    """Latency of claims, one by one on a connection that is there; then the CPU of Redis for beats."""
    claims = asyncio.run(_claims(rig.redis.url, 3 if rig.is_quick else SERVICES))
    for name in ("granted", "denied"):
        yield Row(f"claim {name}, beside a PING", "us", {NOW: claims[name]}, baseline=claims["ping"])
    beat_us, ping_us = asyncio.run(_beats(rig))
    yield Row(
        f"CPU of Redis for a beat, service of {MEMBERS}, beside a PING", "us", {NOW: [beat_us]}, baseline=[ping_us]
    )


def _budget(url: str, service: str) -> FleetBudget:
    store = RedisStore(url, prefix=f"{{ha:default/{service}}}", timeout_s=5.0)
    return FleetBudget(store, SETTINGS, rng=Random(), clock=time.monotonic)


def _instance(member: int) -> str:
    """A name as long as those of Nomad."""
    return f"0f1e2d3c-4b5a-6978-8796-{member:012x}"


async def _claims(url: str, services: int) -> dict[str, list[float]]:
    """The microseconds of granted claims, of denied ones, and of as many PINGs by redis-py."""
    client = Redis.from_url(url)
    taken: dict[str, list[float]] = {"granted": [], "denied": [], "ping": []}
    await client.ping()
    for number in range(services):
        budget = _budget(url, f"claims-{number}")
        await budget.beat(Beat(_instance(0), _INCARNATION, Presence.SUSPECT, "redis", first=True))
        for member in range(2 * TOKENS):
            instance = _instance(member)
            claim = Claim(f"default/web/{instance}/{_INCARNATION}", instance, _INCARNATION, "redis")
            is_granted = member < TOKENS
            took_us, answer = await _us(partial(budget.claim, claim))
            _check(answer, is_granted=is_granted)
            taken["granted" if is_granted else "denied"].append(took_us)
            taken["ping"].append((await _us(client.ping))[0])
        await budget.aclose()
    await client.aclose()
    return taken


def _check(answer: object, *, is_granted: bool) -> None:
    is_right = isinstance(answer, Granted) if is_granted else isinstance(answer, Denied) and answer.reason == "window"
    if not is_right:
        raise RuntimeError(f"another answer than expected: {answer}")


async def _us(ask: Callable[[], Awaitable[object]]) -> tuple[float, object]:
    begun = time.perf_counter()
    answer = await ask()
    return (time.perf_counter() - begun) * 1e6, answer


async def _beats(rig: Rig) -> tuple[float, float]:
    """Microseconds of the CPU of Redis for a beat of a service with all its members, and for a PING."""
    budget, client = _budget(rig.redis.url, "beats"), Redis.from_url(rig.redis.url)

    async def beat(turn: int) -> None:
        answer = await budget.beat(Beat(_instance(turn % MEMBERS), _INCARNATION, Presence.WELL, "unknown"))
        if isinstance(answer, Unknown):
            raise TypeError(f"no answer to a beat: {answer}")

    async def cost_us(ask: Callable[[int], Awaitable[object]]) -> float:
        before = machine.cpu_s(rig.redis.pid)
        for turn in range(BEATS):
            await ask(turn)
        return (machine.cpu_s(rig.redis.pid) - before) / BEATS * 1e6

    for member in range(MEMBERS):
        await beat(member)
    costs = await cost_us(beat), await cost_us(lambda _turn: client.ping())
    await budget.aclose()
    await client.aclose()
    return costs
