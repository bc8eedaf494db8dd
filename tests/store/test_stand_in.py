"""The store against fakeredis, for machines without a redis-server: beats, claims, and an end without warning.

Time in scripts and what a server does when it fails are tested on the real one.
"""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

import pytest
from fakeredis import TcpFakeServer
from redis import Redis

from harness.stores import FRESH, HEARD, REPLAYED, beat, claim, commit, look, send_beat, suspect, warm
from sidecar.core.types import Entry, Presence
from sidecar.store import scripts
from sidecar.store.protocol import Over, Write

if TYPE_CHECKING:
    from collections.abc import Iterator

    from store.conftest import OpenStore


@pytest.fixture
def stand_in() -> Iterator[str]:
    server = TcpFakeServer(("127.0.0.1", 0), server_type="redis")
    server.daemon_threads = True
    threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True).start()
    url = f"redis://127.0.0.1:{server.server_address[1]}"
    with Redis.from_url(url, protocol=2) as client:
        for script in (scripts.READ, scripts.COMMIT, scripts.BEAT):
            client.script_load(script.text)  # it hangs up instead of saying NOSCRIPT
    yield url
    server.shutdown()
    server.server_close()


async def test_two_of_three_are_granted_and_a_replay_is_free(stand_in: str, open_store: OpenStore) -> None:
    store = open_store(stand_in)
    assert await warm(store) == HEARD
    assert await claim(store, "a") == FRESH
    assert await claim(store, "a") == REPLAYED
    await commit(store, grant="b", capacity=2, writes=[Write("holds", "", "x")], entries=[Entry("hold", 1.0)])
    with pytest.raises(Over):
        await commit(store, grant="c", capacity=2)
    raw = await look(store)
    assert (set(raw.grants), raw.holds) == ({"a", "b"}, {"": "x"})
    assert len(await store.entries(0, "", 10)) == 1


async def test_members_and_their_causes_are_counted(stand_in: str, open_store: OpenStore) -> None:
    store = open_store(stand_in)
    for told in (beat("a", about="news"), suspect("b", errors=3, ratio=7, refused=True), beat("c")):
        await send_beat(store, told)
    heard = await send_beat(store, beat("c", Presence.GONE))
    assert (heard.alive, heard.causes, heard.median_errors, heard.median_ratio) == (2, {"redis": 1}, 3, 7)
    raw = await look(store, "b")
    assert (raw.alive, raw.control, raw.member) == (2, {"refused|redis": 1}, "1\nredis\n1")
    listing = await store.members(most=10, since_us=0)
    assert [(name, about) for name, _, _, about in listing.members] == [("a", "news"), ("b", "")]
    assert [name for name, _ in listing.departed] == ["c"]


async def test_nobody_at_the_address_is_a_lost_connection(open_store: OpenStore) -> None:
    server = TcpFakeServer(("127.0.0.1", 0), server_type="redis")
    url = f"redis://127.0.0.1:{server.server_address[1]}"
    server.server_close()
    assert await claim(open_store(url), "a") == "connection"
