"""What goes wrong with a real Redis: one word, nothing raised, in time, and afterwards the same id gets its answer."""

from __future__ import annotations

import asyncio
import time
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import pytest
from redis.asyncio import Redis

from harness.claims import ask, beat, claim, warm
from harness.twins import impatient
from harness.waiting import eventually
from sidecar.budget.redis import RedisBudget
from sidecar.core.sentences import UNKNOWN
from sidecar.core.words import Granted, Unknown

if TYPE_CHECKING:
    from budget.conftest import OpenBudget, Proxy
    from harness.redis_server import RedisServer

FRESH = Granted(1, 10)
REPLAYED = Granted(1, 10, replayed=True)
TIMEOUT_S = 3.0
"""A second one of these would take longer than any pause of a busy machine."""
NOON = datetime(2026, 11, 20, 12, tzinfo=UTC)


async def assert_refused_with(budget: RedisBudget, word: str) -> None:
    """Whatever is asked, the answer is the word, and the word has a sentence."""
    assert word in UNKNOWN
    assert await budget.claim(claim("a")) == Unknown(word)
    assert await budget.beat(beat("a")) == Unknown(word)
    assert await budget.hold("", "ops", "a deploy", 60) == Unknown(word)
    assert await budget.release("") == Unknown(word)
    assert await budget.roll() == Unknown(word)
    assert await budget.claim(claim("a")) == Unknown(word)


# -- away ---------------------------------------------------------------------------------------------------


async def test_killed_server_is_a_lost_connection_and_an_empty_one_grants_anew(
    redis_server: RedisServer, open_budget: OpenBudget
) -> None:
    budget = open_budget(redis_server.url)
    assert await ask(budget, "a") == FRESH
    redis_server.kill()
    await assert_refused_with(budget, "connection")
    redis_server.restart()
    assert await warm(budget) is None
    assert await ask(budget, "a") == FRESH


async def test_connection_that_the_server_closed_meanwhile_is_replaced_without_a_failure(
    redis_server: RedisServer, open_budget: OpenBudget
) -> None:
    budget = open_budget(redis_server.url)
    assert await ask(budget, "a") == FRESH
    redis_server.cli("CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes")
    route: Any = budget._link._route
    await eventually(route._wire._connection.can_read, timeout_s=20, what="the end of the connection is seen")
    assert await ask(budget, "a") == REPLAYED


async def test_server_that_refuses_another_client_is_a_lost_connection(
    redis_server: RedisServer, open_budget: OpenBudget
) -> None:
    async with Redis.from_url(redis_server.url) as other:
        await other.config_set("maxclients", 1)
        budget = open_budget(redis_server.url)
        assert await ask(budget, "a") == Unknown("connection")
        await other.config_set("maxclients", 100)
    assert await ask(budget, "a") == FRESH


async def test_host_that_cannot_be_a_name_is_a_lost_connection(open_budget: OpenBudget) -> None:
    await assert_refused_with(open_budget(f"redis://{'x' * 64}:6379"), "connection")


async def test_missing_unix_socket_is_a_lost_connection(redis_server: RedisServer, open_budget: OpenBudget) -> None:
    await assert_refused_with(open_budget(f"unix://{redis_server.unix_socket}.gone"), "connection")


# -- slow ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("warm_ups", [0, 1], ids=["cold", "warm"])
async def test_hung_server_is_a_timeout_within_the_timeout(
    warm_ups: int, redis_server: RedisServer, open_budget: OpenBudget
) -> None:
    budget = open_budget(redis_server.url, timeout_s=TIMEOUT_S)
    for _ in range(warm_ups):
        assert await warm(budget) is None
    redis_server.pause()
    started = time.monotonic()
    assert await ask(budget, "a") == Unknown("timeout")
    assert TIMEOUT_S <= time.monotonic() - started < 2 * TIMEOUT_S
    with impatient(budget):
        assert await warm(budget) == Unknown("timeout")
    redis_server.resume()


async def test_after_a_hang_the_next_claim_gets_its_own_answer(
    redis_server: RedisServer, open_budget: OpenBudget
) -> None:
    budget = open_budget(redis_server.url)
    assert await warm(budget) is None
    redis_server.pause()
    with impatient(budget):
        assert await ask(budget, "a") == Unknown("timeout")
    redis_server.resume()
    # The server had "a" in its buffer and grants it late, to nobody.
    await eventually(lambda: redis_server.cli("ZCARD", "{ha:default/app}:grants"), timeout_s=20, what="a is granted")
    assert await ask(budget, "b") == Granted(2, 10)
    assert await ask(budget, "a") == Granted(2, 10, replayed=True)


async def test_reply_that_comes_after_the_time_out_meets_nobody(
    redis_server: RedisServer, open_budget: OpenBudget, proxy: Proxy
) -> None:
    budget = open_budget(await proxy.open(redis_server.port))
    assert await warm(budget) is None
    proxy.holding = True
    with impatient(budget):
        assert await ask(budget, "a") == Unknown("timeout")
    proxy.release()
    assert await ask(budget, "b") == Granted(2, 10)


async def test_reply_to_a_cancelled_claim_meets_nobody(
    redis_server: RedisServer, open_budget: OpenBudget, proxy: Proxy
) -> None:
    budget = open_budget(await proxy.open(redis_server.port))
    assert await warm(budget) is None
    proxy.holding = True
    asking = asyncio.create_task(ask(budget, "a"))
    await proxy.held.wait()
    asking.cancel()
    with pytest.raises(asyncio.CancelledError):
        await asking
    proxy.release()
    assert await ask(budget, "b") == Granted(2, 10)


async def test_claim_that_waits_for_its_turn_is_bounded_too(redis_server: RedisServer, open_budget: OpenBudget) -> None:
    budget = open_budget(redis_server.url, timeout_s=TIMEOUT_S)
    redis_server.pause()
    started = time.monotonic()
    answers = await asyncio.gather(*(ask(budget, f"claim-{n}") for n in range(10)))
    assert answers == [Unknown("timeout")] * 10
    assert time.monotonic() - started < 2 * TIMEOUT_S
    redis_server.resume()


@pytest.mark.parametrize("strategy", ["log", "previous", "fixed"])
async def test_token_whose_reply_was_lost_is_replayed_and_paid_once(
    strategy: str, redis_server: RedisServer, open_budget: OpenBudget, proxy: Proxy
) -> None:
    budget = open_budget(await proxy.open(redis_server.port), strategy=strategy, local_time=lambda: NOON)
    assert await warm(budget) is None
    proxy.holding = True
    with impatient(budget):
        assert await ask(budget, "a") == Unknown("timeout")
    proxy.holding = False
    await eventually(lambda: redis_server.cli("ZCARD", "{ha:default/app}:grants"), timeout_s=20, what="a is granted")
    assert await ask(budget, "a") == REPLAYED
    assert await ask(budget, "b") == Granted(2, 10)


async def test_fixed_token_whose_reply_was_lost_before_a_boundary_is_not_paid_again_after_it(
    redis_server: RedisServer, open_budget: OpenBudget, proxy: Proxy
) -> None:
    local = [datetime(2026, 11, 20, 12, 9, 59, tzinfo=UTC)]
    fixed = {"strategy": "fixed", "local_time": lambda: local[0]}
    budget = open_budget(await proxy.open(redis_server.port), **fixed)
    assert await warm(budget) is None
    proxy.holding = True
    with impatient(budget):
        assert await ask(budget, "a") == Unknown("timeout")
    await eventually(lambda: redis_server.cli("GET", "errorWatcher:0"), timeout_s=20, what="a is granted")
    local[0] = datetime(2026, 11, 20, 12, 10, 0, tzinfo=UTC)
    after_a_restart_of_the_sidecar = open_budget(redis_server.url, **fixed)
    assert await ask(after_a_restart_of_the_sidecar, "a") == Granted(0, 10, replayed=True)
    assert redis_server.cli("EXISTS", "errorWatcher:1") == 0
