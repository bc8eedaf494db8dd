"""The controller and each detector: what counts against an app, when it is noticed, and what ends it."""

from __future__ import annotations

from dataclasses import replace

import pytest

from harness.controller import POLICY, ControllerRig
from harness.virtual_time import in_virtual_time
from sidecar.core.app_reports import ErrorReport, Heartbeat, Missed, Report, Results
from sidecar.core.claims import Fleet
from sidecar.core.types import Policy, State

NO_SETTLE = replace(POLICY, settle_s=0.0)


@pytest.mark.parametrize(
    ("policy", "reports", "rule"),
    [
        pytest.param(POLICY, [Results(10, 10)], "ratio", id="ratio"),
        pytest.param(replace(POLICY, kind_limits=(("db", 2),)), [ErrorReport(2, kind="db")], "kind", id="kind"),
        pytest.param(replace(POLICY, scrape_down_after=2), [Missed("timeout")] * 2, "scrape", id="scrape"),
    ],
)
@in_virtual_time
async def test_any_rule_is_judged_at_once(policy: Policy, reports: list[Report], rule: str) -> None:
    async with ControllerRig(replace(policy, error_limit=50, settle_s=0.0)) as rig:
        await rig.reports(*reports[:-1])
        assert rig.budget.asked == []
        await rig.reports(reports[-1])
        assert rig.budget.asked == ["web/a/-"]
        assert rig.controller.container.verdict is not None
        assert [reason.rule for reason in rig.controller.container.verdict.reasons] == [rule]


@in_virtual_time
async def test_silent_heart_is_noticed_at_the_next_check_and_one_beat_heals_it() -> None:
    async with ControllerRig(replace(POLICY, heartbeat_timeout_s=15.0)) as rig:
        await rig.advance(100)
        assert rig.state() is State.UP  # never heard, never missed
        await rig.reports(Heartbeat())
        await rig.advance(14)
        assert rig.state() is State.UP
        await rig.advance(7)
        assert rig.state() is State.SUSPECT
        await rig.reports(Heartbeat())
        await rig.advance(3)
        assert rig.states[-1] is State.UP
        assert rig.budget.asked == []


@in_virtual_time
async def test_heart_that_falls_silent_in_the_grace_is_silent_when_that_is_over() -> None:
    async with ControllerRig(replace(NO_SETTLE, heartbeat_timeout_s=15.0, grace_s=30.0)) as rig:
        await rig.advance(5)
        await rig.reports(Heartbeat())
        await rig.advance(24)
        assert rig.budget.asked == []
        await rig.advance(11.5)
        assert rig.budget.asked == ["web/a/-"]


# -- more than chance -----------------------------------------------------------------------------------------


@in_virtual_time
async def test_errors_that_the_whole_fleet_has_are_no_reason_and_said_so() -> None:
    async with ControllerRig() as rig:
        await rig.beat_answered(Fleet(10, median_errors=3))
        await rig.errors(16)
        await rig.advance(10)
        assert rig.state() is State.UP
        assert rig.controller.container.verdict is not None
        assert rig.controller.container.verdict.spared.startswith("16 server errors in 60 s reach the limit of 5, but")
        await rig.errors(1)
        assert rig.state() is State.SUSPECT
        assert rig.controller.snapshot.baseline.fleet.errors == 3


async def suffers(rig: ControllerRig, errors: int, seconds: int) -> None:
    """So many errors in each window, evenly."""
    for _ in range(round(seconds * errors / 60)):
        await rig.errors(1, app_start="boot-1")
        await rig.advance(60 / errors)


@in_virtual_time
async def test_container_without_a_fleet_is_compared_with_its_own_past_as_long_as_it_lives() -> None:
    async with ControllerRig() as rig:
        await suffers(rig, 4, 1_800)
        await rig.errors(10)
        await rig.advance(20)
        assert rig.state() is State.UP
        await rig.errors(5, app_start="boot-2")
        assert rig.state() is State.SUSPECT


@in_virtual_time
async def test_errors_that_grow_slowly_do_not_become_usual() -> None:
    async with ControllerRig() as rig:
        for errors in range(1, 25):
            await suffers(rig, errors, 600)
            if rig.state() is State.SUSPECT:
                break
        assert errors < 20
