"""A connection that has ended is noticed before the next command, whoever closed it, until the next beat."""

from __future__ import annotations

import asyncio
import re
from typing import TYPE_CHECKING

import pytest

from harness.sentinels import MASTER, masters_reply
from harness.stores import beat, impatient, look, send_beat, word_of
from harness.waiting import eventually
from sidecar.store import redis_client

if TYPE_CHECKING:
    from harness.redis_server import RedisServer
    from sidecar.store.redis import RedisStore
    from store.conftest import Actor, OpenStore


async def noticed(store: RedisStore) -> bool:
    """True, once the store has noticed the end of its connection."""
    return await eventually(store.lost.is_set, timeout_s=30, what="the connection is lost")


def clients_of_scripts(server: RedisServer) -> list[str]:
    """The ids of the connections over which a script came last."""
    return re.findall(r"^id=(\d+) .* cmd=eval", str(server.cli("CLIENT", "LIST")), re.MULTILINE)


@pytest.fixture
async def store(redis_server: RedisServer, open_store: OpenStore) -> RedisStore:
    """A store whose connection is open and idle."""
    store = open_store(redis_server.url)
    await send_beat(store, beat("a"))
    assert not store.lost.is_set()
    return store


async def test_server_that_is_killed_is_noticed_and_a_beat_asks_the_next_process(
    redis_server: RedisServer, store: RedisStore
) -> None:
    before = (await look(store)).run_id
    redis_server.restart()
    assert await noticed(store)
    assert (await send_beat(store, beat("a"))).run_id not in ("", before)
    assert not store.lost.is_set()


async def test_watched_connection_is_the_one_that_the_next_call_uses(
    redis_server: RedisServer, store: RedisStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(redis_client, "WATCH_AFTER_S", 0.0)
    before = clients_of_scripts(redis_server)
    for _ in range(3):
        assert not store.lost.is_set()
        for _ in range(4):  # the watch begins to read
            await asyncio.sleep(0)
        assert (await look(store)).alive == 1
    assert clients_of_scripts(redis_server) == before
    assert len(before) == 1


async def test_master_that_closes_an_idle_connection_is_noticed(
    actor: Actor, redis_server: RedisServer, open_store: OpenStore
) -> None:
    actor.line = masters_reply(redis_server.port)
    store = open_store(f"{await actor.open()}/{MASTER}".replace("redis", "redis+sentinel"))
    await send_beat(store, beat("a"))
    assert not store.lost.is_set()
    redis_server.cli("CLIENT", "KILL", "TYPE", "normal")
    assert await noticed(store)


async def test_failed_call_ends_the_connection_and_a_failed_beat_asks_for_none(
    redis_server: RedisServer, store: RedisStore
) -> None:
    redis_server.pause()
    with impatient(store):
        assert await word_of(look(store)) == "timeout"
        assert store.lost.is_set()
        assert await word_of(send_beat(store, beat("a"))) == "timeout"
    assert not store.lost.is_set()
