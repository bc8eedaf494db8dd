"""The latency of a claim, beside a PING by redis-py and a PING on the same kind of connection.

A denied claim reads and decides; a granted claim also commits. A cold claim is a denied claim on a connection that it
has to open first; beats keep the connection of a sidecar warm, so it is the first one after Redis was away.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Iterator, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from redis.asyncio import Redis

from bench.fleet import TIMEOUT_S, Service
from bench.rig import medians
from bench.table import Row, at_most, at_most_of_baseline, number, percentile, spread
from sidecar.core.types import Answer, Denied, Granted
from sidecar.store.redis_client import RedisClient

if TYPE_CHECKING:
    from bench.rig import Rig
    from sidecar.store.budget import FleetBudget

GRANTED_SHARE: Final = 3.4
DENIED_SHARE: Final = 1.7
COLD_US: Final = 500
TOKENS: Final = 10
SERVICES_A_ROUND: Final = 8
_WARM: Final = 20
_CLOSING_S: Final = 0.001
_COLUMNS: Final = (
    *("granted", "denied", "PING by redis-py", "PING alone"),
    *("cold claim", "cold PING by redis-py", "cold PING alone"),
)

Ask = Callable[[], Awaitable[object]]


def measure(rig: Rig, url: str, services: Sequence[Service]) -> list[Row]:
    """Every service grants its tokens and then denies as many claims, and as many on new connections.

    Each claim is followed by the two PINGs, a cold claim by two cold ones.
    """
    rounds = asyncio.run(_rounds(rig, url, services))
    p50 = [tuple(percentile(column, 50) for column in one) for one in rounds]
    for place, name in enumerate(_COLUMNS):
        every = [took for one in rounds for took in one[place]]
        p99 = number(percentile(every, 99))
        rig.notes.append(f"claims, {name}: p50 {spread([one[place] for one in p50])} us, p99 {p99} us")
    granted, denied, client, bare, cold, cold_client, cold_bare = medians(p50)
    return [
        Row("claim denied, p50, beside PING by redis-py", "us", denied, client, at_most_of_baseline(DENIED_SHARE)),
        Row("claim granted, p50, beside PING by redis-py", "us", granted, client, at_most_of_baseline(GRANTED_SHARE)),
        Row("claim denied, p50, beside PING on the same connection", "us", denied, bare),
        Row("claim granted, p50, beside PING on the same connection", "us", granted, bare),
        Row("cold claim, p50, beside cold PING by redis-py", "us", cold, cold_client, at_most(COLD_US, "us")),
        Row("cold claim, p50, beside cold PING on the same kind of connection", "us", cold, cold_bare),
    ]


async def _rounds(rig: Rig, url: str, services: Sequence[Service]) -> list[list[list[float]]]:
    client, bare = Redis.from_url(url), RedisClient(url, TIMEOUT_S)
    pings: tuple[Ask, Ask] = (client.ping, lambda: bare.ask(_same, "PING"))
    for _ in range(_WARM):
        for ping in pings:
            await _us(ping, _same)
    made = []
    for first in range(0, rig.rounds * SERVICES_A_ROUND, SERVICES_A_ROUND):
        took: list[list[float]] = [[] for _ in _COLUMNS]
        for service in services[first : first + SERVICES_A_ROUND]:
            budget = service.budget()
            await budget.beat(service.beat(0))  # opens the connection and loads the scripts
            await _ask_service(service, budget, pings, took)
            for _ in range(TOKENS):
                for place, (end, ask, expect) in enumerate(_cold(service, budget, client, bare), 4):
                    await end()
                    await asyncio.sleep(_CLOSING_S)  # both ends have closed
                    took[place].append(await _us(ask, expect))
            await budget.aclose()
        made.append(took)
    await client.aclose()
    await bare.aclose()
    return made


async def _ask_service(service: Service, budget: FleetBudget, pings: tuple[Ask, Ask], took: list[list[float]]) -> None:
    for member in range(2 * TOKENS):
        place, expect = (0, _granted) if member < TOKENS else (1, _denied)
        took[place].append(await _us(partial(budget.claim, service.claim(member)), expect))
        for ping_place, ping in enumerate(pings, 2):
            took[ping_place].append(await _us(ping, _same))


def _cold(
    service: Service, budget: FleetBudget, client: Redis, bare: RedisClient
) -> Iterator[tuple[Ask, Ask, Callable[[Any], object]]]:
    """For each way: how to end its connection, what to ask, and the check of the answer."""
    yield budget.aclose, partial(budget.claim, service.claim(2 * TOKENS)), _denied
    yield client.connection_pool.disconnect, client.ping, _same
    yield bare.aclose, lambda: bare.ask(_same, "PING"), _same


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
