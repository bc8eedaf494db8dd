"""An unreadable text never hides the others."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from harness.stores import CULL, HOLD, PREFIX, S, beat, claim, commit, look, send_beat, suspect
from sidecar.core.fleet.records import Epoch, FleetState, Slot, StoredRecord

if TYPE_CHECKING:
    from harness.redis_server import RedisServer
    from store.conftest import OpenStore

BAD: Final = b"\xff\xfe{"
SHOWN: Final = "\udcff\udcfe{"


async def test_row_under_a_name_of_bad_bytes_and_a_row_that_is_no_record_are_passed_over(
    redis_server: RedisServer, open_store: OpenStore
) -> None:
    store = open_store(redis_server.url)
    rows: dict[str, StoredRecord] = {"culls": CULL, "leases": Slot("holder"), "holds": HOLD}
    tables: dict[str, Any] = {table: {"good": row} for table, row in rows.items()}
    await commit(store, **tables)
    for table, row in rows.items():
        bad = ("b", BAD, "c", "[]", "d", '{"at_us":"now"}', "e", "?")
        redis_server.cli("HSET", f"{PREFIX}:{table}", BAD, row.dump(), *bad)
        assert getattr(await look(store), table) == {"good": row}
    redis_server.cli("HSET", f"{PREFIX}:state", "epoch", "?", "state", "[]")
    view = await look(store)
    assert (view.epoch, view.state) == (Epoch(), FleetState())


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
    view = await look(store)
    assert (view.epoch, view.state, view.holds) == (Epoch(), FleetState(), {})
    assert (view.alive, view.causes, view.control) == (2, {"redis": 1, SHOWN: 1}, {SHOWN: 1})
    assert set(view.grants) == {"claim", SHOWN}
    heard = await send_beat(store, beat("b"))
    assert (heard.alive, heard.holds, heard.causes["redis"]) == (3, {}, 1)
    members = (await store.members(most=10, since_us=0)).members
    assert [(name, row) for name, _, row, _ in members] == [("a", "1\nredis\n0"), ("b", "1\n\n0"), (SHOWN, "")]
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
