"""The controller at a retirement, and when a person orders a restart: what it asks the budget, and what it keeps."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from random import Random

import pytest

from harness.controller import POLICY, WALL_S, ControllerRig
from harness.virtual_time import in_virtual_time, settle
from sidecar.controller.journal import Memory
from sidecar.core.app_reports import ErrorReport, Results
from sidecar.core.claims import Granted, LeaseRequest, RandomIdentity, Unknown
from sidecar.core.life.container import start
from sidecar.core.life.events import ReviveOrdered
from sidecar.core.types import Latch, Policy, State

GRANTED = Granted(1, 1)
AGING = replace(POLICY, lifetime_s=100.0, retire_slots="100p", retire_timeout_s=60.0)
PATIENT = replace(AGING, lifetime_max_s=200.0, busy_load=0.5)
HOLDER = "lease-of-a"


def aging_stage(policy: Policy = AGING, rng: Random | None = None) -> ControllerRig:
    now = asyncio.get_running_loop().time()
    return ControllerRig(
        policy, rng=rng, container=start("web/a", now, policy, app_start="boot-1", identity=RandomIdentity(HOLDER))
    )


@in_virtual_time
async def test_old_container_retires_under_a_lease() -> None:
    async with aging_stage() as rig:
        await rig.advance(99)
        assert rig.budget.leases == []
        await rig.advance(2)
        assert rig.budget.leases == [LeaseRequest(HOLDER, "a", "boot-1", "100p", 60.0)]
        assert rig.state() is State.RETIRING
        await rig.answered(GRANTED)
        reason = "retired at age 1m 41s, its lifetime is 1m 40s"
        assert rig.latch == Latch("", WALL_S, reason, lease=HOLDER, spent_s=1.0)  # the answer took a second
        await rig.advance(10)
        assert rig.states == [State.UP, State.RETIRING, State.DRAINING, State.DOWN]
        assert rig.notes.saved[-1].latch == rig.latch
        assert rig.budget.claims == []
        assert rig.budget.most_at_once == 1
        assert rig.failures == []


@in_virtual_time
async def test_every_life_has_a_word_and_a_part_of_the_jitter_of_its_own() -> None:
    async with aging_stage(rng=Random(0)) as rig:
        identities = [rig.controller.container.identity]
        for number in range(2, 6):
            await rig.reports(ErrorReport(0, app_start=f"boot-{number}"))
            identities.append(rig.controller.container.identity)
        assert len({identity.holder for identity in identities}) == len({identity.part for identity in identities}) == 5
        assert all(0 <= identity.part <= 1 for identity in identities)


@in_virtual_time
async def test_age_and_word_are_written_down_at_once_where_they_count() -> None:
    async with aging_stage() as rig:
        (memory,) = rig.notes.saved
        assert (memory.born, memory.identity) == (WALL_S, RandomIdentity(HOLDER))
    async with ControllerRig() as rig:
        assert rig.notes.saved == []


@in_virtual_time
async def test_snapshot_tells_when_the_end_is_due_and_how_busy_the_app_is() -> None:
    async with aging_stage(PATIENT) as rig:
        born = rig.controller.container.born
        await rig.reports(Results(in_flight=3))
        await rig.advance(5)
        seen = rig.controller.snapshot
        assert seen.retire_at == born + 100
        assert seen.load is not None
        assert seen.load.value == 3
        assert seen.load.age_s == pytest.approx(5 - (rig.loop.time() - seen.now))
    async with ControllerRig() as rig:
        assert rig.controller.snapshot.retire_at is None


# -- orders of a person ---------------------------------------------------------------------------------------


@in_virtual_time
async def test_revived_container_is_another_life_of_the_app_that_still_reports() -> None:
    async with ControllerRig(replace(POLICY, settle_s=0.0, drain_s=0.0)) as rig:
        await rig.errors(5, app_start="boot-1")
        await rig.answered(Granted(1, 10))
        assert rig.state() is State.DOWN
        await rig.errors(9, app_start="boot-1")
        rig.controller.inbox.put(ReviveOrdered("ann", "it was me"))
        await settle()
        word = rig.controller.container.life
        assert word.startswith("revived-")
        assert (rig.state(), rig.controller.snapshot.evidence.errors) == (State.UP, 0)
        assert rig.notes.last == Memory("web/a", "boot-1", word)
        await rig.errors(5, app_start="boot-1")
        assert rig.budget.outstanding == [f"web/a/{word}"]
        assert rig.controller.stale_reports == 0


@in_virtual_time
async def test_store_that_takes_no_lease_back_holds_nothing_up_for_ever() -> None:
    async with aging_stage(PATIENT) as rig:
        await rig.advance(101)
        rig.budget.return_gate.clear()
        await rig.reports(Results(load=0.9))
        await rig.answered(GRANTED)
        await rig.reports(Results(load=0.0))
        await rig.advance(35)
        assert rig.controller.container.lease_answer == Unknown("internal")
        assert {type(failure) for failure in rig.failures} == {TimeoutError}
