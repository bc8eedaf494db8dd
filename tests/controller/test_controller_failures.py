"""The controller among parts that fail: each failure is reported, and the controller goes on."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import TYPE_CHECKING

from harness.controller import POLICY, ControllerRig, MemoryJournal
from harness.virtual_time import in_virtual_time, settle
from sidecar.core.app_reports import ErrorReport
from sidecar.core.claims import Granted, Unknown
from sidecar.core.types import State

if TYPE_CHECKING:
    from sidecar.controller.journal import Memory
    from sidecar.core.life.container import Record

GRANTED = Granted(1, 10)
NO_SETTLE = replace(POLICY, settle_s=0.0)


class BadError(Exception):
    """What the fakes below raise."""


@in_virtual_time
async def test_bad_observer_is_reported_and_changes_nothing() -> None:
    def observe(_record: Record) -> None:
        raise BadError

    async with ControllerRig(observe=observe) as rig:
        assert rig.controller.snapshot.checked_at is not None
        await rig.errors(5, app_start="boot-1")
        assert rig.controller.snapshot.evidence.errors == 5
        await rig.advance(3.25)
        await rig.answered(GRANTED)
        await rig.advance(10.25)
        assert rig.state() is State.DOWN
        assert {type(error) for error in rig.failures} == {BadError}
        assert len(rig.failures) < 20


@in_virtual_time
async def test_failing_budget_is_an_unclear_answer() -> None:
    async with ControllerRig(NO_SETTLE) as rig:
        await rig.errors(5)
        await rig.answered(BadError())
        assert rig.controller.container.answer == Unknown("internal")
        assert [type(error) for error in rig.failures] == [BadError]
        await rig.advance(2)
        await rig.answered(GRANTED)
        assert rig.state() is State.DRAINING


class BrokenNotes(MemoryJournal):
    """A journal that breaks its promise never to raise."""

    async def save(self, memory: Memory) -> None:
        raise BadError(memory.app)

    async def settled(self, timeout_s: float) -> None:
        raise BadError(timeout_s)


@in_virtual_time
async def test_broken_journal_makes_the_claim_an_unclear_answer() -> None:
    async with ControllerRig(NO_SETTLE, journal=BrokenNotes()) as rig:
        await rig.errors(5, app_start="boot-1")
        assert rig.controller.container.answer == Unknown("internal")
        assert not rig.controller.container.asking
        assert {type(error) for error in rig.failures} == {BadError}


class HangingNotes(MemoryJournal):
    """A journal whose disk hangs for as long as one is willing to wait."""

    async def settled(self, timeout_s: float) -> None:
        await asyncio.sleep(timeout_s)


@in_virtual_time
async def test_hanging_disk_holds_up_a_claim_for_a_second_and_nothing_else() -> None:
    async with ControllerRig(NO_SETTLE, journal=HangingNotes()) as rig:
        await rig.errors(5)
        await rig.errors(5)
        assert rig.controller.snapshot.evidence.errors == 10
        assert rig.budget.asked == []
        await rig.advance(1)
        assert rig.budget.asked == ["web/a/-"]


@in_virtual_time
async def test_message_that_cannot_be_handled_does_not_take_the_next_ones_with_it() -> None:
    async with ControllerRig() as rig:
        rig.controller.inbox.offer([ErrorReport(1, kind=[])])  # type: ignore[arg-type] # no listener accepts this
        rig.controller.inbox.offer([ErrorReport(5)])
        await settle()
        assert [type(error) for error in rig.failures] == [TypeError]
        assert rig.state() is State.SUSPECT


class Limit(int):
    """A limit of errors that can be made to fail, and every judgement with it."""

    broken = False

    def __gt__(self, other: int) -> bool:
        if self.broken:
            raise BadError
        return super().__gt__(other)


@in_virtual_time
async def test_step_that_always_fails_is_tried_once_a_second_and_not_in_a_spin() -> None:
    limit = Limit(5)
    async with ControllerRig(replace(POLICY, error_limit=limit)) as rig:
        await rig.errors(5)
        limit.broken = True
        await rig.advance(2.75)
        assert rig.failures == []
        await rig.advance(20)
        assert 15 <= len(rig.failures) <= 25
        assert rig.budget.asked == []
        await rig.errors(1)  # old errors claim nothing
        limit.broken = False
        await rig.advance(2)
        assert rig.budget.asked == ["web/a/-"]
