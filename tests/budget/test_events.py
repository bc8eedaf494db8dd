"""One ledger over all buckets: each entry once and in order, whoever asks."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

import pytest
from fakeredis import TcpFakeServer
from redis import Redis

from harness.ledgers import AT, BARE, CULLED, MANY, Bucket, read
from harness.spreads import spread_over
from sidecar.budget import Budget, scripts
from sidecar.budget.memory import MOST_EVENTS
from sidecar.core.stream import NOTED_S, SHARED_S
from sidecar.core.words import DETAIL_LIMIT, Entry, Unknown

if TYPE_CHECKING:
    from collections.abc import Iterator

    from budget.conftest import OpenBudget


@pytest.fixture
def stand_in() -> Iterator[str]:
    server = TcpFakeServer(("127.0.0.1", 0), server_type="redis")
    server.daemon_threads = True
    threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True).start()
    url = f"redis://127.0.0.1:{server.server_address[1]}"
    with Redis.from_url(url, protocol=2) as client:
        for script in (scripts.read_note(), scripts.read_first()):
            client.script_load(script.text)  # it hangs up instead of saying NOSCRIPT
    yield url
    server.shutdown()
    server.server_close()


@pytest.fixture(params=["memory", "redis", "stand-in", "spread"])
def budget(request: pytest.FixtureRequest, open_budget: OpenBudget) -> Budget:
    if request.param == "memory":
        return Bucket().memory()
    if request.param == "spread":
        bucket = Bucket()
        return spread_over([bucket.memory(), bucket.memory()])
    server = request.getfixturevalue("redis_server" if request.param == "redis" else "stand_in")
    return open_budget(server if isinstance(server, str) else server.url)


@pytest.fixture(params=["memory", "redis"])
def clocked(request: pytest.FixtureRequest, open_budget: OpenBudget) -> tuple[Bucket, Budget]:
    """A bucket whose time the test moves."""
    if request.param == "memory":
        bucket = Bucket()
        return bucket, bucket.memory()
    bucket = Bucket(request.getfixturevalue("faketime_redis"))
    bucket.passes(0)
    assert bucket.server is not None
    return bucket, open_budget(bucket.server.url)


# -- all buckets ------------------------------------------------------------------------------------------------


async def test_entries_come_back_as_they_were_noted_and_in_their_order(budget: Budget) -> None:
    assert await read(budget) == []
    assert await budget.note([CULLED, BARE]) == 2
    assert await budget.note(MANY) == 5
    assert await read(budget) == [CULLED, BARE, *MANY]


async def test_nothing_to_note_is_noted(budget: Budget) -> None:
    assert await budget.note([]) == 0
    assert await read(budget) == []


async def test_entry_that_is_sent_again_is_there_once(budget: Budget) -> None:
    assert await budget.note([CULLED, BARE]) == 2
    assert await budget.note([CULLED, BARE, *MANY]) == 5
    assert await read(budget) == [CULLED, BARE, *MANY]


async def test_word_that_the_fleet_shares_is_written_by_the_first(budget: Budget) -> None:
    seen = [Entry("brake", AT + number, reason="on", once="brake on") for number in range(3)]
    assert [await budget.note([one]) for one in seen] == [1, 0, 0]
    assert await read(budget) == [seen[0]._replace(once="")]


async def test_pages_follow_one_another_without_gap_and_end_empty(budget: Budget) -> None:
    await budget.note(MANY)
    pages, after = [], ""
    for _ in range(4):
        page = await budget.entries(0.0, after, 2)
        assert not isinstance(page, Unknown)
        pages.append([entry._replace(id="") for entry in page])
        after = page[-1].id if page else after
    assert pages == [MANY[:2], MANY[2:4], MANY[4:], []]
    late = Entry("recovered", AT, "b")
    await budget.note([late])
    assert await read(budget, after=after) == [late]


@pytest.mark.parametrize("after", ["nonsense", "1-", "-", "1-0 + COUNT 1", "1-0,2-0,3-0,4-0", "\ud800"])
async def test_id_that_is_none_is_the_beginning(budget: Budget, after: str) -> None:
    await budget.note([CULLED])
    assert await read(budget, after=after) == [CULLED]


async def test_text_of_any_kind_comes_back(budget: Budget) -> None:
    hostile = Entry("denied", AT, "<b>\n\x1b[2J", "\ud800\x00", "a|b", "größer 🚀", 0.0, "x" * 500)
    await budget.note([hostile])
    assert await read(budget) == [hostile]


async def test_evidence_of_a_cull_comes_back_whole(budget: Budget) -> None:
    culled = CULLED._replace(detail="\n".join(["5 errors", "ä" * 9_000, "x" * DETAIL_LIMIT])[:DETAIL_LIMIT])
    await budget.note([culled])
    assert await read(budget) == [culled]


async def test_first_is_first_and_nobody_else_for_the_time(budget: Budget) -> None:
    assert [await budget.first("brake", 60), await budget.first("brake", 60)] == [True, False]
    assert await budget.first("other", 60) is True


# -- time -------------------------------------------------------------------------------------------------------


async def test_only_what_arrived_since_is_read(clocked: tuple[Bucket, Budget]) -> None:
    bucket, budget = clocked
    await budget.note([CULLED])
    bucket.passes(10)
    await budget.note([BARE])
    assert await read(budget, since=bucket.now_s - 5) == [BARE]
    assert await read(budget, since=bucket.now_s - 10) == [CULLED, BARE]
    assert await read(budget, since=bucket.now_s + 1) == []
    assert await read(budget, since=-5.0) == [CULLED, BARE]


async def test_entry_without_a_time_happened_when_it_arrived(clocked: tuple[Bucket, Budget]) -> None:
    bucket, budget = clocked
    await budget.note([Entry("helped")])
    assert await read(budget) == [Entry("helped", bucket.now_s)]


@pytest.mark.parametrize(("once", "kept_s"), [("", NOTED_S), ("brake on", SHARED_S)], ids=["digest", "shared word"])
async def test_words_are_remembered_for_their_time(clocked: tuple[Bucket, Budget], once: str, kept_s: int) -> None:
    bucket, budget = clocked
    entry = Entry("brake", AT, reason="on", once=once)
    counts = [await budget.note([entry])]
    for step in (kept_s - 1, 2):
        bucket.passes(step)
        counts.append(await budget.note([entry]))
    assert counts == [1, 0, 1]


async def test_somebody_may_be_first_again_when_the_time_is_over(clocked: tuple[Bucket, Budget]) -> None:
    bucket, budget = clocked
    said = [await budget.first("brake", 60)]
    for step in (59, 2):
        bucket.passes(step)
        said.append(await budget.first("brake", 60))
    assert said == [True, False, True]


# -- memory alone -----------------------------------------------------------------------------------------------


async def test_memory_keeps_the_newest_and_no_more_words_than_entries() -> None:
    budget = Bucket().memory()
    entries = [Entry("suspect", AT + number) for number in range(MOST_EVENTS + 10)]
    assert await budget.note(entries) == len(entries)
    assert await read(budget, most=len(entries)) == entries[10:]
    assert len(budget._events._noted) == MOST_EVENTS
