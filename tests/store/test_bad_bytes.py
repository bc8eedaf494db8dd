"""An unreadable text never hides the others."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import pytest

from harness.stores import PREFIX, S, beat, claim, commit, look, send_beat, suspect
from sidecar.store.protocol import Write

if TYPE_CHECKING:
    from harness.redis_server import RedisServer
    from store.conftest import OpenStore

BAD: Final = b"\xff\xfe{"
SHOWN: Final = "\udcff\udcfe{"


@pytest.mark.parametrize("table", ["culls", "leases", "holds"])
async def test_row_under_a_name_of_bad_bytes_is_passed_over_and_a_bad_text_is_kept(
    table: str, redis_server: RedisServer, open_store: OpenStore
) -> None:
    store = open_store(redis_server.url)
    await commit(store, writes=[Write(table, "a", "good")])
    redis_server.cli("HSET", f"{PREFIX}:{table}", BAD, "x", "b", BAD)
    assert getattr(await look(store), table) == {"a": "good", "b": SHOWN}
    await commit(store, writes=[Write(table, "b", "")])
    assert getattr(await look(store), table) == {"a": "good"}


async def test_bad_bytes_in_every_key_hide_nothing(redis_server: RedisServer, open_store: OpenStore) -> None:
    store = open_store(redis_server.url)
    assert await claim(store, "claim") == "granted 1"
    await send_beat(store, suspect("a", about="news"))
    now = (await look(store)).now_us
    redis_server.cli("HSET", f"{PREFIX}:state", "epoch", BAD, "state", BAD)
    redis_server.cli("HSET", f"{PREFIX}:holds", "", BAD, "a", BAD)
    for key in ("members", "abouts", "culls"):
        redis_server.cli("HSET", f"{PREFIX}:{key}", BAD, BAD)
    redis_server.cli("HSET", f"{PREFIX}:causes", BAD, "1", "none", "x")
    redis_server.cli("HSET", f"{PREFIX}:control", BAD, "1", "refused|none", BAD)
    for key in ("alive", "settings", "grants", "refunded", "departed"):
        redis_server.cli("ZADD", f"{PREFIX}:{key}", now, BAD)
    raw = await look(store)
    assert (raw.epoch, raw.state, raw.holds) == (SHOWN, SHOWN, {"": SHOWN, "a": SHOWN})
    assert (raw.alive, raw.causes, raw.control) == (2, {"redis": 1, SHOWN: 1}, {SHOWN: 1})
    assert set(raw.grants) == {"claim", SHOWN}
    heard = await send_beat(store, beat("b"))
    assert (heard.alive, heard.holds, heard.causes["redis"]) == (3, (None, None), 1)
    members = (await store.members(most=10, since_us=0)).members
    assert [(name, row) for name, _, row, _ in members] == [("a", "1\nredis\n0"), ("b", "1\n\n0"), (SHOWN, SHOWN)]
    redis_server.cli("ZADD", f"{PREFIX}:alive", now - 60 * S, BAD)
    heard = await send_beat(store, beat("b"))
    assert (heard.struck, heard.causes["redis"]) == ((SHOWN,), 1)
    assert await claim(store, "other") == "granted 3"


async def test_row_of_a_member_that_another_version_wrote_is_no_suspect(
    redis_server: RedisServer, open_store: OpenStore
) -> None:
    store = open_store(redis_server.url)
    for row in ("", "7", "a\nb", "a\nb\nc\n2"):
        redis_server.cli("HSET", f"{PREFIX}:members", "a", row)
        assert (await send_beat(store, suspect("a"))).causes == {"redis": 1}
        assert (await send_beat(store, beat("a"))).causes == {}
