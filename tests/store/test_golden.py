"""The content of Redis: its keys, their expiry, and what a version has left there, which every later one reads.

Each file of ``golden`` has every key of a service as one version wrote them; the highest number is of the newest. A
file is never changed once a version was released with it: a version that writes another content adds a file of its own,
and still reads the old ones.
"""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import pytest

from harness.claims import S, beat, suspect
from harness.stores import PREFIX, WINDOW_US, commit, look, send_beat
from sidecar.core.claims import Presence
from sidecar.core.fleet.fleet_settings import FleetSettings
from sidecar.core.fleet.records import Cull, Epoch, FleetState, HoldRow, Slot, Trial
from sidecar.core.fleet.view import MemberKey, View
from sidecar.core.types import Entry
from sidecar.store.redis import KEPT_S
from sidecar.store.redis_content import BEAT, COMMIT, READ
from store.conftest import START_US, Clock

if TYPE_CHECKING:
    from collections.abc import Callable

    from harness.redis_server import RedisServer
    from sidecar.store.redis import RedisStore
    from store.conftest import OpenStore

GOLDEN: Final = Path(__file__).with_name("golden")
NEWEST: Final = GOLDEN / "3.json"

EPOCH: Final = Epoch(born_us=START_US, grants=3, losses=1, lost_us=START_US - S, servers="digest")
STATE: Final = FleetState(
    trials={"redis": Trial(limit=2, last_us=START_US), "db": Trial(failures=1, paused_us=START_US, pause_us=WINDOW_US)},
    several_us=START_US,
    open_culls={"redis": 1},
    missing=1,
    outcomes={"helped|redis": 1, "unhelped|db": 1},
    duplicates={"e": START_US},
)
CULL: Final = Cull(
    "claim-2", "life 1", "redis", START_US, "watched", by="d", by_incarnation="life 2", since_us=START_US
)
SLOT: Final = Slot("holder", "life 1", START_US, 60 * S)
HOLD: Final = HoldRow("größer", 'a "reason"\n', START_US, 3600 * S)
HELPED: Final = Entry(
    "helped", START_US / S, "a", "redis", seconds=3.5, detail="well for a minute", once="helped claim-1"
)
NEWS: Final = "up|7|life 1|100|0|5|0.2"


async def history(store: RedisStore, clock: Clock) -> None:
    """What leaves something in every key."""
    for name in "abcd":
        await send_beat(store, beat(name, life="life 1", errors=2, ratio=5000, about=NEWS), settings='{"f":1}')
    clock.advance(1)
    await send_beat(store, suspect("a", life="life 1", errors=9, ratio=500_000), settings='{"f":1}')
    await send_beat(store, suspect("b", life="life 1", errors=9, refused=True), settings='{"f":1,"window_us":60000000}')
    await send_beat(store, suspect("c", "db", life="life 1", refused=True), settings='{"f":1}')
    await send_beat(store, beat("c", Presence.GONE, life="life 1"), settings='{"f":1}')
    holds = {"": HOLD, "b": HOLD}
    await commit(store, grant="claim-1", epoch=EPOCH, state=STATE, culls={"x": CULL}, leases={"d": SLOT}, holds=holds)
    clock.advance(1)
    await commit(store, grant="claim-2", refund=["claim-1"], entries=[HELPED])


def content(server: RedisServer) -> dict[str, Any]:
    """Every key of the service; what Redis names itself, and when, is left out."""
    readers: dict[str, Callable[[str], Any]] = {
        "hash": lambda key: dict(sorted(server.cli("HGETALL", key).items())),
        "zset": lambda key: {name: int(score) for name, score in server.cli("ZRANGE", key, 0, -1, "WITHSCORES")},
        "stream": lambda key: [
            [list(pair) for pair in fields.items()] for _, fields in server.cli("XRANGE", key, "-", "+")
        ],
    }
    keys = sorted(server.cli("KEYS", "*"))
    return {key: {"type": kind, "value": readers[kind](key)} for key in keys for kind in [server.cli("TYPE", key)]}


def golden_or_new(written: dict[str, Any]) -> object:
    """The newest copy; for a format that has none yet, one is written, and is to be looked at and kept."""
    if not NEWEST.exists():
        NEWEST.write_text(json.dumps(written, indent=1, ensure_ascii=False) + "\n")
        pytest.fail(f"{NEWEST.name} is new: look at it, and run again")
    return json.loads(NEWEST.read_text())


def load(server: RedisServer, keys: dict[str, Any]) -> None:
    """Write every key as the file has it."""
    for key, told in keys.items():
        value = told["value"]
        if told["type"] == "stream":
            for number, fields in enumerate(value, start=1):
                server.cli("XADD", key, f"{START_US // 1000}-{number}", *(text for pair in fields for text in pair))
        elif told["type"] == "zset":
            server.cli("ZADD", key, *(text for name, score in value.items() for text in (score, name)))
        else:
            server.cli("HSET", key, *(text for pair in value.items() for text in pair))


async def test_this_version_writes_what_its_golden_copy_has(faketime_redis: RedisServer, open_store: OpenStore) -> None:
    await history(open_store(faketime_redis.url), Clock(faketime_redis))
    written = content(faketime_redis)
    assert written == golden_or_new(written)


def test_golden_copy_has_every_key_of_the_scripts() -> None:
    scripts = "".join(path.read_text() for path in (Path(__file__).parents[2] / "sidecar/store/lua").glob("*.lua"))
    named = set(re.findall(r"^-- KEYS\[\d+\]\s+(\w+)", scripts, flags=re.MULTILINE))
    assert {key.removeprefix(f"{PREFIX}:") for key in json.loads(NEWEST.read_text())} == named


@pytest.fixture(params=sorted(GOLDEN.glob("*.json")), ids=lambda path: path.stem)
def clock(request: pytest.FixtureRequest, faketime_redis: RedisServer) -> Clock:
    """The clock of a server that has what a version left there, a second later."""
    load(faketime_redis, json.loads(request.param.read_text()))
    clock = Clock(faketime_redis)
    clock.go(START_US + 3 * S)
    return clock


@pytest.mark.usefixtures("clock")
async def test_golden_copy_is_read(faketime_redis: RedisServer, open_store: OpenStore) -> None:
    store = open_store(faketime_redis.url)
    view = await look(store, "b")
    assert view.revision in {2, START_US + 2 * S}  # until 0.2 it counted the commits
    assert view == View(
        START_US + 3 * S,
        STATE,
        EPOCH,
        {"claim-1": START_US + S, "claim-2": START_US + 2 * S},
        frozenset({"claim-1"}),
        revision=view.revision,
        run_id=view.run_id,
        culls={"x": CULL},
        leases={"d": SLOT},
        holds={"": HOLD, "b": HOLD},
        settings=(FleetSettings(window_us=60 * S), FleetSettings()),
        settings_texts=('{"f":1,"window_us":60000000}', '{"f":1}'),
        alive=3,
        newest_us=START_US + S,
        causes={"redis": 2},
        control={"refused|redis": 1, "refused|db": 1, "ended|db": 1},
        member=MemberKey("life 1"),
        seen_us=START_US + S,
        median_errors=view.median_errors,
    )


async def test_golden_copy_is_continued(clock: Clock, faketime_redis: RedisServer, open_store: OpenStore) -> None:
    store = open_store(faketime_redis.url)
    heard = await send_beat(store, beat("b", life="life 1"), settings='{"f":1}')
    assert (heard.former, heard.causes, heard.alive, heard.used) == ("life 1\nredis\n1", {"redis": 1}, 3, 1)
    assert (heard.median_errors, heard.median_ratio, heard.settings) == (2, 500_000, 2)
    assert (await look(store)).control["recovered|redis"] == 1
    listing = await store.members(most=10, since_us=0)
    assert [(name, about) for name, _, _, about in listing.members] == [(name, NEWS) for name in "abd"]
    assert listing.departed == [("c", START_US + S)]
    assert [one._replace(id="") for one in await store.entries(0, "", 10)] == [HELPED._replace(once="")]
    assert await store.note([HELPED]) == 0
    assert await commit(store, grant="claim-2", capacity=1) == clock.now_us


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
