"""The keys in Redis: all under the hash tag of the service, each with an expiry."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import TYPE_CHECKING

from harness.stores import HOLD, PREFIX, S, beat, commit, send_beat, suspect
from sidecar.core.fleet.fleet_settings import FleetSettings
from sidecar.core.fleet.records import Cull, Epoch, FleetState, HoldRow, Slot, Trial
from sidecar.core.types import Entry
from sidecar.store.redis import KEPT_S
from sidecar.store.redis_content import BEAT, COMMIT, READ
from store.conftest import Clock
from store.test_golden import history

if TYPE_CHECKING:
    from harness.redis_server import RedisServer
    from store.conftest import OpenStore

DAY_S = 86_400


def ends(server: RedisServer) -> dict[str, int]:
    """Seconds that each key has left; -1: it never ends."""
    return {key: int(server.cli("TTL", key)) for key in sorted(server.cli("KEYS", "*"))}


async def test_keys_of_a_service_that_has_ended_are_gone_in_the_end(
    faketime_redis: RedisServer, open_store: OpenStore
) -> None:
    clock, store = Clock(faketime_redis), open_store(faketime_redis.url)
    await commit(store, grant="a", holds={"": HOLD}, entries=[Entry("hold", 1.0)])
    await send_beat(store, beat("a", about="news"))
    assert await store.first("word", 60)
    assert ends(faketime_redis) == {
        **{f"{PREFIX}:{key}": KEPT_S for key in ("abouts", "alive", "errors", "events", "grants", "holds", "members")},
        **{f"{PREFIX}:{key}": KEPT_S for key in ("noted", "settings", "state")},
        f"{PREFIX}:first:word": 60,
    }
    clock.advance(DAY_S + 1)
    await send_beat(store, suspect("b"))
    assert {end for key, end in ends(faketime_redis).items() if key.rpartition(":")[2] not in ("events", "noted")} == {
        KEPT_S
    }
    clock.advance(KEPT_S + 1)
    assert ends(faketime_redis) == {}


async def test_expiry_is_renewed_once_a_day_and_by_a_clock_that_stepped_back(
    faketime_redis: RedisServer, open_store: OpenStore
) -> None:
    clock, store = Clock(faketime_redis), open_store(faketime_redis.url)
    kept = []
    for step_s in (0, DAY_S, 1, 1, -3 * DAY_S):
        clock.advance(step_s)
        await send_beat(store, beat("a"))
        kept.append(int(faketime_redis.cli("HGET", f"{PREFIX}:state", "kept")) // S - clock.now_us // S)
    assert kept == [0, -DAY_S, 0, -1, 0]


async def test_text_that_is_no_instant_of_a_renewal_hinders_no_beat(
    redis_server: RedisServer, open_store: OpenStore
) -> None:
    redis_server.cli("HSET", f"{PREFIX}:state", "kept", "soon")
    assert (await send_beat(open_store(redis_server.url), beat("a"))).alive == 1


async def test_page_lists_the_keys_that_a_fleet_leaves_behind(
    faketime_redis: RedisServer, open_store: OpenStore
) -> None:
    clock, store = Clock(faketime_redis), open_store(faketime_redis.url)
    await history(store, clock)
    assert await store.first("word", 60)
    kinds = {"zset": "sorted set"}
    left = {key.removeprefix(f"{PREFIX}:"): faketime_redis.cli("TYPE", key) for key in faketime_redis.cli("KEYS", "*")}
    listed = {cells[0].strip("`"): cells[1] for cells in rows_of_page("key")}
    assert listed == {name.replace("first:word", "first:<word>"): kinds.get(kind, kind) for name, kind in left.items()}
    assert set().union(*(script.keys for script in (READ, COMMIT, BEAT))) < left.keys()


def test_page_lists_the_fields_of_every_record() -> None:
    records = (Epoch, FleetState, Trial, Cull, Slot, HoldRow, FleetSettings)
    listed = {cells[0].strip("`"): re.findall(r"`(\w+)`", cells[2]) for cells in rows_of_page("record")}
    assert listed == {record.__name__: list(json.loads(record().dump()))[1:] for record in records}


def rows_of_page(first_column: str) -> list[list[str]]:
    """The cells of the table of the page that begins with this column."""
    page = (Path(__file__).parents[2] / "deploy/redis/keys.md").read_text()
    lines = page.partition(f"\n| {first_column} |")[2].partition("\n\n")[0].splitlines()[2:]
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]
