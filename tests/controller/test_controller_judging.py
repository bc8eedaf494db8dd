"""The hall and each way of judging: what is held against an app, when it is noticed, and what heals it."""

from __future__ import annotations

from dataclasses import replace

import pytest

from harness.controller import POLICY, Stage
from harness.virtual_time import in_virtual_time
from sidecar.core.life.measurements import Measurements
from sidecar.core.types import Fleet, Heartbeat, Missed, Ping, Policy, Report, Results, Sample, State

NO_SETTLE = replace(POLICY, settle_s=0.0)


@pytest.mark.parametrize(
    ("policy", "reports", "rule"),
    [
        pytest.param(POLICY, [Ping(fatal=True)], "fatal", id="fatal"),
        pytest.param(POLICY, [Results(10, 10)], "ratio", id="ratio"),
        pytest.param(POLICY, [Sample({"redis": 10}, requests=20)], "ratio", id="ratio of a sample"),
        pytest.param(
            replace(POLICY, consecutive_limit=3), [Results(9, 0), Results(0, 3)], "consecutive", id="in a row"
        ),
        pytest.param(replace(POLICY, kind_limits=(("db", 2),)), [Ping(2, kind="db")], "kind", id="kind"),
        pytest.param(replace(POLICY, scrape_down_after=2), [Missed("timeout")] * 2, "scrape", id="scrape"),
    ],
)
@in_virtual_time
async def test_any_rule_is_judged_at_once(policy: Policy, reports: list[Report], rule: str) -> None:
    async with Stage(replace(policy, error_limit=50, settle_s=0.0)) as stage:
        await stage.reports(*reports[:-1])
        assert stage.budget.asked == []
        await stage.reports(reports[-1])
        assert stage.budget.asked == ["web/a/-"]
        assert stage.controller.container.verdict is not None
        assert [reason.rule for reason in stage.controller.container.verdict.reasons] == [rule]


@in_virtual_time
async def test_silent_heart_is_noticed_at_the_next_check_and_one_beat_heals_it() -> None:
    async with Stage(replace(POLICY, heartbeat_timeout_s=15.0)) as stage:
        await stage.passes(100)
        assert stage.state() is State.UP  # never heard, never missed
        await stage.reports(Heartbeat())
        await stage.passes(14)
        assert stage.state() is State.UP
        await stage.passes(7)
        assert stage.state() is State.SUSPECT
        await stage.reports(Heartbeat())
        await stage.passes(3)
        assert stage.states[-1] is State.UP
        assert stage.budget.asked == []


@in_virtual_time
async def test_heart_that_falls_silent_in_the_grace_is_silent_when_that_is_over() -> None:
    async with Stage(replace(NO_SETTLE, heartbeat_timeout_s=15.0, grace_s=30.0)) as stage:
        await stage.passes(5)
        await stage.reports(Heartbeat())
        await stage.passes(24)
        assert stage.budget.asked == []
        await stage.passes(11.5)
        assert stage.budget.asked == ["web/a/-"]


@in_virtual_time
async def test_good_scrape_forgives_the_missed_ones() -> None:
    async with Stage(replace(NO_SETTLE, scrape_down_after=3)) as stage:
        await stage.reports(Missed("timeout"), Missed("status"), Sample({}), Missed("connection"), Missed("timeout"))
        assert stage.controller.evidence().missed_scrapes == 2
        assert stage.budget.asked == []


@in_virtual_time
async def test_ignored_kinds_are_shown_and_never_count() -> None:
    async with Stage(NO_SETTLE, measurements=Measurements(60, 1000, ignored_kinds=["cache"])) as stage:
        await stage.reports(Ping(50, kind="cache", fatal=True), Sample({"cache": 50}, requests=50))
        await stage.passes(20)
        assert (stage.state(), stage.budget.asked) == (State.UP, [])
        assert stage.controller.evidence().levels == {"ignored": 100}


@in_virtual_time
async def test_limit_of_a_kind_holds_however_many_kinds_came_before() -> None:
    policy = replace(NO_SETTLE, error_limit=1_000, kind_limits=(("redis", 3),))
    async with Stage(policy, measurements=Measurements(60, 1000, known_kinds=["redis"])) as stage:
        await stage.reports(*(Ping(kind=f"made-up-{number}") for number in range(100)))
        await stage.errors(2, kind="redis")
        assert stage.budget.asked == []
        await stage.errors(1, kind="redis")
        assert stage.budget.asked == ["web/a/-"]


@in_virtual_time
async def test_confirming_takes_checks_and_no_number_of_pings() -> None:
    async with Stage(replace(NO_SETTLE, confirm=3)) as stage:
        await stage.passes(5)
        for _ in range(50):
            await stage.errors(5)
        await stage.passes(15)  # two checks
        assert (stage.state(), stage.controller.container.bad_checks) == (State.UP, 2)
        await stage.errors(5)
        assert stage.budget.asked == []
        await stage.passes(10)
        assert stage.budget.asked == ["web/a/-"]


@in_virtual_time
async def test_young_app_is_suspect_at_once_and_claimed_for_when_it_is_old_enough() -> None:
    async with Stage(replace(NO_SETTLE, min_age_s=30.0)) as stage:
        await stage.errors(5)
        assert stage.state() is State.SUSPECT
        await stage.passes(29.5)
        assert stage.budget.asked == []
        await stage.passes(1)
        assert stage.budget.asked == ["web/a/-"]


# -- more than chance -----------------------------------------------------------------------------------------


@in_virtual_time
async def test_errors_that_the_whole_fleet_has_are_no_reason_and_said_so() -> None:
    async with Stage() as stage:
        await stage.hears(Fleet(10, median_errors=3))
        await stage.errors(16)
        await stage.passes(10)
        assert stage.state() is State.UP
        assert stage.controller.container.verdict is not None
        assert stage.controller.container.verdict.spared.startswith(
            "16 server errors in 60 s reach the limit of 5, but"
        )
        await stage.errors(1)
        assert stage.state() is State.SUSPECT
        assert stage.controller.snapshot().baseline.median == 3


@in_virtual_time
async def test_where_most_suffer_the_limit_alone_decides() -> None:
    async with Stage() as stage:
        await stage.hears(Fleet(10, median_errors=9))
        await stage.errors(5)
        assert stage.state() is State.SUSPECT


@in_virtual_time
async def test_busy_container_is_judged_by_its_own_requests() -> None:
    async with Stage(replace(POLICY, error_ratio=0.0)) as stage:
        await stage.hears(Fleet(10, median_errors=1, median_ratio=0.01))
        await stage.reports(Sample({"redis": 30}, requests=2_000))
        assert stage.state() is State.UP
        await stage.reports(Sample({"redis": 20}, requests=20))
        assert stage.state() is State.SUSPECT


async def suffers(stage: Stage, errors: int, seconds: int) -> None:
    """So many errors in each window, evenly."""
    for _ in range(round(seconds * errors / 60)):
        await stage.errors(1, app_start="boot-1")
        await stage.passes(60 / errors)


@in_virtual_time
async def test_container_without_a_fleet_is_compared_with_its_own_past_as_long_as_it_lives() -> None:
    async with Stage() as stage:
        await suffers(stage, 4, 1_800)
        await stage.errors(10)
        await stage.passes(20)
        assert stage.state() is State.UP
        await stage.errors(5, app_start="boot-2")
        assert stage.state() is State.SUSPECT


@in_virtual_time
async def test_errors_that_grow_slowly_do_not_become_usual() -> None:
    async with Stage() as stage:
        for errors in range(1, 25):
            await suffers(stage, errors, 600)
            if stage.state() is State.SUSPECT:
                break
        assert errors < 20
