"""The controller and the weight: from results to the weight at the balancer, and to the end of a drain."""

from __future__ import annotations

from harness.controller import POLICY, ControllerRig
from harness.virtual_time import in_virtual_time, settle
from sidecar.core.app_reports import ErrorReport, Report, Results
from sidecar.core.claims import Fleet, Granted
from sidecar.core.life.events import BeatUnanswered
from sidecar.core.types import Policy, State

NEVER = POLICY._replace(error_ratio=0.0, error_limit=0)
"""Nobody is culled: this is about weights."""

NO_SETTLE = POLICY._replace(settle_s=0.0)
WELL, NONE = Results(20, 0), Results(0, 20)


async def serves(rig: ControllerRig, results: Report, seconds: int) -> list[int]:
    """Report the same each second; the weight at the end of each."""
    weights = []
    for _ in range(seconds):
        await rig.reports(results)
        await rig.advance(1)
        weights.append(rig.controller.snapshot.weight)
    return weights


@in_virtual_time
async def test_weight_is_stepped_once_a_second_however_many_reports_come() -> None:
    async with ControllerRig(NEVER) as rig:
        await serves(rig, WELL, 5)
        for _ in range(50):
            await rig.reports(NONE)
        assert rig.controller.snapshot.weight == 100
        await rig.advance(1)
        assert rig.controller.snapshot.weight == 80


# -- over incarnations of the app ------------------------------------------------------------------------------


@in_virtual_time
async def test_new_life_begins_with_all_of_its_weight() -> None:
    async with ControllerRig(NEVER) as rig:
        await rig.reports(ErrorReport(0, app_start="boot-1"))
        await serves(rig, NONE, 12)
        await rig.reports(ErrorReport(0, app_start="boot-2"))
        assert (rig.controller.snapshot.weight, rig.controller.snapshot.success_rate) == (100, None)
        assert await serves(rig, WELL, 5) == [100] * 5


# -- the end of a drain -------------------------------------------------------------------------------------


async def draining(rig: ControllerRig) -> None:
    await rig.errors(5)
    await rig.answered(Granted(1, 10))
    assert rig.state() is State.DRAINING


@in_virtual_time
async def test_drain_ends_with_the_first_word_that_nothing_is_in_flight() -> None:
    async with ControllerRig(NO_SETTLE) as rig:
        await draining(rig)
        await rig.advance(3.5)
        await rig.reports(Results(in_flight=0))
        assert rig.state() is State.DOWN


@in_virtual_time
async def test_flood_of_reports_in_a_drain_is_not_judged_one_by_one() -> None:
    policy: Policy = NO_SETTLE._replace(drain_s=60.0)
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
async def test_one_error_under_a_tenth_of_the_load_is_as_bad_as_ten_under_all_of_it() -> None:
    async with ControllerRig(window_s=10) as rig:
        await rig.beat_answered(TEN)
        await rig.errors(5)
        await rig.advance(9)
        await rig.errors(1)
        await rig.advance(3)  # the window has this error alone, and no second with all of the load
        assert rig.controller.snapshot.evidence.errors == 1
        await rig.answered(Granted(1, 10))
        assert rig.state() is State.DRAINING


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
        rig.fleet = None  # no later beat is answered
        rig.controller.inbox.put(BeatUnanswered("timeout"))
        await settle()
        assert rig.controller.snapshot.weight == 100
