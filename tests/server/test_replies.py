"""Long answers are the same bytes as short ones, and no turn of the loop does more than a small part of one."""

from __future__ import annotations

import asyncio
import gc
import itertools
import time
from contextlib import AsyncExitStack
from functools import partial
from pathlib import Path
from random import Random
from statistics import median
from types import SimpleNamespace
from typing import Any, Self, cast

import pytest

from harness.listeners import serving
from harness.raw_http import Observed, RawConnection, get
from harness.server_group import StubBudget
from harness.virtual_time import in_virtual_time
from harness.waiting import eventually
from sidecar.config.settings import BudgetConfig
from sidecar.core.claims import Fleet, Presence
from sidecar.core.fleet.fleet_settings import FleetSettings
from sidecar.core.fleet.members import About, Member, MemberList
from sidecar.core.fleet.view import Listing, View
from sidecar.core.types import US_PER_S, Entry, State
from sidecar.net import web
from sidecar.server import replies
from sidecar.server.fleet_api import FleetApi
from sidecar.server.ledger_api import get_events
from sidecar.server.replies import SENT_AT_ONCE, SharedAnswer
from sidecar.store.budget import FleetBudget

CROWD = 2000
NOW_S = 1_700_000_000.0
LARGEST_PART = 0.3
"""Of the CPU time of an answer. Measured: 0.02 to 0.2; 0.4 and more if a part of it is made in one turn."""

ANSWERS = 5
"""Most of them are as they should be. In one a turn of the loop may have a cold cache, or a page fault."""

ABOUT = About(State.SUSPECT, 1_700_000_000, "boot-2026-11-20T12:00:00Z", 100, 3, 5, "0.2.0", 1_700_000_000, "0" * 8)


class Turns:
    """The CPU time of each turn of the loop while the context lasts; it keeps the loop busy."""

    def __init__(self) -> None:
        self.took: list[float] = []
        self._handle: asyncio.Handle | None = None

    def __enter__(self) -> Self:
        gc.disable()  # a collection belongs to no answer
        self._at = time.thread_time()
        self._tick()
        return self

    def __exit__(self, *_: object) -> None:
        gc.enable()
        if self._handle is not None:
            self._handle.cancel()

    def _tick(self) -> None:
        now = time.thread_time()
        self.took.append(now - self._at)
        self._at = now
        self._handle = asyncio.get_running_loop().call_soon(self._tick)

    @property
    def largest_part(self) -> float:
        return max(self.took) / sum(self.took)


def _crowd() -> MemberList:
    members = [Member(f"c{number:04}", Presence.SUSPECT, "redis", 1.5, ABOUT) for number in range(CROWD)]
    return MemberList(Fleet(CROWD), 0, tuple(members), departed=(("gone", 2.5),))


async def _routes() -> web.Routes:
    budget = StubBudget(time.time, "c0000")
    budget.known = _crowd()
    await budget.note([Entry("culled", time.time() + n, "a", "redis", detail="x" * 3000) for n in range(500)])
    fleet = FleetApi(
        budget,
        BudgetConfig(),
        identity={"service": "app", "instance": "c0000", "mode": "enforce", "store": ""},
        own=lambda: ABOUT,
        fleet=lambda: None,
        fleet_age_s=lambda: 0.0,
        local_entries=lambda _: (),
        limit_s=60.0,
        wall=lambda: NOW_S,
    )
    events = get_events(
        budget.entries, lambda _: [], settled=partial(asyncio.sleep, 0), identity={}, wall=lambda: NOW_S, limit_s=60.0
    )
    return {"/fleet": {"GET": fleet.get}, "/events": {"GET": events}}


@pytest.mark.parametrize("path", ["/fleet", "/events?since=0"])
async def test_no_turn_of_the_loop_makes_most_of_an_answer(path: str) -> None:
    observed = Observed()
    parts: list[float] = []
    for _ in range(ANSWERS):
        async with serving(await _routes(), observed) as listener, await RawConnection.to(listener) as wire:
            with Turns() as turns:
                answer = await wire.ask(get(path))
            assert (answer.status, len(answer.body) > 300_000) == (200, True)
            parts.append(turns.largest_part)
    assert median(parts) < LARGEST_PART
    assert observed.failures == []


async def test_clients_that_do_not_read_hold_up_others_for_a_bounded_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(replies, "SEND_S", 0.5)
    observed, path = Observed(), str(tmp_path / "socket")
    async with serving(await _routes(), observed, path) as listener, AsyncExitStack() as stalled:
        for _ in range(SENT_AT_ONCE):
            wire = await stalled.enter_async_context(await RawConnection.to(listener))
            await wire.send(get("/fleet"))
        async with await RawConnection.to(listener) as reader:
            assert (await reader.ask(get("/fleet"))).status == 200
    assert observed.failures == []


class ListedStore:
    """A store with two thousand members."""

    async def read(self, _instance: str, **_times: int) -> View:
        return View(int(NOW_S) * US_PER_S)

    async def members(self, **_bounds: int) -> Listing:
        about = ABOUT.dump()
        return Listing([(f"c{number:04}", int(NOW_S) * US_PER_S, "life\nredis\n0", about) for number in range(CROWD)])


async def test_member_list_is_read_in_many_turns() -> None:
    store = cast("Any", ListedStore())
    parts: list[float] = []
    for _ in range(ANSWERS):
        budget = FleetBudget(store, FleetSettings(), rng=Random(1), clock=time.monotonic)
        with Turns() as turns:
            found = await budget.member_list()
        assert isinstance(found, MemberList)
        assert len(found.members) == CROWD
        parts.append(turns.largest_part)
    assert median(parts) < LARGEST_PART


async def test_answer_has_the_bytes_of_a_short_one() -> None:
    rows = [{"n": number, "t": "\u00e9\ud800\u2028"} for number in range(5000)]
    fields = {"a": 1, "none": None, "rows": rows, "e": []}
    pieces = await replies.dump({**fields, "rows": iter(rows), "e": iter(())})
    assert b"".join(pieces) == web.json_response(fields).body
    assert max(map(len, pieces)) < 2 * replies.PIECE


@pytest.mark.parametrize("leaves", ["close", "reset"])
async def test_client_that_leaves_in_the_middle_is_no_failure(leaves: str) -> None:
    observed = Observed()
    begun = asyncio.Event()

    async def large(request: web.BaseRequest) -> web.StreamResponse:
        begun.set()
        return await replies.respond(request, [b"x" * 50_000] * 1000)

    async def small(request: web.BaseRequest) -> web.StreamResponse:
        return await replies.respond(request, [b"{}"])

    async with serving({"/large": {"GET": large}, "/small": {"GET": small}}, observed) as listener:
        wire = await RawConnection.to(listener)
        await wire.send(get("/large"))
        await asyncio.wait_for(begun.wait(), 60)
        getattr(wire, leaves)()
        await eventually(lambda: not listener._answering, timeout_s=60, what="the connection is over")
        async with await RawConnection.to(listener) as other:
            answer = await other.ask(get("/small", method="HEAD"))
            assert (answer.status, answer.headers["content-length"]) == (200, "2")
            assert (await other.ask(get("/small"))).body == b"{}"
    assert (observed.failures, observed.words) == ([], [])


# -- an answer for many -----------------------------------------------------------------------------------------


async def _asked(shared: SharedAnswer) -> bytes:
    observed = Observed()
    async with serving({"/": {"GET": shared.get}}, observed) as listener, await RawConnection.to(listener) as wire:
        answer = await wire.ask(get("/"))
    assert (answer.status, observed.failures) == (203, [])
    return answer.body


async def test_requests_that_come_while_an_answer_is_made_share_the_next_one() -> None:
    may_answer, made = asyncio.Event(), itertools.count(1)
    has_begun = asyncio.Event()

    async def make() -> tuple[int, list[bytes]]:
        has_begun.set()
        number = next(made)
        await may_answer.wait()
        return 203, [b"%d" % number]

    shared = SharedAnswer(make)
    asking = [asyncio.create_task(_asked(shared))]
    await asyncio.wait_for(has_begun.wait(), 60)
    asking += [asyncio.create_task(_asked(shared)) for _ in range(4)]
    await eventually(lambda: shared.asked == len(asking), timeout_s=60, what="all have asked")
    may_answer.set()
    assert [await answer for answer in asking] == [b"1", *[b"2"] * 4]
    assert await _asked(shared) == b"3", "an answer is never older than its request"


@in_virtual_time
async def test_shared_answers_take_a_fifth_of_the_time_and_the_next_one_waits_at_most_half_a_second() -> None:
    seconds = itertools.accumulate((0.0, 0.1, 0.0, 1.0, 0.0, 0.0))  # two answers take 0.1 and 1 s

    async def make() -> tuple[int, list[bytes]]:
        return 203, []

    with pytest.MonkeyPatch.context() as monkeypatch:
        monkeypatch.setattr(replies, "time", SimpleNamespace(thread_time=lambda: next(seconds)))
        shared, clock = SharedAnswer(make), asyncio.get_running_loop().time
        begun, made_at = clock(), list[float]()
        for number in range(1, 4):
            await shared.newest(number)
            made_at.append(clock() - begun)
    assert made_at == pytest.approx([0.0, 0.4, 0.9])
