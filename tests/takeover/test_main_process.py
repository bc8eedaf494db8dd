"""When a main sends its state to its standby, and that it ends as it should."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from harness.controller import ControllerRig
from harness.virtual_time import in_virtual_time
from sidecar.core.life.events import Judged
from sidecar.core.life.snapshot import Record
from sidecar.core.types import ErrorReport, Evidence, Heartbeat, Judgement, Latch, Policy, State, Verdict
from sidecar.runlock.flock import FlockSlots
from sidecar.takeover import state_transfer
from sidecar.takeover.election import Takeover
from sidecar.takeover.main_process import CALM_COST, CALM_INTERVAL_S, ERROR_DELAY_S, MainProcess

MANY = Policy(error_limit=1_000_000)
_CPU_S = [0.0]


@pytest.fixture(autouse=True)
def _processor(monkeypatch: pytest.MonkeyPatch) -> None:
    """Only ``send_state`` takes processor time: a garbage collection would look like an expensive state."""
    monkeypatch.setattr(time, "thread_time", lambda: _CPU_S[0])


class Standby:
    """A server whose standby reads everything: how many errors were in each state, and when it was sent."""

    is_connected = is_ready = True

    def __init__(self, rig: ControllerRig) -> None:
        self.errors: list[int] = []
        self.sent_at: list[float] = []
        self.cost_s: list[float] = []
        self._rig = rig

    def send_state(self) -> None:
        self.errors.append(self._rig.controller.snapshot.evidence.errors)
        self.sent_at.append(self._rig.loop.time())
        _CPU_S[0] += self.cost_s.pop(0) if self.cost_s else 0.0


@contextmanager
def _main(rig: ControllerRig, **options: Any) -> Iterator[tuple[MainProcess, Standby]]:
    takeover = Takeover(Path("/run/nowhere"), FlockSlots(Path("/run/nowhere"), "main"))
    failures: list[Exception] = []
    on_failure = failures.append
    main: Any = MainProcess(
        takeover, rig.controller, Policy(), **{"lifetime_s": 0.0, "on_failure": on_failure, **options}
    )
    main._server = Standby(rig)
    yield main, main._server
    main.close()
    assert failures == []


@in_virtual_time
async def test_error_that_arrives_as_the_state_is_sent_is_sent_too() -> None:
    async with ControllerRig(Policy(error_limit=100)) as rig:
        with _main(rig) as (main, standby):
            loop = asyncio.get_running_loop()
            main.offer([ErrorReport()])
            # In the same turn of the loop as the timer, and after it: the controller counts it after the sending.
            loop.call_at(loop.time() + ERROR_DELAY_S, main.offer, [ErrorReport()])
            await asyncio.sleep(0.1)
            assert standby.errors[-1] == 2


@pytest.mark.parametrize(("cost_s", "is_soon"), [([0.05], True), ([0.05, 0.05], False)], ids=["once", "always"])
def test_errors_wait_for_an_expensive_state_but_not_for_the_first_one(cost_s: list[float], *, is_soon: bool) -> None:
    @in_virtual_time
    async def story() -> None:
        async with ControllerRig(MANY) as rig:
            with _main(rig) as (main, standby):
                standby.cost_s = cost_s
                for _ in range(3):
                    main.offer([ErrorReport()])
                    await asyncio.sleep(0.01)
                assert (standby.errors[-1] == 3) is is_soon
                await asyncio.sleep(1.0)
                assert standby.errors[-1] == 3

    story()


@pytest.mark.parametrize(("cost_s", "interval_s"), [(0.0, CALM_INTERVAL_S), (0.03, CALM_COST * 0.03)])
def test_calm_reports_send_the_state_seldom(cost_s: float, interval_s: float) -> None:
    @in_virtual_time
    async def story() -> None:
        async with ControllerRig(MANY) as rig:
            with _main(rig) as (main, standby):
                standby.cost_s = [cost_s] * 100
                for _ in range(100):
                    main.offer([Heartbeat()])
                    await asyncio.sleep(0.1)
                pauses_s = [later - at for at, later in zip(standby.sent_at[1:], standby.sent_at[2:], strict=False)]
                assert pauses_s
                assert min(pauses_s) >= interval_s

    story()


@in_virtual_time
async def test_visible_change_is_sent_at_once_and_the_end_of_a_latch_is_kept() -> None:
    async with ControllerRig() as rig:
        with _main(rig) as (main, standby):
            down = replace(rig.controller.container, state=State.DOWN, latch=Latch("claim-1", 0.0, "why"))
            up = replace(down, state=State.UP, latch=None)
            fine, evidence = Judged(Verdict(Judgement.FINE)), Evidence(60)
            main.notice(Record(fine, down, up, evidence))
            assert standby.sent_at == [rig.loop.time()]
            main.notice(Record(fine, up, replace(up, unknowns=1), evidence))
            assert len(standby.sent_at) == 1
            await asyncio.sleep(CALM_INTERVAL_S + 0.1)
            assert len(standby.sent_at) == 2
            state = main._state()
            assert state is not None
            assert state["ended_latches"] == ["claim-1"]


@in_virtual_time
async def test_state_that_cannot_be_dumped_is_reported_and_not_sent(monkeypatch: pytest.MonkeyPatch) -> None:
    async with ControllerRig() as rig:
        failures: list[Exception] = []
        with _main(rig, on_failure=failures.append) as (main, _):
            monkeypatch.setattr(state_transfer, "FORMAT", object())
            rig.controller.ids = None  # type: ignore[assignment]
            assert main._state() is None
            assert [type(error) for error in failures] == [AttributeError]


@pytest.mark.parametrize(("is_ready", "lifetime_s"), [(True, 5.0), (False, 5.0), (True, 0.0), (False, 0.0)])
def test_main_ends_when_it_is_stopped_or_when_its_time_is_over_and_a_standby_ready(
    lifetime_s: float, *, is_ready: bool
) -> None:
    @in_virtual_time
    async def story() -> None:
        async with ControllerRig() as rig:
            with _main(rig, lifetime_s=lifetime_s) as (main, standby):
                standby.is_ready = is_ready
                stop, loop = asyncio.Event(), asyncio.get_running_loop()
                began = loop.time()
                loop.call_later(60.0, stop.set)
                assert await main.ends(stop) is is_ready
                assert loop.time() - began == pytest.approx(5.0 if is_ready and lifetime_s else 60.0)

    story()
