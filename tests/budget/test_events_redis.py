"""The ledger in a real Redis: its limits, whatever else stands there, and replies that are lost."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from redis.exceptions import InvalidResponse

from harness.claims import ask, warm
from harness.ledgers import AT, BARE, CULLED, MANY, STREAM, read
from harness.twins import impatient
from sidecar.budget import events
from sidecar.core.words import Entry, Unknown

if TYPE_CHECKING:
    from budget.conftest import OpenBudget, Proxy
    from harness.redis_server import RedisServer
    from harness.starting import StartRedis


async def test_stream_and_words_are_capped_and_end_with_the_service(
    redis_server: RedisServer, open_budget: OpenBudget
) -> None:
    budget = open_budget(redis_server.url, events_max=100)
    for start in range(0, 1000, 100):
        await budget.note([Entry("suspect", AT + start + number) for number in range(100)])
    assert 100 <= redis_server.cli("XLEN", STREAM) <= 200  # it is cut by whole nodes of the stream
    assert redis_server.cli("ZCARD", "{ha:default/app}:noted") == 100
    assert (await read(budget))[-1].at == AT + 999
    for key in ("events", "noted"):
        assert 34 * 86400 < redis_server.cli("TTL", f"{{ha:default/app}}:{key}") <= 35 * 86400


@pytest.mark.parametrize(
    "fields",
    [
        ["what", "no such thing"],
        ["hello", "world"],
        ["what", "culled", "at", "nan"],
        ["what", "culled", "at", "-1"],
        ["what", "culled", "at", "1e300"],
        ["what", "culled", "at", "9" * 40],
        ["what", "culled", "seconds", "soon"],
        ["what", "culled", "seconds", "inf"],
        ["what", b"\xff\xfe"],
        ["what", "culled", "kind", b"\xff"],
        ["what", ""],
    ],
    ids=str,
)
async def test_garbage_in_the_stream_is_passed_over(
    redis_server: RedisServer, open_budget: OpenBudget, fields: list[Any]
) -> None:
    budget = open_budget(redis_server.url)
    await budget.note([CULLED])
    for _ in range(7):
        redis_server.cli("XADD", STREAM, "*", *fields)
    await budget.note([BARE])
    assert await read(budget) == [CULLED, BARE]
    first = await budget.entries(0, "", 1)
    assert not isinstance(first, Unknown)
    assert await read(budget, after=first[0].id, most=2) == [BARE]


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
        page = events._page(reply)
    except InvalidResponse:
        return
    assert all(entry is None or 0 <= entry.at <= 1e11 for _, entry in page)


async def test_field_that_a_later_version_adds_hides_nothing(
    redis_server: RedisServer, open_budget: OpenBudget
) -> None:
    redis_server.cli("XADD", STREAM, "5000-0", "what", "brake", "reason", "on", "mood", "bad")
    assert await read(open_budget(redis_server.url)) == [Entry("brake", 5.0, reason="on")]


async def test_key_of_another_type_is_an_answer_in_words(redis_server: RedisServer, open_budget: OpenBudget) -> None:
    redis_server.cli("SET", STREAM, "x")
    budget = open_budget(redis_server.url)
    assert await budget.note([CULLED]) == Unknown("response")
    assert await budget.entries(0, "", 10) == Unknown("response")


async def test_server_that_is_away_is_unknown(redis_server: RedisServer, open_budget: OpenBudget) -> None:
    budget = open_budget(redis_server.url)
    redis_server.kill()
    assert await budget.note([CULLED]) == Unknown("connection")
    assert await budget.entries(0, "", 10) == Unknown("connection")
    assert await budget.first("word", 60) == Unknown("connection")


@pytest.mark.parametrize(
    ("options", "word"), [({"maxmemory": 1}, "oom"), ({"read_only": True}, "readonly")], ids=["full", "replica"]
)
async def test_server_that_takes_nothing_says_so_and_nothing_is_half_written(
    start_redis: StartRedis, open_budget: OpenBudget, options: dict[str, Any], word: str
) -> None:
    server = start_redis(**options)
    budget = open_budget(server.url)
    assert await budget.note([CULLED]) == Unknown(word)
    assert server.cli("EXISTS", STREAM, "{ha:default/app}:noted") == 0


async def test_entry_whose_reply_was_lost_is_there_once(
    redis_server: RedisServer, open_budget: OpenBudget, proxy: Proxy
) -> None:
    budget = open_budget(await proxy.open(redis_server.port))
    assert await budget.note([BARE]) == 1
    proxy.holding = True
    with impatient(budget):
        assert await budget.note([CULLED]) == Unknown("timeout")
    proxy.release()
    assert await budget.note([CULLED]) == 0
    assert await read(budget) == [BARE, CULLED]


async def test_first_word_whose_reply_was_lost_is_still_ours(
    redis_server: RedisServer, open_budget: OpenBudget, proxy: Proxy
) -> None:
    budget = open_budget(await proxy.open(redis_server.port))
    assert await warm(budget) is None
    assert await budget.first("warm", 60) is True
    proxy.holding = True
    with impatient(budget):
        assert await budget.first("word", 60) == Unknown("timeout")
    proxy.release()
    assert await open_budget(redis_server.url).first("word", 60) is False
    assert await budget.first("word", 60) is True
    assert await budget.first("word", 60) is False


async def test_words_without_a_clear_answer_are_bounded(redis_server: RedisServer, open_budget: OpenBudget) -> None:
    budget = open_budget(redis_server.url)
    redis_server.kill()
    for number in range(150):
        assert await budget.first(str(number), 60) == Unknown("connection")
    assert len(budget._events._unclear) == 100


async def test_claims_go_on_beside_the_ledger(redis_server: RedisServer, open_budget: OpenBudget) -> None:
    budget = open_budget(redis_server.url)
    assert await warm(budget) is None
    answers = await asyncio.gather(*(budget.note([entry]) for entry in MANY), ask(budget, "a"))
    assert answers[:5] == [1] * 5
    assert not isinstance(answers[5], (int, Unknown))
