"""The ledger of each store: every entry once and in order; on a real Redis its limits, and foreign content."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from harness.stores import PREFIX, S, impatient, word_of
from sidecar.core.types import Entry
from sidecar.store.alone import MAX_EVENTS, AloneStore
from sidecar.store.protocol import NOTED_S, SHARED_S, Store
from sidecar.store.redis_content import UNREADABLE, entries
from store.test_contract import of_a_fleet

if TYPE_CHECKING:
    from harness.redis_server import RedisServer
    from store.conftest import Clock, OpenStore

AT: Final = 1_699_999_990.5
STREAM: Final = f"{PREFIX}:events"
CULLED: Final = Entry("culled", AT, "a", "redis", "errors", "ann", 3.25, "5 errors")
BARE: Final = Entry("helped", AT + 1)
MANY: Final = [Entry("suspect", AT + number, "a", str(number)) for number in range(5)]


async def read(store: Store, since: float = 0.0, after: str = "", most: int = 1000) -> list[Entry]:
    """The entries as they were handed in, without their ids."""
    return [entry._replace(id="") for entry in await store.entries(since, after, most)]


# -- all stores  ------------------------------------------------------------------------------------------------


async def test_entries_come_back_as_they_were_noted_and_in_their_order(store: Store) -> None:
    assert await read(store) == []
    assert await store.note([CULLED, BARE]) == 2
    assert await store.note(MANY) == 5
    assert await read(store) == [CULLED, BARE, *MANY]


@of_a_fleet
async def test_entry_that_is_sent_again_is_there_once(store: Store) -> None:
    assert await store.note([CULLED, BARE]) == 2
    assert await store.note([CULLED, BARE, *MANY]) == 5
    assert await read(store) == [CULLED, BARE, *MANY]


@of_a_fleet
async def test_entry_with_a_shared_word_is_written_once(store: Store) -> None:
    seen = [Entry("paused", AT + number, reason="on", once="paused redis") for number in range(3)]
    assert [await store.note([one]) for one in seen] == [1, 0, 0]
    assert await read(store) == [seen[0]._replace(once="")]


async def test_pages_follow_one_another_without_gap_and_end_empty(store: Store) -> None:
    await store.note(MANY)
    pages, after = [], ""
    for _ in range(4):
        page = await store.entries(0.0, after, 2)
        pages.append([entry._replace(id="") for entry in page])
        after = page[-1].id if page else after
    assert pages == [MANY[:2], MANY[2:4], MANY[4:], []]
    late = Entry("recovered", AT, "b")
    await store.note([late])
    assert await read(store, after=after) == [late]


async def test_text_of_any_kind_comes_back(store: Store) -> None:
    hostile = Entry("denied", AT, "<b>\n\x1b[2J", "\ud800\x00", "a|b", "größer 🚀", 0.0, "x" * 500)
    await store.note([hostile])
    assert await read(store) == [hostile]


# -- time -------------------------------------------------------------------------------------------------------


async def test_only_what_arrived_since_is_read(store: Store, clock: Clock) -> None:
    await store.note([CULLED])
    clock.advance(10)
    await store.note([BARE])
    assert await read(store, since=clock.now_us / S - 5) == [BARE]
    assert await read(store, since=clock.now_us / S - 10) == [CULLED, BARE]
    assert await read(store, since=clock.now_us / S + 1) == []
    assert await read(store, since=-5.0) == [CULLED, BARE]


async def test_entry_without_a_time_happened_when_it_arrived(store: Store, clock: Clock) -> None:
    await store.note([Entry("helped")])
    assert await read(store) == [Entry("helped", clock.now_us / S)]


@of_a_fleet
@pytest.mark.parametrize(("once", "kept_s"), [("", NOTED_S), ("paused redis", SHARED_S)], ids=["digest", "shared word"])
async def test_words_are_remembered_for_their_time(store: Store, clock: Clock, once: str, kept_s: int) -> None:
    entry = Entry("paused", AT, reason="on", once=once)
    counts = [await store.note([entry])]
    for step in (kept_s - 1, 2):
        clock.advance(step)
        counts.append(await store.note([entry]))
    assert counts == [1, 0, 1]


# -- memory alone -----------------------------------------------------------------------------------------------


async def test_memory_keeps_the_newest() -> None:
    store = AloneStore(lambda: 1_700_000_000 * S)
    entries = [Entry("suspect", AT + number) for number in range(MAX_EVENTS + 10)]
    assert await store.note(entries) == len(entries)
    assert await read(store, most=len(entries)) == entries[10:]


# -- Redis alone ------------------------------------------------------------------------------------------------


async def test_stream_and_words_are_capped_and_end_with_the_service(
    redis_server: RedisServer, open_store: OpenStore
) -> None:
    store = open_store(redis_server.url, events_max=100)
    for start in range(0, 1000, 100):
        await store.note([Entry("suspect", AT + start + number) for number in range(100)])
    assert 100 <= redis_server.cli("XLEN", STREAM) <= 200  # it is cut by whole nodes of the stream
    assert redis_server.cli("ZCARD", f"{PREFIX}:noted") == 100
    assert (await read(store))[-1].at == AT + 999
    for key in ("events", "noted"):
        assert 34 * 86400 < redis_server.cli("TTL", f"{PREFIX}:{key}") <= 35 * 86400


@pytest.mark.parametrize(
    "fields",
    [
        ["what", "no such thing"],
        ["hello", "world"],
        ["what", "culled", "at", "nan"],
        ["what", "culled", "at", "9" * 40],
        ["what", "culled", "seconds", "inf"],
        ["what", "culled", "kind", b"\xff"],
    ],
    ids=str,
)
async def test_garbage_in_the_stream_is_skipped(
    redis_server: RedisServer, open_store: OpenStore, fields: list[Any]
) -> None:
    store = open_store(redis_server.url)
    await store.note([CULLED])
    for _ in range(7):
        redis_server.cli("XADD", STREAM, "*", *fields)
    await store.note([BARE])
    assert await read(store) == [CULLED, BARE]
    first = await store.entries(0, "", 1)
    assert await read(store, after=first[0].id, most=2) == [BARE]


@given(
    st.recursive(
        st.none() | st.integers() | st.binary(max_size=8) | st.sampled_from([b"1-0", b"9999999999999999-0", b"what"]),
        lambda inner: st.lists(inner, max_size=4),
    )
)
@example([[b"9999999999999999-0", [b"what", b"culled"]]])
@example([[b"1-0", None]])
@example([[b"1-0", [b"what", b"culled", b"what"]]])
def test_whatever_comes_back_is_read_or_refused_in_one_way(reply: object) -> None:
    try:
        page = entries(reply)
    except UNREADABLE:
        return
    assert all(entry is None or 0 <= entry.at <= 1e11 for _, entry in page)


async def test_entry_whose_reply_was_lost_is_there_once(redis_server: RedisServer, open_store: OpenStore) -> None:
    store = open_store(redis_server.url)
    assert await store.note([BARE]) == 1
    redis_server.pause()
    with impatient(store):
        assert await word_of(store.note([CULLED])) == "timeout"
    redis_server.resume()
    assert await store.note([CULLED]) == 0
    assert await read(store) == [BARE, CULLED]


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
