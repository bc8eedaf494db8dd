"""The hall and the weight: from results to what the balancer is told, and from an idle app to the end of its drain."""

from __future__ import annotations

from dataclasses import replace

import pytest

from harness.controller import POLICY, Stage
from harness.virtual_time import in_virtual_time
from sidecar.core.life.events import Judged
from sidecar.core.life.weight import FULL, Weight
from sidecar.core.types import AppExited, Fleet, Granted, Missed, Ping, Policy, Report, Results, Sample, State

NEVER = replace(POLICY, error_ratio=0.0, error_limit=0)
"""Nobody is culled: this is about weights."""

NO_SETTLE = replace(POLICY, settle_s=0.0)
WELL, HALF, NONE = Results(20, 0), Results(10, 10), Results(0, 20)


async def serves(stage: Stage, results: Report, seconds: int) -> list[int]:
    """Report the same each second; the weight at the end of each."""
    weights = []
    for _ in range(seconds):
        await stage.reports(results)
        await stage.passes(1)
        weights.append(stage.controller.snapshot().weight)
    return weights


# -- from results to a weight -------------------------------------------------------------------------------


@pytest.mark.parametrize("phase_s", [0.0, 1.5, 2.5, 4.25])
@in_virtual_time
async def test_app_that_begins_to_fail_half_of_its_requests_has_an_eighth_within_ten_seconds(phase_s: float) -> None:
    async with Stage(NEVER) as stage:
        assert await serves(stage, WELL, 60) == [100] * 60
        await stage.passes(phase_s)
        weights = await serves(stage, HALF, 10)
        assert weights == sorted(weights, reverse=True)
        assert 10 <= weights[-1] <= 15
        assert (stage.controller.snapshot().success_rate or 0) == pytest.approx(0.5, abs=0.03)


@in_virtual_time
async def test_app_that_is_well_again_rises_and_is_whole_within_a_minute() -> None:
    async with Stage(NEVER) as stage:
        await serves(stage, HALF, 40)
        weights = await serves(stage, WELL, 60)
        assert weights == sorted(weights)
        assert weights[2] <= 30
        assert weights[-1] == 100


@in_virtual_time
async def test_app_that_fails_all_of_its_requests_has_the_floor() -> None:
    async with Stage(NEVER, weight=Weight(floor=7)) as stage:
        assert (await serves(stage, NONE, 12))[-1] == 7


@in_virtual_time
async def test_sample_weighs_as_results_do() -> None:
    async with Stage(NEVER) as stage:
        assert (await serves(stage, Sample({"redis": 10}, requests=20), 30))[-1] in range(11, 15)


@pytest.mark.parametrize(
    "report", [Ping(50), Sample({"redis": 50}), Missed("timeout")], ids=["pings", "errors alone", "no page"]
)
@in_virtual_time
async def test_errors_without_requests_leave_the_weight_alone(report: Report) -> None:
    async with Stage(NEVER) as stage:
        assert await serves(stage, report, 30) == [100] * 30


@in_virtual_time
async def test_weighing_that_is_off_leaves_every_weight_alone() -> None:
    async with Stage(NEVER, weight=Weight(floor=FULL)) as stage:
        assert await serves(stage, NONE, 30) == [100] * 30
        assert stage.controller.snapshot().success_rate == 0.0


@in_virtual_time
async def test_weight_is_stepped_once_a_second_however_many_reports_come() -> None:
    async with Stage(NEVER) as stage:
        await serves(stage, WELL, 5)
        for _ in range(50):
            await stage.reports(NONE)
        assert stage.controller.snapshot().weight == 100
        await stage.passes(1)
        assert stage.controller.snapshot().weight == 80


@in_virtual_time
async def test_silence_keeps_the_weight_for_minutes_and_then_speaks_for_the_app() -> None:
    async with Stage(NEVER) as stage:
        await serves(stage, NONE, 12)
        await stage.passes(280)
        assert stage.controller.snapshot().weight == 10
        await stage.passes(60)
        assert (stage.controller.snapshot().weight, stage.controller.snapshot().success_rate) == (100, None)


# -- over the lives of the app ------------------------------------------------------------------------------


@pytest.mark.parametrize("end", [Ping(0, app_start="boot-2"), AppExited()], ids=["another name", "gone"])
@in_virtual_time
async def test_new_life_begins_with_all_of_its_weight(end: Report) -> None:
    async with Stage(NEVER) as stage:
        await stage.reports(Ping(0, app_start="boot-1"))
        await serves(stage, NONE, 12)
        await stage.reports(end)
        assert (stage.controller.snapshot().weight, stage.controller.snapshot().success_rate) == (100, None)
        assert await serves(stage, WELL, 5) == [100] * 5


@in_virtual_time
async def test_grace_shields_from_the_cull_and_not_from_the_weight() -> None:
    async with Stage(replace(NO_SETTLE, grace_s=30.0, error_ratio=0.0)) as stage:
        weights = await serves(stage, HALF, 28)
        assert stage.state() is State.STARTING
        assert weights[10] <= 15
        after = await serves(stage, HALF, 5)
        assert stage.state() is State.UP
        assert max(after) <= 15, "nor does the end of it raise the weight"


@in_virtual_time
async def test_whoever_is_out_of_balance_is_told_of_with_no_weight() -> None:
    async with Stage(NO_SETTLE) as stage:
        await stage.errors(5)
        assert stage.controller.snapshot().share == 100
        await stage.answered(Granted(1, 10))
        assert (stage.controller.snapshot().share, stage.controller.snapshot().weight) == (0, 100)


# -- the end of a drain -------------------------------------------------------------------------------------


def idle(at: float = 0.0) -> Sample:
    return Sample({}, in_flight=at)


async def draining(stage: Stage) -> None:
    await stage.errors(5)
    await stage.answered(Granted(1, 10))
    assert stage.state() is State.DRAINING


@pytest.mark.parametrize("report", [idle(), Results(in_flight=0)], ids=["scraped", "told"])
@in_virtual_time
async def test_drain_ends_with_the_first_word_that_nothing_is_in_flight(report: Report) -> None:
    async with Stage(NO_SETTLE) as stage:
        await draining(stage)
        await stage.passes(3.5)
        await stage.reports(report)
        assert stage.state() is State.DOWN


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
    async with Stage(NO_SETTLE) as stage:
        await stage.reports(idle())
        await draining(stage)
        await stage.passes(3.5)
        if reports:
            await stage.reports(*reports)
        await stage.passes(6)
        assert stage.state() is State.DRAINING
        await stage.passes(1)
        assert stage.state() is State.DOWN


@in_virtual_time
async def test_idle_before_every_balancer_has_let_go_is_not_believed() -> None:
    async with Stage(NO_SETTLE) as stage:
        await draining(stage)
        await stage.passes(2.75)
        await stage.reports(idle())
        await stage.passes(5)
        assert stage.state() is State.DRAINING
        await stage.reports(idle())
        assert stage.state() is State.DOWN


@in_virtual_time
async def test_flood_of_reports_in_a_drain_is_not_judged_one_by_one() -> None:
    policy: Policy = replace(NO_SETTLE, drain_s=60.0)
    async with Stage(policy) as stage:
        await draining(stage)
        judged = sum(isinstance(record.event, Judged) for record in stage.records)
        for _ in range(100):
            await stage.reports(Results(5, 0, 2))
        assert sum(isinstance(record.event, Judged) for record in stage.records) == judged


# -- soft drain -----------------------------------------------------------------------------------------------

TEN = Fleet(10, 1)


@in_virtual_time
async def test_suspect_that_reports_only_errors_has_the_floor_at_once_and_rises_when_it_is_well() -> None:
    async with Stage(window_s=10) as stage:
        await stage.hears(TEN)
        await stage.errors(5)
        seen = stage.controller.snapshot()
        assert (stage.state(), seen.share, seen.is_soft_drained) == (State.SUSPECT, 10, True)
        await stage.passes(5)
        assert stage.controller.snapshot().share == 10
        await stage.passes(7)
        await stage.answered(Granted(1, 10))
        seen = stage.controller.snapshot()
        assert (stage.state(), seen.share, seen.is_soft_drained) == (State.UP, 10, False)
        assert await serves(stage, Ping(0), 4) == [15, 20, 25, 30]
        assert stage.budget.resigned == [("a", "web/a/-")]


@in_virtual_time
async def test_weight_follows_at_once_how_many_suffer() -> None:
    async with Stage(window_s=600) as stage:
        await stage.hears(TEN)
        await stage.errors(5)
        weights = []
        for suspect in (4, 5, 10, 4):
            await stage.hears(Fleet(10, suspect))
            weights.append(stage.controller.snapshot().weight)
        assert weights == [50, 60, 100, 50]


@in_virtual_time
async def test_weight_comes_back_when_the_fleet_is_not_known_any_more() -> None:
    async with Stage(window_s=600) as stage:
        await stage.hears(TEN)
        await stage.errors(5)
        assert stage.controller.snapshot().weight == 10
        await stage.misses()
        assert stage.controller.snapshot().weight == 100


@pytest.mark.parametrize("report", [Ping(5), Results(0, 20)], ids=["alone", "with requests"])
@in_virtual_time
async def test_suspect_that_may_not_be_drained_softly_keeps_its_weight(report: Report) -> None:
    async with Stage() as stage:
        await stage.hears(Fleet(1) if isinstance(report, Ping) else TEN)
        await stage.passes(1)
        await stage.reports(Results(20, 0) if isinstance(report, Results) else Ping(0))
        await stage.passes(1)
        await stage.reports(report)
        assert (stage.state(), stage.controller.snapshot().weight) == (State.SUSPECT, 100)


@in_virtual_time
async def test_new_life_of_a_drained_container_has_all_of_its_weight() -> None:
    async with Stage() as stage:
        await stage.hears(TEN)
        await stage.errors(5, app_start="boot-1")
        await stage.errors(1, app_start="boot-2")
        seen = stage.controller.snapshot()
        assert (seen.weight, seen.is_soft_drained) == (100, False)
