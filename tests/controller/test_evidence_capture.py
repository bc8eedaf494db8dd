"""What is kept of a cull: at the grant and before the drain, in enforce mode, and never in the way of the cull."""

from __future__ import annotations

import asyncio
import re
from dataclasses import replace

import pytest

from harness.controller import IDENTITY, POLICY, WALL_S, ControllerRig
from harness.virtual_time import in_virtual_time, settle
from sidecar.controller.evidence_capture import evidence_text
from sidecar.core.life.events import Culled, TokenAnswered
from sidecar.core.life.snapshot import Record
from sidecar.core.life.triggers import CullOrdered
from sidecar.core.types import Claim, Denied, ErrorLevel, ErrorReport, Granted, Policy, State, Unknown

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
        await rig.pings(SICK)
        await rig.answered(GRANTED)
        assert (rig.state(), _capture(rig)) == (State.SUSPECT, None)
        await rig.advance(2.0)
        assert rig.state() is State.SUSPECT  # asked once more: it took its time
        await rig.answered(REPLAYED)
        assert (rig.state(), _capture(rig)) == (State.DRAINING, "what it saw")
        ((claim, reason),) = look.told
        assert claim == Claim("web/a/life-1", "a", "life-1", "redis", IDENTITY.holder)
        assert reason.startswith("5 server errors in 60 s")


@in_virtual_time
async def test_time_of_the_hook_is_none_of_the_claims() -> None:
    async with _stage(Looker(takes_s=2.0)) as rig:
        await rig.pings(SICK)
        await rig.advance(0.5)
        await rig.answered(GRANTED)
        await rig.advance(2.0)
        await rig.answered(REPLAYED)
        assert [event.took_s for event in rig.events if isinstance(event, TokenAnswered)] == [0.5]


@pytest.mark.parametrize(
    ("again", "state"),
    [
        (Denied("hold", 1, 10, 60.0), State.SUSPECT),
        (REPLAYED, State.DRAINING),
        (Unknown("timeout"), State.DRAINING),
    ],
    ids=["held", "still granted", "no clear answer takes back no grant"],
)
def test_hold_that_a_person_sets_while_the_hook_runs_is_heard(again: Denied | Granted | Unknown, state: State) -> None:
    @in_virtual_time
    async def story() -> None:
        async with _stage(Looker(takes_s=2.0)) as rig:
            await rig.pings(SICK)
            await rig.answered(GRANTED)
            await rig.advance(2.0)
            assert rig.state() is State.SUSPECT
            await rig.answered(again)
            ended.append(rig.state())

    ended: list[State] = []
    story()
    assert ended == [state]


@in_virtual_time
async def test_hook_that_fails_is_told_and_does_not_keep_the_container_up() -> None:
    failure = RuntimeError("broken")
    async with _stage(Looker(failure=failure)) as rig:
        await rig.pings(SICK)
        await rig.answered(GRANTED)
        assert (rig.state(), _capture(rig), rig.failures) == (State.DRAINING, None, [failure])


@pytest.mark.parametrize("answer", [Denied("window", 10, 10, 60.0), Unknown("timeout")], ids=["denied", "unknown"])
def test_without_a_token_nothing_is_run(answer: Denied | Unknown) -> None:
    look = Looker()

    @in_virtual_time
    async def story() -> None:
        async with _stage(look) as rig:
            await rig.pings(SICK)
            await rig.answered(answer)
            assert rig.controller.snapshot.last_cull is None

    story()
    assert look.told == []


@in_virtual_time
async def test_hook_of_an_ordered_cull_is_told_that_a_person_ordered_it() -> None:
    look = Looker()
    async with _stage(look) as rig:
        rig.controller.inbox.put(CullOrdered("ann", "it leaks"))
        await settle()
        await rig.answered(GRANTED)
        assert rig.state() is State.DRAINING
    assert [reason for _, reason in look.told] == ["a person ordered the cull"]


@in_virtual_time
async def test_in_shadow_mode_nothing_is_run() -> None:
    look = Looker()
    async with _stage(look, replace(NO_SETTLE, enforce=False)) as rig:
        await rig.pings(SICK)
        await rig.answered(GRANTED)
        assert rig.controller.container.would_culls == 1
        assert rig.controller.snapshot.last_cull is None
    assert look.told == []


@in_virtual_time
async def test_replay_of_a_lost_reply_is_looked_at_once_it_is_granted() -> None:
    look = Looker()
    async with _stage(look) as rig:
        await rig.pings(SICK)
        await rig.answered(Unknown("timeout"))
        await rig.advance(2.0)
        await rig.answered(Granted(1, 10, replayed=True))
        assert rig.state() is State.DRAINING
    assert len(look.told) == 1


@in_virtual_time
async def test_hook_is_given_up_when_the_app_begins_another_life() -> None:
    look = Looker(takes_s=60.0)
    async with _stage(look) as rig:
        await rig.pings(SICK)
        await rig.answered(GRANTED)
        await rig.pings(ErrorReport(0, app_start="life-2"))
        assert look.given_up == 1
        await rig.advance(100.0)
        assert rig.state() is State.UP
        assert rig.latch is None


@in_virtual_time
async def test_samples_end_with_the_life_and_those_of_the_cull_are_kept() -> None:
    async with _stage(Looker()) as rig:
        await rig.pings(SICK)
        await rig.answered(GRANTED)
        await rig.pings(ErrorReport(message="while it drains"))
        assert len(rig.controller.samples.newest()) == 2
        await rig.pings(ErrorReport(0, app_start="life-2"))
        assert rig.controller.samples.newest() == ()
        kept = rig.controller.snapshot.last_cull
        assert kept is not None
        assert (kept.claim_id, kept.at, kept.capture) == ("web/a/life-1", WALL_S, "what it saw")
        assert [sample.message for sample in kept.samples] == ["no route to 10.0.0.1"]


@in_virtual_time
async def test_end_of_a_grace_leaves_the_samples() -> None:
    async with ControllerRig(replace(POLICY, grace_s=5.0)) as rig:
        await rig.pings(ErrorReport(message="while it starts"))
        await rig.advance(20.0)
        assert rig.state() is State.UP
        assert len(rig.controller.samples.newest()) == 1


@in_virtual_time
async def test_report_of_an_ended_life_is_no_sample() -> None:
    async with ControllerRig() as rig:
        await rig.pings(ErrorReport(0, app_start="life-1"), ErrorReport(0, app_start="life-2"))
        await rig.pings(ErrorReport(message="late", app_start="life-1"))
        assert rig.controller.samples.newest() == ()


@in_virtual_time
async def test_capture_is_there_when_observers_hear_of_the_cull() -> None:
    seen: list[str | None] = []

    def observe(record: Record) -> None:
        if any(isinstance(event, Culled) for event in record.events):
            seen.append(record.cull_evidence.capture if record.cull_evidence else None)

    async with ControllerRig(NO_SETTLE, observe=observe, hook=Looker()) as rig:
        await rig.pings(SICK)
        await rig.answered(GRANTED)
    assert seen == ["what it saw"]


@in_virtual_time
async def test_evidence_of_a_cull_is_what_the_app_said_last_and_what_the_hook_saw() -> None:
    async with _stage(Looker(takes_s=0.01)) as rig:
        began = rig.loop.time()
        before = ErrorReport(4, ErrorLevel.CLIENT_ERROR, "mysql", fingerprint="Login:42", app_start="life-1")
        await rig.pings(before)
        await rig.advance(30.0)
        await rig.pings(before._replace(errors=5, message="login of bob@example.org failed"), SICK)
        await rig.answered(GRANTED)
        await rig.advance(0.02)
        assert rig.controller.snapshot.last_cull is not None
        told = evidence_text(rig.controller.snapshot.last_cull, WALL_S - began).splitlines()
        assert re.fullmatch(
            r"5 x redis \([0-9a-f]{8}, 2023-11-14T22:13:50Z to 2023-11-14T22:13:50Z\): no route to 10.0.0.1", told[0]
        )
        assert told[1].startswith("9 x mysql (Login:42, 2023-11-14T22:13:20Z to 2023-11-14T22:13:50Z): login of ")
        assert "bob@example.org" not in told[1]
        assert told[2:] == ["what it saw"]
