"""What a real Redis refuses: one word each, and once it is set right the same id gets its answer."""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING
from urllib.parse import quote

import pytest
from redis.asyncio import Redis

from harness.stores import FRESH, HEARD, PREFIX, REPLAYED, claim, commit, look, warm, word_of
from harness.waiting import eventually
from sidecar.store.protocol import Write
from sidecar.store.redis import RedisStore

if TYPE_CHECKING:
    from harness.redis_server import RedisServer
    from harness.starting import StartRedis
    from store.conftest import OpenStore

SECRET = "s3cret/pass?word"


async def assert_refused_with(store: RedisStore, word: str) -> None:
    assert await claim(store, "a") == word
    assert await claim(store, "a") == word


def logins(server: RedisServer) -> dict[str, str]:
    secret, wrong = quote(SECRET, safe=""), quote(f"{SECRET}x", safe="")
    return {
        "wrong": f"redis://:{wrong}@127.0.0.1:{server.port}",
        "none": f"redis://127.0.0.1:{server.port}",
        "unknown user": f"redis://nobody:{secret}@127.0.0.1:{server.port}",
        "wrong over a unix socket": f"unix://:{wrong}@{server.unix_socket}",
    }


# -- who may ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("login", ["wrong", "none", "unknown user", "wrong over a unix socket"])
async def test_login_that_the_server_refuses_is_auth_and_tells_no_secret(
    login: str, start_redis: StartRedis, open_store: OpenStore, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    server = start_redis(password=SECRET)
    store = open_store(logins(server)[login])
    await assert_refused_with(store, "auth")
    assert await warm(store) == "auth"
    assert "s3cret" not in caplog.text + repr(store) + repr(vars(store))


async def test_login_that_was_set_right_on_the_server_works_with_the_same_budget(
    start_redis: StartRedis, open_store: OpenStore
) -> None:
    server = start_redis(password="old")
    store = open_store(f"redis://:new@127.0.0.1:{server.port}")
    await assert_refused_with(store, "auth")
    server.cli("CONFIG", "SET", "requirepass", "new")
    assert await claim(store, "a") == FRESH


async def test_right_login_works_over_tcp_and_unix_socket(start_redis: StartRedis, open_store: OpenStore) -> None:
    server = start_redis(password=SECRET)
    assert await claim(open_store(server.url), "a") == FRESH
    over_socket = open_store(f"unix://:{quote(SECRET, safe='')}@{server.unix_socket}?db=0")
    assert await claim(over_socket, "a") == REPLAYED


@pytest.mark.parametrize("url", ["redis://127.0.0.1:{port}/1", "unix://{path}?db=1"])
async def test_database_of_the_url_is_the_one_written_to(
    url: str, redis_server: RedisServer, open_store: OpenStore
) -> None:
    store = open_store(url.format(port=redis_server.port, path=redis_server.unix_socket))
    assert await claim(store, "a") == FRESH
    assert redis_server.cli("INFO", "keyspace").keys() == {"db1"}


@pytest.mark.parametrize("url", ["redis://127.0.0.1:{port}/99", "unix://{path}?db=99"])
async def test_database_that_is_not_there_is_never_mistaken_for_another(
    url: str, redis_server: RedisServer, open_store: OpenStore
) -> None:
    store = open_store(url.format(port=redis_server.port, path=redis_server.unix_socket))
    await assert_refused_with(store, "response")
    assert redis_server.cli("INFO", "keyspace") == {}


@pytest.mark.parametrize("missing", ["-eval -evalsha", "-zcount", "-time", "resetkeys ~other:*"])
async def test_user_who_may_not_is_a_permission_and_may_later(
    missing: str, redis_server: RedisServer, open_store: OpenStore
) -> None:
    redis_server.cli("ACL", "SETUSER", "app", "on", ">pw", "~*", "+@all", *missing.split())
    store = open_store(f"redis://app:pw@127.0.0.1:{redis_server.port}")
    await assert_refused_with(store, "permission")
    redis_server.cli("ACL", "SETUSER", "app", "~*", "+@all")
    assert await claim(store, "a") == FRESH


# -- what may not be written --------------------------------------------------------------------------------


async def test_read_only_replica_is_readonly_until_it_is_promoted(
    start_redis: StartRedis, open_store: OpenStore
) -> None:
    server = start_redis(read_only=True)
    store = open_store(server.url)
    await assert_refused_with(store, "readonly")
    assert await warm(store) == "readonly"
    assert (await look(store)).revision == 0
    server.cli("REPLICAOF", "NO", "ONE")
    assert await claim(store, "a") == FRESH


async def test_full_memory_is_oom_and_writes_nothing_of_a_commit(
    redis_server: RedisServer, open_store: OpenStore
) -> None:
    store = open_store(redis_server.url)
    hold = Write("holds", "", "hold")
    await commit(store, writes=[hold])
    redis_server.cli("CONFIG", "SET", "maxmemory", "1")
    await assert_refused_with(store, "oom")
    assert await warm(store) == "oom"
    assert await word_of(commit(store, writes=[hold._replace(text="")], grant="b")) == "oom"
    raw = await look(store)
    assert (raw.revision, raw.holds, raw.grants, raw.alive) == (1, {"": "hold"}, {}, 0)
    redis_server.cli("CONFIG", "SET", "maxmemory", "0")
    assert await claim(store, "a") == FRESH


@pytest.mark.parametrize("key", ["grants", "refunded", "state", "culls", "leases", "holds"])
async def test_key_of_another_kind_is_an_error_and_left_alone(
    key: str, redis_server: RedisServer, open_store: OpenStore
) -> None:
    redis_server.cli("SET", f"{PREFIX}:{key}", "something")
    store = open_store(redis_server.url)
    await assert_refused_with(store, "response")
    assert redis_server.cli("GET", f"{PREFIX}:{key}") == "something"
    redis_server.cli("DEL", f"{PREFIX}:{key}")
    assert await claim(store, "a") == FRESH


# -- busy ---------------------------------------------------------------------------------------------------


async def test_busy_server_is_busy_and_then_answers(redis_server: RedisServer, open_store: OpenStore) -> None:
    store = open_store(redis_server.url)
    assert await warm(store) == HEARD
    redis_server.cli("CONFIG", "SET", "busy-reply-threshold", "20")
    async with Redis.from_url(redis_server.url, socket_timeout=30) as other:
        spinning = asyncio.create_task(_spin(other))
        await eventually(lambda: _is_busy(store), timeout_s=20, what="busy")
        assert await warm(store) == "busy"
        redis_server.cli("SCRIPT", "KILL")
        await spinning
    assert await claim(store, "a") == FRESH


async def _spin(client: Redis) -> None:
    with pytest.raises(Exception, match="killed by user"):
        await client.eval("while true do end", 0)


async def _is_busy(store: RedisStore) -> bool:
    return await warm(store) == "busy"


# -- the script ---------------------------------------------------------------------------------------------


async def test_flushed_script_is_sent_again(redis_server: RedisServer, open_store: OpenStore) -> None:
    store = open_store(redis_server.url)
    assert await warm(store) == HEARD
    redis_server.cli("SCRIPT", "FLUSH")
    assert await claim(store, "a") == FRESH
    redis_server.cli("SCRIPT", "FLUSH")
    assert await warm(store) == HEARD
    assert await claim(store, "a") == REPLAYED
