"""The controller and the weight: from results to the weight at the balancer, and to the end of a drain."""

from __future__ import annotations

from dataclasses import replace

import pytest

from harness.controller import POLICY, ControllerRig
from harness.virtual_time import in_virtual_time
from sidecar.core.measure.weight import FULL, Weight
from sidecar.core.types import AppExited, ErrorReport, Fleet, Granted, Missed, Policy, Report, Results, Sample, State

NEVER = replace(POLICY, error_ratio=0.0, error_limit=0)
"""Nobody is culled: this is about weights."""

NO_SETTLE = replace(POLICY, settle_s=0.0)
WELL, HALF, NONE = Results(20, 0), Results(10, 10), Results(0, 20)


async def serves(rig: ControllerRig, results: Report, seconds: int) -> list[int]:
    """Report the same each second; the weight at the end of each."""
    weights = []
    for _ in range(seconds):
        await rig.reports(results)
        await rig.advance(1)
        weights.append(rig.controller.snapshot.weight)
    return weights


# -- from results to a weight -------------------------------------------------------------------------------


@pytest.mark.parametrize("phase_s", [0.0, 1.5, 2.5, 4.25])
@in_virtual_time
async def test_app_that_begins_to_fail_half_of_its_requests_has_an_eighth_within_ten_seconds(phase_s: float) -> None:
    async with ControllerRig(NEVER) as rig:
        assert await serves(rig, WELL, 60) == [100] * 60
        await rig.advance(phase_s)
        weights = await serves(rig, HALF, 10)
        assert weights == sorted(weights, reverse=True)
        assert 10 <= weights[-1] <= 15
        assert (rig.controller.snapshot.success_rate or 0) == pytest.approx(0.5, abs=0.03)


@in_virtual_time
async def test_app_that_is_well_again_rises_and_is_whole_within_a_minute() -> None:
    async with ControllerRig(NEVER) as rig:
        await serves(rig, HALF, 40)
        weights = await serves(rig, WELL, 60)
        assert weights == sorted(weights)
        assert weights[2] <= 30
        assert weights[-1] == 100


@in_virtual_time
async def test_app_that_fails_all_of_its_requests_has_the_floor() -> None:
    async with ControllerRig(NEVER, weight=Weight(floor=7)) as rig:
        assert (await serves(rig, NONE, 12))[-1] == 7


@in_virtual_time
async def test_sample_weighs_as_results_do() -> None:
    async with ControllerRig(NEVER) as rig:
        assert (await serves(rig, Sample({"redis": 10}, requests=20), 30))[-1] in range(11, 15)


@pytest.mark.parametrize(
    "report", [ErrorReport(50), Sample({"redis": 50}), Missed("timeout")], ids=["pings", "errors alone", "no page"]
)
@in_virtual_time
async def test_errors_without_requests_leave_the_weight_alone(report: Report) -> None:
    async with ControllerRig(NEVER) as rig:
        assert await serves(rig, report, 30) == [100] * 30


@in_virtual_time
async def test_weighing_that_is_off_leaves_every_weight_alone() -> None:
    async with ControllerRig(NEVER, weight=Weight(floor=FULL)) as rig:
        assert await serves(rig, NONE, 30) == [100] * 30
        assert rig.controller.snapshot.success_rate == 0.0


@in_virtual_time
async def test_weight_is_stepped_once_a_second_however_many_reports_come() -> None:
    async with ControllerRig(NEVER) as rig:
        await serves(rig, WELL, 5)
        for _ in range(50):
            await rig.reports(NONE)
        assert rig.controller.snapshot.weight == 100
        await rig.advance(1)
        assert rig.controller.snapshot.weight == 80


@in_virtual_time
async def test_silence_keeps_the_weight_for_minutes_and_then_speaks_for_the_app() -> None:
    async with ControllerRig(NEVER) as rig:
        await serves(rig, NONE, 12)
        await rig.advance(280)
        assert rig.controller.snapshot.weight == 10
        await rig.advance(60)
        assert (rig.controller.snapshot.weight, rig.controller.snapshot.success_rate) == (100, None)


# -- over incarnations of the app ------------------------------------------------------------------------------


@pytest.mark.parametrize("end", [ErrorReport(0, app_start="boot-2"), AppExited()], ids=["another name", "gone"])
@in_virtual_time
async def test_new_life_begins_with_all_of_its_weight(end: Report) -> None:
    async with ControllerRig(NEVER) as rig:
        await rig.reports(ErrorReport(0, app_start="boot-1"))
        await serves(rig, NONE, 12)
        await rig.reports(end)
        assert (rig.controller.snapshot.weight, rig.controller.snapshot.success_rate) == (100, None)
        assert await serves(rig, WELL, 5) == [100] * 5


@in_virtual_time
async def test_grace_shields_from_the_cull_and_not_from_the_weight() -> None:
    async with ControllerRig(replace(NO_SETTLE, grace_s=30.0, error_ratio=0.0)) as rig:
        weights = await serves(rig, HALF, 28)
        assert rig.state() is State.STARTING
        assert weights[10] <= 15
        after = await serves(rig, HALF, 5)
        assert rig.state() is State.UP
        assert max(after) <= 15, "nor does the end of it raise the weight"


@in_virtual_time
async def test_whoever_is_out_of_balance_is_told_of_with_no_weight() -> None:
    async with ControllerRig(NO_SETTLE) as rig:
        await rig.errors(5)
        assert rig.controller.snapshot.share == 100
        await rig.answered(Granted(1, 10))
        assert (rig.controller.snapshot.share, rig.controller.snapshot.weight) == (0, 100)


# -- the end of a drain -------------------------------------------------------------------------------------


def idle(at: float = 0.0) -> Sample:
    return Sample({}, in_flight=at)


async def draining(rig: ControllerRig) -> None:
    await rig.errors(5)
    await rig.answered(Granted(1, 10))
    assert rig.state() is State.DRAINING


@pytest.mark.parametrize("report", [idle(), Results(in_flight=0)], ids=["scraped", "told"])
@in_virtual_time
async def test_drain_ends_with_the_first_word_that_nothing_is_in_flight(report: Report) -> None:
    async with ControllerRig(NO_SETTLE) as rig:
        await draining(rig)
        await rig.advance(3.5)
        await rig.reports(report)
        assert rig.state() is State.DOWN


@pytest.mark.parametrize(
    "reports",
    [
        pytest.param([], id="nothing said"),
        pytest.param([Results(5, 0), Sample({})], id="nothing said of it"),
        pytest.param([idle(1)], id="one in flight"),
        pytest.param([idle(), idle(2)], id="not idle any more"),
        pytest.param([Missed("timeout")], id="no page"),
    ],
)
@in_virtual_time
async def test_drain_without_a_fresh_word_of_idleness_lasts(reports: list[Report]) -> None:
    async with ControllerRig(NO_SETTLE) as rig:
        await rig.reports(idle())
        await draining(rig)
        await rig.advance(3.5)
        if reports:
            await rig.reports(*reports)
        await rig.advance(6)
        assert rig.state() is State.DRAINING
        await rig.advance(1)
        assert rig.state() is State.DOWN


@in_virtual_time
async def test_idle_before_every_balancer_has_let_go_is_not_believed() -> None:
    async with ControllerRig(NO_SETTLE) as rig:
        await draining(rig)
        await rig.advance(2.75)
        await rig.reports(idle())
        await rig.advance(5)
        assert rig.state() is State.DRAINING
        await rig.reports(idle())
        assert rig.state() is State.DOWN


@in_virtual_time
async def test_flood_of_reports_in_a_drain_is_not_judged_one_by_one() -> None:
    policy: Policy = replace(NO_SETTLE, drain_s=60.0)
    async with ControllerRig(policy) as rig:
        await draining(rig)
        judged = len(rig.records)
        for _ in range(100):
            await rig.reports(Results(5, 0, 2))
        assert len(rig.records) == judged


# -- soft drain -----------------------------------------------------------------------------------------------

TEN = Fleet(10, 1)


@in_virtual_time
async def test_suspect_that_reports_only_errors_has_the_floor_at_once_and_rises_when_it_is_well() -> None:
    async with ControllerRig(window_s=10) as rig:
        await rig.beat_answered(TEN)
        await rig.errors(5)
        seen = rig.controller.snapshot
        assert (rig.state(), seen.share, seen.is_soft_drained) == (State.SUSPECT, 10, True)
        await rig.advance(5)
        assert rig.controller.snapshot.share == 10
        await rig.advance(7)
        await rig.answered(Granted(1, 10))
        seen = rig.controller.snapshot
        assert (rig.state(), seen.share, seen.is_soft_drained) == (State.UP, 10, False)
        assert await serves(rig, ErrorReport(0), 4) == [15, 20, 25, 30]
        assert rig.budget.returned == [("a", "web/a/-")]


@in_virtual_time
async def test_weight_follows_at_once_how_many_suffer() -> None:
    async with ControllerRig(window_s=600) as rig:
        await rig.beat_answered(TEN)
        await rig.errors(5)
        weights = []
        for suspect in (4, 5, 10, 4):
            await rig.beat_answered(Fleet(10, suspect))
            weights.append(rig.controller.snapshot.weight)
        assert weights == [50, 60, 100, 50]


@in_virtual_time
async def test_weight_comes_back_when_the_fleet_is_not_known_any_more() -> None:
    async with ControllerRig(window_s=600) as rig:
        await rig.beat_answered(TEN)
        await rig.errors(5)
        assert rig.controller.snapshot.weight == 10
        await rig.beat_unanswered()
        assert rig.controller.snapshot.weight == 100


@pytest.mark.parametrize("report", [ErrorReport(5), Results(0, 20)], ids=["alone", "with requests"])
@in_virtual_time
async def test_suspect_that_may_not_be_drained_softly_keeps_its_weight(report: Report) -> None:
    async with ControllerRig() as rig:
        await rig.beat_answered(Fleet(1) if isinstance(report, ErrorReport) else TEN)
        await rig.advance(1)
        await rig.reports(Results(20, 0) if isinstance(report, Results) else ErrorReport(0))
        await rig.advance(1)
        await rig.reports(report)
        assert (rig.state(), rig.controller.snapshot.weight) == (State.SUSPECT, 100)


@in_virtual_time
async def test_new_life_of_a_drained_container_has_all_of_its_weight() -> None:
    async with ControllerRig() as rig:
        await rig.beat_answered(TEN)
        await rig.errors(5, app_start="boot-1")
        await rig.errors(1, app_start="boot-2")
        seen = rig.controller.snapshot
        assert (seen.weight, seen.is_soft_drained) == (100, False)
