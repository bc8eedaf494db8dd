"""What a main tells its standby, and when."""

from __future__ import annotations

import asyncio
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from harness.controller import POLICY, Stage
from harness.virtual_time import in_virtual_time, settle
from sidecar.config.settings import load
from sidecar.core.life.snapshot import Record
from sidecar.core.types import Heartbeat, Ping, Policy, State
from sidecar.runlock.flock import FlockSlots
from sidecar.takeover.election import Succession
from sidecar.takeover.main_process import CALM_S, CALM_SHARE, SOON_S, Reign
from sidecar.takeover.state_transfer import RefusedError
from sidecar.telemetry.log import Log
from sidecar.telemetry.metrics import Metrics
from sidecar.telemetry.observers import Observers

MANY = Policy(error_limit=1_000_000)


class Heard:
    """An offer whose standby hears everything: how many errors were in what it was told, and the past and when."""

    is_heard = is_ready = True

    def __init__(self, stage: Stage) -> None:
        self.errors: list[int] = []
        self.pasts: list[tuple[float, object]] = []
        self.takes_s = 0.0
        self.state_takes_s: list[float] = []
        self.past: Any = None
        self._stage = stage

    def tell(self) -> None:
        self.errors.append(self._stage.controller.evidence().errors)
        _work(self.state_takes_s.pop(0) if self.state_takes_s else 0.0)

    def tell_past(self) -> None:
        self.pasts.append((self._stage.loop.time(), self.past.mark()))
        _work(self.takes_s)

    @property
    def pauses_s(self) -> list[float]:
        return [later - at for (at, _), (later, _) in zip(self.pasts, self.pasts[1:], strict=False)]


_WORKED_S = [0.0]


def _work(seconds: float) -> None:
    """Take so much of the processor, as who writes a long one down."""
    _WORKED_S[0] += seconds


@pytest.fixture(autouse=True)
def _processor(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing but ``_work`` takes of its time: a collection of garbage would look like a long one."""
    monkeypatch.setattr(time, "thread_time", lambda: _WORKED_S[0])


class Memories:
    """A past that is another with every error, and whenever a test says so; what it is to go on with is broken."""

    def __init__(self, stage: Stage) -> None:
        self.decisions = 0
        self._stage = stage

    def mark(self) -> object:
        return self.decisions, sum(self._stage.controller.measurements.errors.ever().values())

    def thaw(self, _told: bytes, _now: float, _wall: float) -> None:
        raise RefusedError("broken")


def reign(stage: Stage) -> Any:
    settings = load({"run_lock": "/run/nowhere"}, {})
    told = Observers(Metrics("enforce", 5, 10), Log())
    succession = Succession(Path("/run/nowhere"), FlockSlots(Path("/run/nowhere"), "main"))
    made: Any = Reign(settings, succession, stage.controller, Policy(), told)
    made._offer = Heard(stage)
    made._offer.past = Memories(stage)
    made.remember(made._offer.past)
    return made


@in_virtual_time
async def test_error_that_comes_between_the_moment_to_tell_and_the_telling_is_told_too() -> None:
    async with Stage(Policy(error_limit=100)) as stage:
        one, loop = reign(stage), asyncio.get_running_loop()
        one.offer([Ping()])
        # In the same turn of the loop as the moment to tell, and after it: the hall counts it when that was told.
        loop.call_at(loop.time() + SOON_S, one.offer, [Ping()])
        await asyncio.sleep(0.1)
        assert one._offer.errors[-1] == 2


@pytest.mark.parametrize(("took_s", "soon"), [([0.05], True), ([0.05, 0.05], False)], ids=["once", "always"])
def test_errors_wait_for_the_time_it_takes_to_write_them_down_but_not_for_the_first_time(
    took_s: list[float],
    soon: bool,  # noqa: FBT001 - a column of the table
) -> None:
    @in_virtual_time
    async def story() -> None:
        async with Stage(MANY) as stage:
            one = reign(stage)
            one._offer.state_takes_s = took_s
            for _ in range(3):
                one.offer([Ping()])
                await asyncio.sleep(0.01)
            assert (one._offer.errors[-1] == 3) is soon
            await asyncio.sleep(1.0)
            assert one._offer.errors[-1] == 3

    story()


@in_virtual_time
async def test_past_follows_the_first_error_at_once_and_the_next_ones_once_a_second() -> None:
    async with Stage(MANY) as stage:
        one, began = reign(stage), stage.loop.time()
        for _ in range(350):
            one.offer([Ping()])
            await asyncio.sleep(0.01)
        assert one._offer.pasts[0] == (pytest.approx(began + SOON_S), (0, 1))
        assert len(one._offer.errors) > 300
        assert one._offer.pauses_s == pytest.approx([CALM_S] * 3, abs=0.02)
        await asyncio.sleep(CALM_S)
        assert one._offer.pasts[-1][1] == (0, 350)


@in_virtual_time
async def test_past_that_is_what_it_was_is_not_told_again() -> None:
    async with Stage(MANY) as stage:
        one = reign(stage)
        one.offer([Ping()])
        for _ in range(100):
            one.offer([Heartbeat()])
            await asyncio.sleep(0.1)
        assert len(one._offer.errors) > 5
        assert len(one._offer.pasts) == 1


@in_virtual_time
async def test_past_that_takes_long_to_write_down_is_told_for_one_part_in_a_hundred_of_the_time() -> None:
    async with Stage(MANY) as stage:
        one = reign(stage)
        one._offer.takes_s = 0.03
        for _ in range(100):
            one.offer([Ping()])
            await asyncio.sleep(0.1)
        assert one._offer.pauses_s
        assert min(one._offer.pauses_s) >= CALM_SHARE * 0.03


@in_virtual_time
async def test_past_of_another_state_is_told_at_once_with_what_all_have_noticed_of_it() -> None:
    def observe(record: Record) -> None:
        one.notice(record)
        one._offer.past.decisions += record.before.state is not record.after.state  # as the history, after us

    async with Stage(replace(POLICY, settle_s=60.0), observe=observe) as stage:
        one = reign(stage)
        await asyncio.sleep(15.0)
        assert stage.state() is State.UP
        one.offer([Ping()])
        await asyncio.sleep(0.1)  # told just now, and not due for a second
        before = one._offer.past.decisions
        one.offer([Ping(10)])
        await settle()
        assert stage.state() is State.SUSPECT
        assert one._offer.pasts[-1] == (stage.loop.time(), (before + 1, 11))


@in_virtual_time
async def test_past_that_cannot_be_used_is_a_failure_that_is_counted() -> None:
    async with Stage() as stage:
        one = reign(stage)
        one._succession.past = (b"{}", 1.0)
        one.remember(one._offer.past)
        one.remember(one._offer.past)  # it is gone, and is not tried again
        assert one._told.metrics.registry.get_sample_value("arbiter_failures_total", {"where": "handover"}) == 1
