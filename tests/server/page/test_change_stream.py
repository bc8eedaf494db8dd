"""One read for all viewers, none without viewers, and only changes are sent."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest

from harness.waiting import eventually
from sidecar.server.page import change_stream
from sidecar.server.page.change_stream import ChangeStream


class Sources:
    """What the changes reads, and how often it did."""

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

    def changes(self) -> ChangeStream:
        clock = asyncio.get_running_loop().time
        return ChangeStream(
            self.read_quick, self.read_slow, wall=lambda: 1.5, clock=clock, on_failure=self.failures.append
        )


def _read(pieces: list[bytes]) -> Any:
    return json.loads(b"".join(pieces))


@pytest.fixture(autouse=True)
def quickly(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(change_stream, "QUICK_PAUSE_S", 0.01)
    monkeypatch.setattr(change_stream, "SLOW_PAUSE_S", 0.02)


@pytest.fixture
async def sources() -> Sources:
    return Sources()


async def test_quick_parts_are_there_at_once_and_slow_ones_when_they_come(sources: Sources) -> None:
    changes = sources.changes()
    sources.gate.clear()
    with changes.viewed():
        assert _read(changes.since(0)) == {"now": 1.5, "why": 1}
        seen, turned = changes.version, changes.changed
        sources.gate.set()
        await asyncio.wait_for(turned, 60)
        assert _read(changes.since(seen)) == {"now": 1.5, "fleet": 10}
        assert _read(changes.since(0)) == {"now": 1.5, "why": 1, "fleet": 10}


async def test_unchanged_parts_are_not_sent_again(sources: Sources) -> None:
    changes = sources.changes()
    with changes.viewed():
        await eventually(lambda: sources.slow_reads >= 3, timeout_s=60, what="it was read again")
        seen = changes.version
        assert changes.since(seen) == []
        sources.quick = {"why": 2}
        await asyncio.wait_for(changes.changed, 60)
        assert _read(changes.since(seen)) == {"now": 1.5, "why": 2}


async def test_slow_parts_that_hang_keep_no_quick_one_waiting(sources: Sources) -> None:
    changes = sources.changes()
    sources.gate.clear()
    with changes.viewed():
        seen = changes.version
        sources.quick = {"why": 2}
        await asyncio.wait_for(changes.changed, 60)
        assert _read(changes.since(seen))["why"] == 2


async def test_nothing_is_read_without_viewers(sources: Sources) -> None:
    changes = sources.changes()
    assert len(asyncio.all_tasks()) == 1
    assert (sources.quick_reads, sources.slow_reads) == (0, 0)
    with changes.viewed():
        await eventually(lambda: sources.slow_reads, timeout_s=60, what="it was read")
    before = (sources.quick_reads, sources.slow_reads)
    await eventually(lambda: len(asyncio.all_tasks()) == 1, timeout_s=60, what="no task is left")
    assert (sources.quick_reads, sources.slow_reads) == before


async def test_many_viewers_share_one_read(sources: Sources, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(change_stream, "SLOW_PAUSE_S", 60)
    changes = sources.changes()
    with changes.viewed(), changes.viewed(), changes.viewed():
        assert all(
            _read(pieces)["fleet"] == 10 for pieces in await asyncio.gather(*(changes.whole() for _ in range(9)))
        )
        assert sources.slow_reads == 1


async def test_whole_state_is_read_without_viewers(sources: Sources, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(change_stream, "SLOW_PAUSE_S", 60)
    changes = sources.changes()
    assert _read(await changes.whole()) == {"now": 1.5, "why": 1, "fleet": 10}
    await asyncio.gather(*(changes.whole() for _ in range(9)))
    assert sources.slow_reads == 1


async def test_returning_viewer_sees_nothing_old(sources: Sources) -> None:
    changes = sources.changes()
    await changes.whole()
    sources.gate.clear()
    with changes.viewed():
        assert "fleet" not in _read(changes.since(0))


async def test_order_is_seen_at_once(sources: Sources, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(change_stream, "SLOW_PAUSE_S", 60)
    changes = sources.changes()
    with changes.viewed():
        await eventually(lambda: "fleet" in _read(changes.since(0)), timeout_s=60, what="it was read")
        sources.slow = {"fleet": 11}
        changes.hurry()
        await eventually(lambda: _read(changes.since(0))["fleet"] == 11, timeout_s=60, what="it was read again")
        assert sources.slow_reads == 2


async def test_failure_is_reported_and_the_parts_stay(sources: Sources) -> None:
    changes = sources.changes()
    with changes.viewed():
        await eventually(lambda: "fleet" in _read(changes.since(0)), timeout_s=60, what="it was read")
        sources.breaks = True
        await eventually(lambda: sources.words == {"quick", "slow"}, timeout_s=60, what="both are reported")
        assert _read(changes.since(0)) == {"now": 1.5, "why": 1, "fleet": 10}
        sources.breaks, sources.quick = False, {"why": 3}
        await eventually(lambda: _read(changes.since(0))["why"] == 3, timeout_s=60, what="it goes on")


async def test_slow_store_is_asked_less_often(sources: Sources, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(change_stream, "SLOW_PAUSE_FACTOR", 100)
    changes = sources.changes()
    sources.gate.clear()
    with changes.viewed():
        await eventually(lambda: sources.quick_reads > 5, timeout_s=60, what="the store is slow")
        sources.gate.set()
        await eventually(lambda: sources.quick_reads > 25, timeout_s=60, what="time for ten rests")
        assert sources.slow_reads == 1
