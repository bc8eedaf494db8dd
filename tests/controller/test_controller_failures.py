"""The hall among parts that fail: each failure is reported, and the house goes on."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import TYPE_CHECKING

from harness.controller import POLICY, Notes, Stage
from harness.virtual_time import in_virtual_time, settle
from sidecar.core.types import Granted, Ping, State, Unknown

if TYPE_CHECKING:
    from sidecar.controller.journal import Memory
    from sidecar.core.life.snapshot import Record

GRANTED = Granted(1, 10)
NO_SETTLE = replace(POLICY, settle_s=0.0)


class BadError(Exception):
    """What the fakes below raise."""


@in_virtual_time
async def test_bad_observer_is_reported_and_changes_nothing() -> None:
    def observe(_record: Record) -> None:
        raise BadError

    async with Stage(observe=observe) as stage:
        assert stage.controller.checked_at is not None
        await stage.errors(5, app_start="boot-1")
        assert stage.controller.evidence().errors == 5
        await stage.passes(3.25)
        await stage.answered(GRANTED)
        await stage.passes(10.25)
        assert stage.state() is State.DOWN
        assert {type(error) for error in stage.failures} == {BadError}
        assert len(stage.failures) < 20


@in_virtual_time
async def test_failing_budget_is_an_unclear_answer() -> None:
    async with Stage(NO_SETTLE) as stage:
        await stage.errors(5)
        await stage.answered(BadError())
        assert stage.controller.container.answer == Unknown("internal")
        assert [type(error) for error in stage.failures] == [BadError]
        await stage.passes(2)
        await stage.answered(GRANTED)
        assert stage.state() is State.DRAINING


class BrokenNotes(Notes):
    """A journal that breaks its promise never to raise."""

    async def save(self, memory: Memory) -> None:
        raise BadError(memory.app)

    async def settled(self, timeout_s: float) -> None:
        raise BadError(timeout_s)


@in_virtual_time
async def test_broken_journal_makes_the_claim_an_unclear_answer() -> None:
    async with Stage(NO_SETTLE, journal=BrokenNotes()) as stage:
        await stage.errors(5, app_start="boot-1")
        assert stage.controller.container.answer == Unknown("internal")
        assert not stage.controller.container.asking
        assert {type(error) for error in stage.failures} == {BadError}


class HangingNotes(Notes):
    """A journal whose disk hangs for as long as one is willing to wait."""

    async def settled(self, timeout_s: float) -> None:
        await asyncio.sleep(timeout_s)


@in_virtual_time
async def test_hanging_disk_holds_up_a_claim_for_a_second_and_nothing_else() -> None:
    async with Stage(NO_SETTLE, journal=HangingNotes()) as stage:
        await stage.errors(5)
        await stage.errors(5)
        assert stage.controller.evidence().errors == 10
        assert stage.budget.asked == []
        await stage.passes(1)
        assert stage.budget.asked == ["web/a/-"]


@in_virtual_time
async def test_message_that_cannot_be_handled_does_not_take_the_next_ones_with_it() -> None:
    async with Stage() as stage:
        stage.controller.inbox.put([Ping(1, kind=[])])  # type: ignore[arg-type] # what no door lets through
        stage.controller.inbox.put([Ping(5)])
        await settle()
        assert [type(error) for error in stage.failures] == [TypeError]
        assert stage.state() is State.SUSPECT


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
    async with Stage(replace(POLICY, error_limit=limit)) as stage:
        await stage.errors(5)
        limit.broken = True
        await stage.passes(2.75)
        assert stage.failures == []
        await stage.passes(20)
        assert 15 <= len(stage.failures) <= 25
        assert stage.budget.asked == []
        limit.broken = False
        await stage.passes(2)
        assert stage.budget.asked == ["web/a/-"]
