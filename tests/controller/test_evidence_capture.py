"""What is kept of a cull: at the grant and before the drain, in enforce mode, and never in the way of the cull."""

from __future__ import annotations

import asyncio
from dataclasses import replace

import pytest

from harness.controller import IDENTITY, POLICY, WALL_S, ControllerRig
from harness.virtual_time import in_virtual_time
from sidecar.core.app_reports import ErrorReport
from sidecar.core.claims import Claim, Denied, Granted, Unknown
from sidecar.core.types import Policy, State

NO_SETTLE = replace(POLICY, settle_s=0.0)
GRANTED = Granted(1, 10)
REPLAYED = Granted(1, 10, replayed=True)
SICK = ErrorReport(5, kind="redis", message="no route to 10.0.0.1", app_start="life-1")


class Looker:
    """A hook that takes some time, or fails, and knows what it was told."""

    def __init__(self, takes_s: float = 0.0, failure: Exception | None = None) -> None:
        self.told: list[tuple[Claim, str]] = []
        self.given_up = 0
        self._takes_s = takes_s
        self._failure = failure

    async def __call__(self, claim: Claim, reason: str) -> str:
        self.told.append((claim, reason))
        try:
            await asyncio.sleep(self._takes_s)
        except asyncio.CancelledError:
            self.given_up += 1
            raise
        if self._failure is not None:
            raise self._failure
        return "what it saw"


def _capture(rig: ControllerRig) -> str | None:
    evidence = rig.controller.snapshot.last_cull
    return evidence.capture if evidence else None


def _stage(look: Looker, policy: Policy = NO_SETTLE) -> ControllerRig:
    return ControllerRig(policy, hook=look)


@in_virtual_time
async def test_hook_is_run_between_the_grant_and_the_drain() -> None:
    look = Looker(takes_s=2.0)
    async with _stage(look) as rig:
        await rig.reports(SICK)
        await rig.answered(GRANTED)
        assert (rig.state(), _capture(rig)) == (State.SUSPECT, None)
        await rig.advance(2.0)
        assert rig.state() is State.SUSPECT  # asked once more: it took its time
        await rig.answered(REPLAYED)
        assert (rig.state(), _capture(rig)) == (State.DRAINING, "what it saw")
        assert rig.records[-1].cull_evidence == rig.controller.snapshot.last_cull
        ((claim, reason),) = look.told
        assert claim == Claim("web/a/life-1", "a", "life-1", "redis", IDENTITY.holder)
        assert reason.startswith("5 server errors in 60 s")


@pytest.mark.parametrize(
    ("again", "state", "returned"),
    [
        (Denied("hold", 1, 10, 60.0), State.SUSPECT, [("a", "web/a/life-1")]),
        (REPLAYED, State.DRAINING, []),
        (Unknown("timeout"), State.DRAINING, []),
    ],
    ids=["held", "still granted", "no clear answer takes back no grant"],
)
@in_virtual_time
async def test_hold_that_a_person_sets_while_the_hook_runs_is_heard(
    again: Denied | Granted | Unknown, state: State, returned: list[tuple[str, str]]
) -> None:
    async with _stage(Looker(takes_s=2.0)) as rig:
        await rig.reports(SICK)
        await rig.answered(GRANTED)
        await rig.advance(2.0)
        assert rig.state() is State.SUSPECT
        await rig.answered(again)
        assert (rig.state(), rig.budget.returned) == (state, returned)


@in_virtual_time
async def test_hook_that_fails_is_told_and_does_not_keep_the_container_up() -> None:
    failure = RuntimeError("broken")
    async with _stage(Looker(failure=failure)) as rig:
        await rig.reports(SICK)
        await rig.answered(GRANTED)
        assert (rig.state(), _capture(rig), rig.failures) == (State.DRAINING, None, [failure])


@in_virtual_time
async def test_in_shadow_mode_nothing_is_run() -> None:
    look = Looker()
    async with _stage(look, replace(NO_SETTLE, enforce=False)) as rig:
        await rig.reports(SICK)
        await rig.answered(GRANTED)
        assert rig.controller.container.would_culls == 1
        assert rig.controller.snapshot.last_cull is None
    assert look.told == []


@in_virtual_time
async def test_hook_is_given_up_when_the_app_begins_another_life() -> None:
    look = Looker(takes_s=60.0)
    async with _stage(look) as rig:
        await rig.reports(SICK)
        await rig.answered(GRANTED)
        await rig.reports(ErrorReport(0, app_start="life-2"))
        assert look.given_up == 1
        await rig.advance(100.0)
        assert rig.state() is State.UP
        assert rig.latch is None


@in_virtual_time
async def test_samples_end_with_the_life_and_those_of_the_cull_are_kept() -> None:
    async with _stage(Looker()) as rig:
        await rig.reports(SICK)
        await rig.answered(GRANTED)
        await rig.reports(ErrorReport(message="while it drains"))
        assert len(rig.controller.assessment.measurements.samples.newest()) == 2
        await rig.reports(ErrorReport(0, app_start="life-2"))
        assert rig.controller.assessment.measurements.samples.newest() == ()
        kept = rig.controller.snapshot.last_cull
        assert kept is not None
        assert (kept.claim_id, kept.at, kept.capture) == ("web/a/life-1", WALL_S, "what it saw")
        assert [sample.message for sample in kept.samples] == ["no route to 10.0.0.1"]
