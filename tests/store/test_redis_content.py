"""What comes back from Redis: anything is read or refused in one way, and an unreadable text hides no other."""

from __future__ import annotations

import re
from itertools import chain
from typing import TYPE_CHECKING, Any, Final

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from harness.claims import S, beat, suspect
from harness.stores import CULL, HOLD, PREFIX, claim, commit, impatient, look, send_beat, word_of
from sidecar.core.fleet.records import Epoch, FleetState, Slot, StoredRecord
from sidecar.store import redis_content as content
from sidecar.store import redis_entries
from sidecar.store.redis_content import BEAT, READ, UNREADABLE, Script

if TYPE_CHECKING:
    from harness.redis_server import RedisServer
    from store.conftest import OpenStore

VALUES = st.recursive(
    st.none() | st.integers() | st.binary(max_size=8) | st.sampled_from([b"1700000000000000", b"inf", b"\xff", b"1-0"]),
    lambda inner: st.lists(inner, max_size=4),
)


def replies(script: Script) -> st.SearchStrategy[list[Any]]:
    """Its names, each with any value."""
    names = re.findall(rb"^  '(\w+)',", script.text, flags=re.MULTILINE)
    return st.tuples(*(st.tuples(st.just(name), VALUES) for name in names)).map(lambda pairs: list(chain(*pairs)))


READERS = [
    content.view,
    content.beat_reply,
    content.committed,
    content.count,
    content.times,
    content.texts,
    redis_entries.entries,
]


@pytest.mark.parametrize("read", READERS, ids=lambda read: read.__name__)
@settings(max_examples=40)
@given(reply=VALUES | replies(READ) | replies(BEAT))
def test_anything_else_is_no_answer(read: object, reply: object) -> None:
    assert callable(read)
    try:
        read(reply)
    except UNREADABLE:
        return


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


# -- words that come first in the fleet ---------------------------------------------------------------------------


async def test_first_call_whose_reply_was_lost_is_still_the_first(
    redis_server: RedisServer, open_store: OpenStore
) -> None:
    store = open_store(redis_server.url)
    assert await store.first("warm", 60) is True
    redis_server.pause()
    with impatient(store):
        assert await word_of(store.first("word", 60)) == "timeout"
    redis_server.resume()
    assert await open_store(redis_server.url).first("word", 60) is False
    assert await store.first("word", 60) is True
    assert await store.first("word", 60) is False


async def test_words_without_a_clear_answer_are_bounded(redis_server: RedisServer, open_store: OpenStore) -> None:
    store = open_store(redis_server.url)
    redis_server.kill()
    for number in range(150):
        assert await word_of(store.first(str(number), 60)) == "connection"
    assert len(store._unclear) == 100
