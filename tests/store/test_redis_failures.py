"""What goes wrong with a real Redis: one word, nothing raised, in time, and afterwards the same id gets its answer."""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING, Any

import pytest
from redis.asyncio import Redis

from harness.stores import FRESH, HEARD, PREFIX, REPLAYED, beat, claim, impatient, look, tell, warm, word_of
from harness.waiting import eventually
from sidecar.core.explain.reasons import UNKNOWN
from sidecar.store.protocol import Changes

if TYPE_CHECKING:
    from harness.redis_server import RedisServer
    from sidecar.store.redis import RedisStore
    from store.conftest import OpenStore, Proxy

TIMEOUT_S = 3.0
"""A second one of these would take longer than any pause of a busy machine."""
GRANTS = f"{PREFIX}:grants"


async def assert_refused_with(store: RedisStore, word: str) -> None:
    """Whatever is asked, the answer is the word, and the word has a sentence."""
    assert word in UNKNOWN
    assert await word_of(look(store)) == word
    assert await word_of(store.commit(0, Changes())) == word
    assert await word_of(tell(store, beat("a"))) == word
    assert await word_of(store.members(most=10, since_us=0)) == word
    assert await word_of(store.count("errorWatcher:1", 60)) == word
    assert await word_of(look(store)) == word


# -- away ---------------------------------------------------------------------------------------------------


async def test_killed_server_is_a_lost_connection_and_an_empty_one_grants_anew(
    redis_server: RedisServer, open_store: OpenStore
) -> None:
    store = open_store(redis_server.url)
    assert await claim(store, "a") == FRESH
    redis_server.kill()
    await assert_refused_with(store, "connection")
    redis_server.restart()
    assert await warm(store) == HEARD
    assert await claim(store, "a") == FRESH


async def test_connection_that_the_server_closed_meanwhile_is_replaced_without_a_failure(
    redis_server: RedisServer, open_store: OpenStore
) -> None:
    store = open_store(redis_server.url)
    assert await claim(store, "a") == FRESH
    redis_server.cli("CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes")
    route: Any = store._link._route
    await eventually(route._wire._connection.can_read, timeout_s=20, what="the end of the connection is seen")
    assert await claim(store, "a") == REPLAYED


async def test_server_that_refuses_another_client_is_a_lost_connection(
    redis_server: RedisServer, open_store: OpenStore
) -> None:
    async with Redis.from_url(redis_server.url) as other:
        await other.config_set("maxclients", 1)
        store = open_store(redis_server.url)
        assert await claim(store, "a") == "connection"
        await other.config_set("maxclients", 100)
    assert await claim(store, "a") == FRESH


async def test_host_that_cannot_be_a_name_is_a_lost_connection(open_store: OpenStore) -> None:
    await assert_refused_with(open_store(f"redis://{'x' * 64}:6379"), "connection")


async def test_missing_unix_socket_is_a_lost_connection(redis_server: RedisServer, open_store: OpenStore) -> None:
    await assert_refused_with(open_store(f"unix://{redis_server.unix_socket}.gone"), "connection")


# -- slow ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("warm_ups", [0, 1], ids=["cold", "warm"])
async def test_hung_server_is_a_timeout_within_the_timeout(
    warm_ups: int, redis_server: RedisServer, open_store: OpenStore
) -> None:
    store = open_store(redis_server.url, timeout_s=TIMEOUT_S)
    for _ in range(warm_ups):
        assert await warm(store) == HEARD
    redis_server.pause()
    started = time.monotonic()
    assert await claim(store, "a") == "timeout"
    assert TIMEOUT_S <= time.monotonic() - started < 2 * TIMEOUT_S
    with impatient(store):
        assert await warm(store) == "timeout"
    redis_server.resume()


async def test_after_a_hang_the_next_claim_gets_its_own_answer(
    redis_server: RedisServer, open_store: OpenStore
) -> None:
    store = open_store(redis_server.url)
    assert await warm(store) == HEARD
    redis_server.pause()
    with impatient(store):
        assert await word_of(store.commit(0, Changes(grant="a"))) == "timeout"
    redis_server.resume()
    # The server had "a" in its buffer and grants it late, to nobody.
    await eventually(lambda: redis_server.cli("ZCARD", GRANTS), timeout_s=20, what="a is granted")
    assert await claim(store, "b") == "granted 2"
    assert await claim(store, "a") == "replayed 2"


async def test_reply_that_comes_after_the_time_out_meets_nobody(
    redis_server: RedisServer, open_store: OpenStore, proxy: Proxy
) -> None:
    store = open_store(await proxy.open(redis_server.port))
    assert await warm(store) == HEARD
    proxy.holding = True
    with impatient(store):
        assert await word_of(store.commit(0, Changes(grant="a"))) == "timeout"
    proxy.release()
    assert await claim(store, "b") == "granted 2"


async def test_reply_to_a_cancelled_claim_meets_nobody(
    redis_server: RedisServer, open_store: OpenStore, proxy: Proxy
) -> None:
    store = open_store(await proxy.open(redis_server.port))
    assert await warm(store) == HEARD
    proxy.holding = True
    asking = asyncio.create_task(store.commit(0, Changes(grant="a")))
    await proxy.held.wait()
    asking.cancel()
    with pytest.raises(asyncio.CancelledError):
        await asking
    proxy.release()
    assert await claim(store, "b") == "granted 2"


async def test_claim_that_waits_for_its_turn_is_bounded_too(redis_server: RedisServer, open_store: OpenStore) -> None:
    store = open_store(redis_server.url, timeout_s=TIMEOUT_S)
    redis_server.pause()
    started = time.monotonic()
    answers = await asyncio.gather(*(claim(store, f"claim-{n}") for n in range(10)))
    assert answers == ["timeout"] * 10
    assert time.monotonic() - started < 2 * TIMEOUT_S
    redis_server.resume()


async def test_commit_whose_reply_was_lost_is_seen_by_the_next_read(
    redis_server: RedisServer, open_store: OpenStore, proxy: Proxy
) -> None:
    store = open_store(await proxy.open(redis_server.port))
    assert await warm(store) == HEARD
    proxy.holding = True
    with impatient(store):
        assert await word_of(store.commit(0, Changes(grant="a"))) == "timeout"
    proxy.holding = False
    await eventually(lambda: redis_server.cli("ZCARD", GRANTS), timeout_s=20, what="a is granted")
    assert await claim(store, "a") == REPLAYED
    assert await claim(store, "b") == "granted 2"


async def test_each_step_of_a_claim_costs_one_round_trip_after_a_beat(
    redis_server: RedisServer, open_store: OpenStore, proxy: Proxy
) -> None:
    store = open_store(await proxy.open(redis_server.port))
    assert await warm(store) == HEARD
    proxy.commands.clear()
    assert await claim(store, "a") == FRESH
    assert await store.count("errorWatcher:1", 60) == 1
    assert await warm(store) == HEARD
    assert proxy.commands == ["EVALSHA", "EVALSHA", "EVAL", "EVALSHA"]
