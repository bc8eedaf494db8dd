"""One reading for all who look, none while nobody does, and only what changed is told."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest

from harness.waiting import eventually
from sidecar.server.page import change_stream as feed_module
from sidecar.server.page.change_stream import Feed


class Sources:
    """What the feed reads, and how often it did."""

    def __init__(self) -> None:
        self.quick: dict[str, Any] = {"why": 1}
        self.slow: dict[str, Any] = {"fleet": 10}
        self.quick_reads = self.slow_reads = 0
        self.gate = asyncio.Event()
        self.gate.set()
        self.failures: list[Exception] = []
        self.breaks = False

    def read_quick(self) -> dict[str, Any]:
        self.quick_reads += 1
        if self.breaks:
            raise ValueError("quick")
        return self.quick

    async def read_slow(self) -> dict[str, Any]:
        self.slow_reads += 1
        await self.gate.wait()
        if self.breaks:
            raise ValueError("slow")
        return self.slow

    @property
    def words(self) -> set[str]:
        return {str(error) for error in self.failures}

    def feed(self) -> Feed:
        clock = asyncio.get_running_loop().time
        return Feed(self.read_quick, self.read_slow, wall=lambda: 1.5, clock=clock, on_failure=self.failures.append)


@pytest.fixture(autouse=True)
def quickly(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(feed_module, "QUICK_PAUSE_S", 0.01)
    monkeypatch.setattr(feed_module, "SLOW_PAUSE_S", 0.02)


@pytest.fixture
async def sources() -> Sources:
    return Sources()


async def test_quick_parts_are_there_at_once_and_slow_ones_when_they_come(sources: Sources) -> None:
    feed = sources.feed()
    sources.gate.clear()
    with feed.watched():
        assert json.loads(feed.since(0)) == {"now": 1.5, "why": 1}
        seen, turned = feed.version, feed.turned
        sources.gate.set()
        await asyncio.wait_for(turned, 5)
        assert json.loads(feed.since(seen)) == {"now": 1.5, "fleet": 10}
        assert json.loads(feed.since(0)) == {"now": 1.5, "why": 1, "fleet": 10}


async def test_what_has_not_changed_is_not_told_again(sources: Sources) -> None:
    feed = sources.feed()
    with feed.watched():
        await eventually(lambda: sources.slow_reads >= 3, timeout_s=5, what="it was read again")
        seen = feed.version
        assert feed.since(seen) == ""
        sources.quick = {"why": 2}
        await asyncio.wait_for(feed.turned, 5)
        assert json.loads(feed.since(seen)) == {"now": 1.5, "why": 2}


async def test_slow_parts_that_hang_keep_no_quick_one_waiting(sources: Sources) -> None:
    feed = sources.feed()
    sources.gate.clear()
    with feed.watched():
        seen = feed.version
        sources.quick = {"why": 2}
        await asyncio.wait_for(feed.turned, 5)
        assert json.loads(feed.since(seen))["why"] == 2


async def test_nothing_is_read_before_anybody_looks_nor_after(sources: Sources) -> None:
    feed = sources.feed()
    assert len(asyncio.all_tasks()) == 1
    assert (sources.quick_reads, sources.slow_reads) == (0, 0)
    with feed.watched():
        await eventually(lambda: sources.slow_reads, timeout_s=5, what="it was read")
    before = (sources.quick_reads, sources.slow_reads)
    await eventually(lambda: len(asyncio.all_tasks()) == 1, timeout_s=5, what="nobody is left to read")
    assert (sources.quick_reads, sources.slow_reads) == before


async def test_many_who_look_are_read_for_once(sources: Sources, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(feed_module, "SLOW_PAUSE_S", 60)
    feed = sources.feed()
    with feed.watched(), feed.watched(), feed.watched():
        assert all(json.loads(text)["fleet"] == 10 for text in await asyncio.gather(*(feed.whole() for _ in range(9))))
        assert sources.slow_reads == 1


async def test_whole_state_is_read_for_who_asks_once(sources: Sources, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(feed_module, "SLOW_PAUSE_S", 60)
    feed = sources.feed()
    assert json.loads(await feed.whole()) == {"now": 1.5, "why": 1, "fleet": 10}
    await asyncio.gather(*(feed.whole() for _ in range(9)))
    assert sources.slow_reads == 1


async def test_who_comes_back_sees_nothing_old(sources: Sources) -> None:
    feed = sources.feed()
    await feed.whole()
    sources.gate.clear()
    with feed.watched():
        assert "fleet" not in json.loads(feed.since(0))


async def test_order_is_seen_at_once(sources: Sources, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(feed_module, "SLOW_PAUSE_S", 60)
    feed = sources.feed()
    with feed.watched():
        await eventually(lambda: "fleet" in feed.since(0), timeout_s=5, what="it was read")
        sources.slow = {"fleet": 11}
        feed.hurry()
        await eventually(lambda: '"fleet":11' in feed.since(0), timeout_s=5, what="it was read again")
        assert sources.slow_reads == 2


async def test_failure_is_told_and_the_parts_stay(sources: Sources) -> None:
    feed = sources.feed()
    with feed.watched():
        await eventually(lambda: "fleet" in feed.since(0), timeout_s=5, what="it was read")
        sources.breaks = True
        await eventually(lambda: sources.words == {"quick", "slow"}, timeout_s=5, what="both are told")
        assert json.loads(feed.since(0)) == {"now": 1.5, "why": 1, "fleet": 10}
        sources.breaks, sources.quick = False, {"why": 3}
        await eventually(lambda: '"why":3' in feed.since(0), timeout_s=5, what="it goes on")


async def test_bucket_that_is_slow_is_asked_less_often(sources: Sources, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(feed_module, "REST", 100)
    feed = sources.feed()
    sources.gate.clear()
    with feed.watched():
        await eventually(lambda: sources.quick_reads > 5, timeout_s=5, what="the bucket takes its time")
        sources.gate.set()
        await eventually(lambda: sources.quick_reads > 25, timeout_s=5, what="time for ten rests")
        assert sources.slow_reads == 1
