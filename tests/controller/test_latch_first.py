"""No reader sees a grant before its latch is on disk, or the disk has had its time."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import TYPE_CHECKING, Self

import pytest

from harness.controller import POLICY, ControllerRig, MemoryJournal
from harness.virtual_time import in_virtual_time, settle
from sidecar.core.claims import Granted
from sidecar.core.types import Policy, State

if TYPE_CHECKING:
    from sidecar.controller.journal import Memory
    from sidecar.core.life.container import Snapshot

WAIT_S = 0.25
OUT_OF_BALANCE = frozenset({State.DRAINING, State.DOWN})
NO_SETTLE = replace(POLICY, settle_s=0.0)


class HeldJournal(MemoryJournal):
    """A journal whose writes end when the test says so."""

    def __init__(self) -> None:
        super().__init__()
        self.released = asyncio.Event()
        self.waits_given_up = 0

    @property
    def keeps(self) -> bool:
        return True

    async def save(self, memory: Memory) -> None:
        self.saved.append(memory)
        if memory.latch is not None:
            await self.released.wait()

    async def settled(self, timeout_s: float) -> None:
        if self.saved and self.saved[-1].latch is not None and not self.released.is_set():
            await asyncio.sleep(timeout_s)
            self.waits_given_up += 1


class Culled:
    """A controller whose claim was just granted while its disk hangs, and the states that readers have seen."""

    def __init__(self, policy: Policy = NO_SETTLE) -> None:
        self.seen: list[State] = []
        self.journal = HeldJournal()
        self.rig = ControllerRig(policy, journal=self.journal, publish=self._publish)

    def _publish(self, snapshot: Snapshot) -> None:
        self.seen.append(snapshot.container.state)

    async def __aenter__(self) -> Self:
        await self.rig.__aenter__()
        await self.rig.errors(5, app_start="boot-1")
        await self.rig.answered(Granted(1, 10))
        assert self.rig.latch is not None
        assert self.journal.saved[-1].latch == self.rig.latch
        return self

    async def __aexit__(self, *failure: object) -> None:
        self.journal.released.set()
        await self.rig.__aexit__(*failure)

    def shown(self) -> State:
        """What a health answer is made of now."""
        return self.rig.controller.snapshot.container.state


@pytest.mark.parametrize("policy", [NO_SETTLE, replace(NO_SETTLE, drain_s=0.0)], ids=["with a drain", "without"])
def test_grant_is_shown_when_its_latch_is_on_disk(policy: Policy) -> None:
    @in_virtual_time
    async def story() -> None:
        async with Culled(policy) as one:
            await one.rig.advance(WAIT_S - 0.01)
            await one.rig.errors(1)
            assert one.shown() is State.SUSPECT
            assert OUT_OF_BALANCE.isdisjoint(one.seen)
            one.journal.released.set()
            await settle()
            assert one.shown() is one.rig.state() in OUT_OF_BALANCE

    story()


@in_virtual_time
async def test_hanging_disk_delays_a_cull_by_a_quarter_of_a_second() -> None:
    async with Culled() as one:
        await one.rig.advance(WAIT_S - 0.01)
        assert one.shown() is State.SUSPECT
        await one.rig.advance(0.02)
        assert one.shown() is State.DRAINING
        assert one.journal.waits_given_up == 1


@in_virtual_time
async def test_reports_are_taken_while_the_disk_hangs() -> None:
    async with Culled() as one:
        await one.rig.errors(7, app_start="boot-1")
        assert one.rig.controller.assessment.measurements.errors.total == 12


@in_virtual_time
async def test_app_that_restarts_while_the_disk_hangs_is_shown_at_once() -> None:
    async with Culled() as one:
        await one.rig.errors(1, app_start="boot-2")
        assert one.shown() is State.UP
        await one.rig.advance(2 * WAIT_S)
        assert OUT_OF_BALANCE.isdisjoint(one.seen)
        assert one.journal.saved[-1].latch is None
