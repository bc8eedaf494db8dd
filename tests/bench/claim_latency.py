"""The latency of a claim, beside a PING by redis-py and a PING on the same kind of connection.

A denied claim reads and decides; a granted claim also commits.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from redis.asyncio import Redis

from bench.fleet import TIMEOUT_S, Service
from bench.rig import medians
from bench.table import Row, at_most_of_baseline, number, percentile, spread
from sidecar.core.types import Answer, Denied, Granted
from sidecar.store.redis_client import RedisClient

if TYPE_CHECKING:
    from bench.rig import Rig

GRANTED_SHARE: Final = 3.4
DENIED_SHARE: Final = 1.7
TOKENS: Final = 10
SERVICES_A_ROUND: Final = 8
_WARM: Final = 20

Ask = Callable[[], Awaitable[object]]


def measure(rig: Rig, url: str, services: Sequence[Service]) -> list[Row]:
    """Every service grants its tokens and then denies as many claims; each claim is followed by the two PINGs."""
    rounds = asyncio.run(_rounds(rig, url, services))
    names = ("granted", "denied", "PING by redis-py", "PING alone")
    p50 = [tuple(percentile(column, 50) for column in one) for one in rounds]
    for place, name in enumerate(names):
        every = [took for one in rounds for took in one[place]]
        p99 = number(percentile(every, 99))
        rig.notes.append(f"claims, {name}: p50 {spread([one[place] for one in p50])} us, p99 {p99} us")
    granted, denied, client, bare = medians(p50)
    return [
        Row("claim denied, p50, beside PING by redis-py", "us", denied, client, at_most_of_baseline(DENIED_SHARE)),
        Row("claim granted, p50, beside PING by redis-py", "us", granted, client, at_most_of_baseline(GRANTED_SHARE)),
        Row("claim denied, p50, beside PING on the same connection", "us", denied, bare),
        Row("claim granted, p50, beside PING on the same connection", "us", granted, bare),
    ]


async def _rounds(rig: Rig, url: str, services: Sequence[Service]) -> list[list[list[float]]]:
    client, bare = Redis.from_url(url), RedisClient(url, TIMEOUT_S)
    pings: tuple[Ask, Ask] = (client.ping, lambda: bare.ask(_same, "PING"))
    for _ in range(_WARM):
        for ping in pings:
            await _us(ping, _same)
    made = []
    for first in range(0, rig.rounds * SERVICES_A_ROUND, SERVICES_A_ROUND):
        took: list[list[float]] = [[], [], [], []]
        for service in services[first : first + SERVICES_A_ROUND]:
            await _ask_service(service, pings, took)
        made.append(took)
    await client.aclose()
    await bare.aclose()
    return made


async def _ask_service(service: Service, pings: tuple[Ask, Ask], took: list[list[float]]) -> None:
    budget = service.budget()
    await budget.beat(service.beat(0))  # opens the connection and loads the scripts
    for member in range(2 * TOKENS):
        place, expect = (0, _granted) if member < TOKENS else (1, _denied)
        took[place].append(await _us(partial(budget.claim, service.claim(member)), expect))
        for ping_place, ping in enumerate(pings, 2):
            took[ping_place].append(await _us(ping, _same))
    await budget.aclose()


async def _us(ask: Ask, expect: Callable[[Any], object]) -> float:
    begun = time.perf_counter()
    answer = await ask()
    took = time.perf_counter() - begun
    expect(answer)
    return took * 1_000_000


def _same(reply: Any) -> Any:
    return reply


def _granted(answer: Answer) -> None:
    if not isinstance(answer, Granted) or answer.replayed:
        raise RuntimeError(f"not granted: {answer}")


def _denied(answer: Answer) -> None:
    if not isinstance(answer, Denied) or answer.reason != "window":
        raise RuntimeError(f"not denied by the window: {answer}")
