"""The controller in virtual time: what it asks, when it judges, and what it survives."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from itertools import pairwise
from random import Random

import pytest

from harness.controller import IDENTITY, POLICY, WALL_S, ControllerRig
from harness.virtual_time import in_virtual_time, settle
from sidecar.controller.inbox import INBOX_LIMIT, REPORTS_A_TURN, Inbox
from sidecar.controller.journal import Memory
from sidecar.core.app_reports import ErrorLevel, ErrorReport, Results
from sidecar.core.claims import Fleet, Granted, Unknown
from sidecar.core.life.container import Snapshot
from sidecar.core.life.events import Checked, StopRequested
from sidecar.core.measure.measurements import RESULTS_KEPT_S
from sidecar.core.types import Latch, State

GRANTED = Granted(1, 10)
NO_SETTLE = replace(POLICY, settle_s=0.0)


def check_times(rig: ControllerRig) -> list[float]:
    """When the controller has judged: with nothing else going on, at its checks."""
    return [at for at, record in rig.observed if any(isinstance(event, Checked) for event in record.events)]


# -- from an error to a cull --------------------------------------------------------------------------------


@in_virtual_time
async def test_app_reports_its_version_and_the_next_incarnation_its_own() -> None:
    async with ControllerRig() as rig:
        versions = []
        for report in (
            ErrorReport(0, version="411"),
            ErrorReport(0, app_start="boot-1"),
            ErrorReport(0, app_start="boot-2"),
            ErrorReport(0, app_start="boot-2", version="412"),
        ):
            await rig.reports(report)
            versions.append(rig.controller.container.app_version)
        assert versions == ["411", "411", "", "412"]


@in_virtual_time
async def test_grant_drains_and_then_goes_down() -> None:
    async with ControllerRig() as rig:
        await rig.errors(5, kind="redis", app_start="boot-1")
        await rig.advance(3.25)
        await rig.answered(GRANTED)
        assert rig.state() is State.DRAINING
        await rig.advance(10.25)
        assert rig.states == [State.UP, State.SUSPECT, State.DRAINING, State.DOWN]
        reason = "5 server errors in 60 s (5 of them redis), the limit is 5"
        latch = Latch("web/a/boot-1", WALL_S, reason)
        assert rig.notes.saved[0] == Memory("web/a", "boot-1", "boot-1", None, WALL_S, IDENTITY)
        assert rig.notes.last == Memory("web/a", "boot-1", "boot-1", latch)


@in_virtual_time
async def test_a_budget_that_never_answers_is_not_waited_for_for_ever() -> None:
    async with ControllerRig(NO_SETTLE, window_s=600) as rig:
        await rig.errors(5)
        for _ in range(8):
            await rig.advance(5)
            await rig.errors(1)  # old errors claim nothing
        assert rig.budget.asked == ["web/a/-"] * 2
        assert rig.controller.container.answer == Unknown("internal")
        assert rig.controller.container.haproxy_up


@pytest.mark.parametrize("stalled", [False, True], ids=["answer late", "we stalled"])
@in_virtual_time
async def test_grant_that_comes_when_the_window_is_empty_again_culls_nobody(*, stalled: bool) -> None:
    async with ControllerRig(NO_SETTLE, window_s=5) as rig:
        await rig.errors(5)
        if stalled:
            rig.loop.stall(300)
        else:
            await rig.advance(7)
        await rig.answered(GRANTED)
        assert rig.state() is State.UP
        assert rig.latch is None


# -- the window ---------------------------------------------------------------------------------------------


@in_virtual_time
async def test_stall_of_minutes_turns_the_window_before_anything_is_judged() -> None:
    async with ControllerRig() as rig:
        await rig.errors(4)
        rig.loop.stall(300)
        await rig.errors(4)
        assert rig.state() is State.UP
        assert rig.controller.snapshot.evidence.errors == 4
        assert rig.controller.lag_s == pytest.approx(300, abs=1)


# -- when it looks ------------------------------------------------------------------------------------------


@in_virtual_time
async def test_checks_with_jitter_stay_within_its_bounds_and_are_not_in_step() -> None:
    async with ControllerRig(rng=Random(0)) as rig:
        await rig.advance(1000)
        times = check_times(rig)
        gaps = [later - earlier for earlier, later in pairwise(times[1:])]
        assert len(gaps) > 80
        assert min(gaps) >= 9 - 1e-6
        assert max(gaps) <= 11 + 1e-6
        assert max(gaps) - min(gaps) > 1


def test_first_interval_spreads_a_fleet_over_all_of_it() -> None:
    phases = []

    async def second_check(seed: int) -> None:
        async with ControllerRig(rng=Random(seed)) as rig:
            await rig.advance(10.5)
            first, second, *_ = check_times(rig)
            phases.append(second - first)

    for seed in range(40):
        in_virtual_time(second_check)(seed)
    assert {int(phase // 2.5) for phase in phases} == {0, 1, 2, 3}
    assert max(phases) <= 10 + 1e-6


def test_claims_of_a_fleet_are_spread() -> None:
    waits = []

    async def claim(seed: int) -> None:
        async with ControllerRig(rng=Random(seed)) as rig:
            await rig.errors(5)
            waits.append((rig.controller.container.due or 0) - rig.loop.time())

    for seed in range(20):
        in_virtual_time(claim)(seed)
    assert 3 <= min(waits) < 3.2
    assert 3.5 < max(waits) <= 3.75


@in_virtual_time
async def test_controller_with_an_empty_window_wakes_for_its_checks_and_for_beats_only() -> None:
    published: list[Snapshot] = []
    async with ControllerRig(publish=published.append) as rig:
        await rig.reports(Results(20, 0))
        published.clear()
        await rig.advance(100)
        assert len(published) >= 100
        await rig.advance(RESULTS_KEPT_S - 100)
        published.clear()
        for _ in range(10):
            await rig.advance(9.75)
            await rig.beat_answered(Fleet(1))
        assert len(published) == 10 + 10
        assert len(check_times(rig)) == (RESULTS_KEPT_S + 97.5) // 10 + 1


# -- the snapshot -------------------------------------------------------------------------------------------


@in_virtual_time
async def test_snapshot_is_published_once_a_turn_however_many_reports_come() -> None:
    published: list[Snapshot] = []
    async with ControllerRig(publish=published.append) as rig:
        await rig.advance(1)
        before = len(published)
        for _ in range(1000):
            rig.controller.inbox.offer([ErrorReport(level=ErrorLevel.CLIENT_ERROR)])
        await settle()
        assert len(published) - before == 1
        assert published[-1] is rig.controller.snapshot
        assert rig.controller.snapshot.evidence.levels == {"client_error": 1000}


# -- the end ------------------------------------------------------------------------------------------------


@in_virtual_time
async def test_stop_is_told_to_the_balancer_and_not_to_nomad() -> None:
    async with ControllerRig() as rig:
        await rig.errors(5)
        rig.controller.inbox.put(StopRequested())
        await settle()
        assert rig.state() is State.STOPPING
        assert not rig.controller.container.haproxy_up
        assert rig.controller.container.nomad_up
        await rig.errors(50)
        await rig.advance(30)
        assert rig.state() is State.STOPPING
        assert rig.budget.asked == []


@in_virtual_time
async def test_cancelled_run_ends_with_its_claim() -> None:
    async with ControllerRig(NO_SETTLE) as rig:
        await rig.errors(5)
        rig.running.cancel()
        with pytest.raises(asyncio.CancelledError):
            await rig.running
        assert rig.budget.cancelled == ["web/a/-"]
        assert asyncio.all_tasks() == {asyncio.current_task()}
        assert rig.failures == []


# -- the inbox ----------------------------------------------------------------------------------------------


def test_inbox_is_bounded_by_reports_however_they_come() -> None:
    inbox = Inbox()
    offered = [inbox.offer([ErrorReport()] * 1000) for _ in range(20)]
    assert offered == [True] * (INBOX_LIMIT // 1000) + [False] * 10


@in_virtual_time
async def test_many_reports_are_taken_in_several_turns_and_others_run_between() -> None:
    inbox = Inbox()
    others: list[str] = []
    for _ in range(3):
        inbox.offer([ErrorReport()] * (REPORTS_A_TURN // 2))
    asyncio.get_running_loop().call_soon(others.append, "another")
    assert [len(await inbox.take(5)), others] == [2, []]
    assert [len(await inbox.take(5)), others] == [1, ["another"]]
