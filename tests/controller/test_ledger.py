"""The ledger loses nothing, sends nothing twice, keeps the order and its bounds, and delays no step."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from itertools import pairwise
from random import Random
from typing import TYPE_CHECKING

import pytest

from harness.stores import redis_store
from harness.virtual_time import VirtualLoop, in_virtual_time, settle
from harness.waiting import eventually
from sidecar.controller.ledger import (
    BATCH,
    FINISH_S,
    GATHER_S,
    JITTER,
    MOST_SENT,
    MOST_WAITING,
    PACE_S,
    SETTLED_S,
    Ledger,
)
from sidecar.controller.runtime import Runtime
from sidecar.core.claims import Fleet, Unknown
from sidecar.core.fleet.fleet_events import BeatRecord, DataLost
from sidecar.core.fleet.fleet_settings import FleetSettings
from sidecar.core.life.grant_request import UNKNOWN_CAP_S
from sidecar.core.types import Entry
from sidecar.store.budget import FleetBudget
from sidecar.store.protocol import NOTED_S, SHARED_S

if TYPE_CHECKING:
    from harness.redis_server import RedisServer

AWAY = Unknown("connection")
WALL_S = 1_700_000_000.0


class ManualStore:
    """A store that answers as the test says, and keeps each entry that it took."""

    def __init__(self) -> None:
        self.says: Unknown | Exception | None = None
        self.kept: list[Entry] = []
        self.batches: list[tuple[float, list[Entry]]] = []
        self.open = asyncio.Event()
        self.open.set()

    async def note(self, entries: Sequence[Entry]) -> int | Unknown:
        self.batches.append((asyncio.get_running_loop().time(), list(entries)))
        await self.open.wait()
        if isinstance(self.says, Exception):
            raise self.says
        if self.says is not None:
            return self.says
        self.kept += entries
        return len(entries)


Note = Callable[[Sequence[Entry]], Awaitable[int | Unknown]]


class LedgerRig:
    """A ledger, its store, and its failures."""

    def __init__(self, note: Note) -> None:
        self.failures: list[Exception] = []
        self.ledger = Ledger(note, "a", Runtime(time.monotonic, lambda: WALL_S, Random(0), self.failures.append))
        self.running: asyncio.Task[None] | None = None

    @contextlib.asynccontextmanager
    async def works(self) -> AsyncIterator[Ledger]:
        self.running = asyncio.create_task(self.ledger.run())
        try:
            yield self.ledger
        finally:
            self.running.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self.running


def entries(count: int, start: int = 0) -> list[Entry]:
    return [Entry("suspect", WALL_S + number, "a") for number in range(start, start + count)]


# -- sending ----------------------------------------------------------------------------------------------------


@in_virtual_time
async def test_first_entries_wait_for_the_claim_and_then_a_batch_is_sent_each_second() -> None:
    notes = ManualStore()
    async with LedgerRig(notes.note).works() as ledger:
        await settle()
        began = asyncio.get_running_loop().time()
        ledger.add(*entries(2 * BATCH))
        await settle()
        ledger.add(*entries(1, 2 * BATCH))
        await asyncio.sleep(10)
        assert [len(batch) for _, batch in notes.batches] == [BATCH, BATCH, 1]
        delays = [round(at - began, 3) for at, _ in notes.batches]
        assert delays == [GATHER_S, GATHER_S + PACE_S, GATHER_S + 2 * PACE_S]
        assert notes.kept == entries(2 * BATCH + 1)
        assert ledger.waiting == 0


@in_virtual_time
async def test_who_asks_after_an_order_waits_until_the_store_has_it_but_not_for_a_store_that_is_away() -> None:
    rig, loop = LedgerRig((store := ManualStore()).note), asyncio.get_running_loop()
    async with rig.works() as ledger:
        ledger.add(*entries(1))
        await ledger.settled()
        ledger.add(*entries(1, 1))  # within the pause after a batch
        await ledger.settled()
        assert store.kept == entries(2)
        store.says = AWAY
        ledger.add(*entries(1, 2))
        await ledger.settled()
        asked_at = loop.time()
        await ledger.settled()
        assert loop.time() == asked_at
        store.open.clear()
        await asyncio.sleep(UNKNOWN_CAP_S)
        store.says = None
        store.open.set()
        await asyncio.sleep(UNKNOWN_CAP_S)
        store.open.clear()  # a store that hangs
        ledger.add(*entries(1, 3))
        asked_at = loop.time()
        await ledger.settled()
        assert loop.time() == pytest.approx(asked_at + SETTLED_S)


@pytest.mark.parametrize("says", [AWAY, RuntimeError("broken")], ids=["away", "broken"])
@in_virtual_time
async def test_entries_without_a_clear_answer_are_sent_again_in_order_after_growing_pauses(
    says: Unknown | Exception,
) -> None:
    notes = ManualStore()
    notes.says = says
    ledger_rig = LedgerRig(notes.note)
    async with ledger_rig.works() as ledger:
        ledger.add(*entries(3))
        await settle()
        ledger.add(*entries(3, 3))
        await asyncio.sleep(600)
        notes.says = None
        await asyncio.sleep(UNKNOWN_CAP_S)
    pauses = [after - before for before, after in pairwise(at for at, _ in notes.batches)]
    limits = [min(UNKNOWN_CAP_S, 2.0**number) for number in range(len(pauses))]
    assert all(limit * (1 - JITTER) <= pause <= limit for pause, limit in zip(pauses, limits, strict=True))
    assert len({round(pause, 3) for pause in pauses[-5:]}) == 5
    assert notes.kept == entries(6)
    assert set(ledger_rig.failures) == ({says} if isinstance(says, Exception) else set())


@in_virtual_time
@pytest.mark.parametrize(
    ("error", "told"),
    [
        ("connection", []),
        ("permission", ["the store takes no entries: permission"]),
        ("response", ["the store takes no entries: response"]),
    ],
)
async def test_store_that_refuses_entries_is_told_and_one_that_is_away_is_not(error: str, told: list[str]) -> None:
    notes = ManualStore()
    notes.says = Unknown(error)
    ledger_rig = LedgerRig(notes.note)
    async with ledger_rig.works() as ledger:
        ledger.add(*entries(1))
        await asyncio.sleep(0.4)
    assert [str(failure) for failure in ledger_rig.failures] == told


# -- bounds -------------------------------------------------------------------------------------------------------


@in_virtual_time
async def test_oldest_are_dropped_and_counted_when_there_is_no_room() -> None:
    notes = ManualStore()
    notes.says = AWAY
    async with LedgerRig(notes.note).works() as ledger:
        ledger.add(*entries(MOST_WAITING + 7))
        assert (ledger.waiting, ledger.dropped) == (MOST_WAITING, 7)
        notes.says = None
        await asyncio.sleep(60)
        assert notes.kept == entries(MOST_WAITING, 7)
        assert (ledger.waiting, ledger.dropped) == (0, 7)


@in_virtual_time
async def test_all_entries_are_counted_by_word_and_reason_but_the_orders_of_people() -> None:
    async with LedgerRig(ManualStore().note).works() as ledger:
        ledger.add(*entries(300), Entry("denied", WALL_S, "a", reason="trial"), Entry("hold", reason="x", author="ann"))
        assert ledger.counts == {("suspect", ""): 300, ("denied", "trial"): 1}


@in_virtual_time
async def test_what_was_seen_here_is_known_here_sent_or_not() -> None:
    notes = ManualStore()
    async with LedgerRig(notes.note).works() as ledger:
        ledger.add(*entries(MOST_SENT + 50))
        await asyncio.sleep(60)
        notes.says = AWAY
        ledger.add(*entries(2, MOST_SENT + 50))
        await asyncio.sleep(1)
        assert ledger.local(0.0) == entries(MOST_SENT + 2, 50)
        assert ledger.local(WALL_S + MOST_SENT + 49) == entries(3, MOST_SENT + 49)


@in_virtual_time
async def test_what_was_ordered_here_and_seen_in_a_beat_is_known_here_once() -> None:
    hold = "hold  1800000600"
    ordered, in_beat = Entry("hold", WALL_S, detail="ordered at a", once=hold), Entry("hold", WALL_S + 8, once=hold)
    lost, later = Entry("data_loss", WALL_S, once="data_loss"), Entry("data_loss", WALL_S + SHARED_S, once="data_loss")
    async with LedgerRig(ManualStore().note).works() as ledger:
        ledger.add(ordered, lost)
        await asyncio.sleep(2)
        ledger.add(in_beat, later)
        assert ledger.local(0.0) == [ordered, lost, later]
        assert ledger.local(WALL_S + 1) == [later]


LOST = BeatRecord(Fleet(1), (DataLost(Fleet(1)),))


@in_virtual_time
async def test_what_was_sent_is_sent_anew_when_the_store_has_lost_its_data() -> None:
    notes = ManualStore()
    ledger_rig = LedgerRig(notes.note)
    old = [Entry("suspect", WALL_S - NOTED_S - 1), Entry("paused", WALL_S - SHARED_S - 1, once="paused redis 1")]
    new = [Entry("suspect", WALL_S - NOTED_S + 1), Entry("paused", WALL_S - SHARED_S + 1, once="paused redis 1")]
    async with ledger_rig.works() as ledger:
        ledger.add(*old, *new)
        await asyncio.sleep(5)
        notes.batches.clear()
        ledger.beaten(LOST)
        await asyncio.sleep(5)
    (batch,) = [batch for _, batch in notes.batches]
    assert batch == [*new, Entry("data_loss", WALL_S, once="data_loss")]


@in_virtual_time
async def test_what_is_sent_anew_takes_no_room_from_what_was_never_sent() -> None:
    notes = ManualStore()
    ledger_rig = LedgerRig(notes.note)
    ledger = ledger_rig.ledger
    ledger.add(*entries(3))
    await ledger.finish()
    ledger.add(*entries(MOST_WAITING - 3, 3))
    ledger.beaten(LOST)
    assert (ledger.waiting, ledger.dropped) == (MOST_WAITING, 0)
    assert ledger.local(0.0)[:2] == [entries(3)[1], entries(3)[2]]
    assert ledger.local(0.0)[-1].what == "data_loss"


# -- the end ----------------------------------------------------------------------------------------------------


@in_virtual_time
async def test_what_is_left_is_sent_at_the_end() -> None:
    notes = ManualStore()
    notes.open.clear()
    async with LedgerRig(notes.note).works() as ledger:
        ledger.add(*entries(BATCH + 2))
        await settle()
    notes.open.set()
    await ledger.finish()
    assert notes.kept == entries(BATCH + 2)
    await ledger.finish()
    assert len(notes.batches) == 3


@in_virtual_time
async def test_store_that_hangs_does_not_hold_up_the_end() -> None:
    loop = asyncio.get_running_loop()
    assert isinstance(loop, VirtualLoop)
    notes = ManualStore()
    notes.open.clear()
    ledger_rig = LedgerRig(notes.note)
    ledger_rig.ledger.add(*entries(1))
    began = loop.time()
    await ledger_rig.ledger.finish()
    assert loop.time() - began == pytest.approx(FINISH_S)


# -- what it is told --------------------------------------------------------------------------------------------


async def test_writer_that_fails_is_reported_and_stops_no_step() -> None:
    ledger_rig = LedgerRig(ManualStore().note)
    ledger_rig.ledger.notice(None)  # type: ignore[arg-type]  # what no step is
    assert [type(failure) for failure in ledger_rig.failures] == [AttributeError]
    assert ledger_rig.ledger.waiting == 0


# -- a real Redis -----------------------------------------------------------------------------------------------


async def test_redis_that_was_killed_gets_everything_once_and_in_order_when_it_is_back(
    redis_server: RedisServer,
) -> None:
    budget = FleetBudget(
        redis_store(redis_server.url, timeout_s=5), FleetSettings(), rng=Random(0), clock=time.monotonic
    )
    answers: list[int | Unknown] = []

    async def note(batch: Sequence[Entry]) -> int | Unknown:
        answers.append(await budget.note(batch))
        return answers[-1]

    ledger_rig = LedgerRig(note)
    async with ledger_rig.works() as ledger:
        ledger.add(*entries(3))
        await eventually(lambda: ledger.waiting == 0, timeout_s=60, what="the first are sent")
        kept = redis_server.cli("XRANGE", "{ha:default/app}:events", "-", "+")
        redis_server.kill()
        ledger.add(*entries(150, 3))
        await eventually(lambda: AWAY in answers, timeout_s=60, what="a try while it is away")
        redis_server.restart()
        await eventually(lambda: ledger.waiting == 0, timeout_s=60, what="the rest is sent")
        answer = await budget.entries(0, "", 1000)
    await budget.aclose()
    assert len(kept) == 3
    assert not isinstance(answer, Unknown)
    assert [entry._replace(id="") for entry in answer] == entries(150, 3)
    assert (ledger_rig.failures, ledger.dropped) == ([], 0)
