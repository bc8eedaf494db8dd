"""The entries of the ledger in Redis: each is there once, the stream is bounded, and garbage in it is skipped."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import pytest

from harness.stores import PREFIX, impatient, word_of
from sidecar.core.types import Entry
from sidecar.store import redis_entries

if TYPE_CHECKING:
    from harness.redis_server import RedisServer
    from sidecar.store.redis import RedisStore
    from store.conftest import OpenStore

STREAM: Final = f"{PREFIX}:events"
CULLED: Final = Entry("culled", 1_699_999_990.5, "a", "redis")
BARE: Final = Entry("helped", 1_699_999_991.5)
AT: Final = 1_699_999_990.5


async def listed(store: RedisStore, after: str = "", most: int = 1000) -> list[Entry]:
    """The entries as they were handed in, without their ids."""
    return [entry._replace(id="") for entry in await store.entries(0.0, after, most)]


async def test_stream_and_words_are_capped_and_end_with_the_service(
    redis_server: RedisServer, open_store: OpenStore
) -> None:
    store = open_store(redis_server.url, events_max=100)
    for start in range(0, 1000, 100):
        await store.note([Entry("suspect", AT + start + number) for number in range(100)])
    assert 100 <= redis_server.cli("XLEN", STREAM) <= 200  # it is cut by whole nodes of the stream
    assert redis_server.cli("ZCARD", f"{PREFIX}:noted") == 100
    assert (await listed(store))[-1].at == AT + 999
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
    assert await listed(store) == [CULLED, BARE]
    first = await store.entries(0, "", 1)
    assert await listed(store, after=first[0].id, most=2) == [BARE]


@pytest.mark.parametrize("row", [[b"9999999999999999-0", [b"what", b"culled"]], [b"1-0", None], [b"1-0", [b"what"]]])
def test_row_that_is_no_entry_is_none(row: list[Any]) -> None:
    assert redis_entries.entries([row]) == [(row[0].decode(), None)]


async def test_entry_whose_reply_was_lost_is_there_once(redis_server: RedisServer, open_store: OpenStore) -> None:
    store = open_store(redis_server.url)
    assert await store.note([BARE]) == 1
    redis_server.pause()
    with impatient(store):
        assert await word_of(store.note([CULLED])) == "timeout"
    redis_server.resume()
    assert await store.note([CULLED]) == 0
    assert await listed(store) == [BARE, CULLED]
