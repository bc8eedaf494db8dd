"""The hall in virtual time: what it asks, when it looks, and what it survives."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from itertools import pairwise
from random import Random

import pytest

from harness.controller import CHECKS_ONLY, EXACT, IDENTITY, POLICY, WALL_S, Stage
from harness.virtual_time import in_virtual_time, settle
from sidecar.controller.controller import Pace
from sidecar.controller.inbox import INBOX_LIMIT, Inbox
from sidecar.controller.journal import Memory
from sidecar.core.life.events import Answered, Judged, Stopped
from sidecar.core.types import Answer, Claim, Denied, Granted, Latch, Level, Ping, State, Unknown

GRANTED = Granted(1, 10)
DENIED = Denied("window", 10, 10, 60.0)
NO_SETTLE = replace(POLICY, settle_s=0.0)


def check_times(stage: Stage) -> list[float]:
    """When the hall has judged: with nothing else going on, at its checks."""
    return [at for at, record in stage.told if isinstance(record.event, Judged)]


# -- from an error to a cull --------------------------------------------------------------------------------


@in_virtual_time
async def test_error_that_crosses_the_limit_is_judged_at_once() -> None:
    async with Stage() as stage:
        await stage.errors(4)
        assert stage.state() is State.UP
        await stage.errors(1)
        assert stage.state() is State.SUSPECT


@in_virtual_time
async def test_without_on_ping_errors_wait_for_the_check() -> None:
    async with Stage(pace=CHECKS_ONLY) as stage:
        await stage.passes(4)
        await stage.errors(50)
        await stage.passes(5.75)
        assert stage.state() is State.UP
        await stage.passes(0.5)
        assert stage.state() is State.SUSPECT


@in_virtual_time
async def test_claim_is_made_after_the_settle_and_not_before() -> None:
    async with Stage() as stage:
        await stage.errors(5, app_start="boot-1")
        await stage.passes(2.75)
        assert stage.budget.asked == []
        await stage.passes(0.5)
        assert stage.budget.asked == ["web/a/boot-1"]


@in_virtual_time
async def test_without_settle_the_crossing_error_asks_at_once() -> None:
    async with Stage(NO_SETTLE) as stage:
        await stage.errors(5)
        assert len(stage.budget.asked) == 1


@in_virtual_time
async def test_window_that_empties_during_the_settle_makes_no_claim() -> None:
    async with Stage(replace(POLICY, settle_s=8.0), window_s=5) as stage:
        await stage.errors(5)
        await stage.passes(9)
        assert stage.state() is State.UP
        await stage.passes(60)
        assert stage.budget.asked == []


@in_virtual_time
async def test_grant_drains_and_then_goes_down() -> None:
    async with Stage() as stage:
        await stage.errors(5, kind="redis", app_start="boot-1")
        await stage.passes(3.25)
        await stage.answered(GRANTED)
        assert stage.state() is State.DRAINING
        await stage.passes(10.25)
        assert stage.states == [State.UP, State.SUSPECT, State.DRAINING, State.DOWN]
        reason = "5 server errors in 60 s (5 of them redis), the limit is 5"
        latch = Latch("web/a/boot-1", WALL_S, reason)
        assert stage.notes.saved[0] == Memory("web/a", "boot-1", "boot-1", None, WALL_S, IDENTITY)
        assert stage.notes.last == Memory("web/a", "boot-1", "boot-1", latch)


@in_virtual_time
async def test_duration_of_the_claim_is_told() -> None:
    async with Stage(NO_SETTLE) as stage:
        await stage.errors(5)
        await stage.passes(1.5)
        await stage.answered(GRANTED)
        (told,) = [record.claim_s for record in stage.records if isinstance(record.event, Answered)]
        assert told == pytest.approx(1.5)


@pytest.mark.parametrize("answer", [DENIED, Unknown("timeout")], ids=["denied", "unknown"])
@in_virtual_time
async def test_without_a_token_it_stays_up_and_asks_again_with_the_same_id(answer: Answer) -> None:
    async with Stage(NO_SETTLE, window_s=600) as stage:
        await stage.errors(5, app_start="boot-1")
        for _ in range(4):
            await stage.answered(answer)
            assert stage.controller.container.haproxy_up
            await stage.passes(15)
        assert stage.budget.asked == ["web/a/boot-1"] * 5
        assert stage.budget.most_at_once == 1


@in_virtual_time
async def test_while_a_claim_is_in_the_air_no_other_is_made() -> None:
    async with Stage(NO_SETTLE, window_s=600) as stage:
        for _ in range(29):
            await stage.errors(5)
            await stage.passes(1)
        assert stage.budget.asked == ["web/a/-"]


@in_virtual_time
async def test_a_budget_that_never_answers_is_not_waited_for_for_ever() -> None:
    async with Stage(NO_SETTLE, window_s=600) as stage:
        await stage.errors(5)
        await stage.passes(40)
        assert stage.budget.asked == ["web/a/-"] * 2
        assert stage.controller.container.answer == Unknown("internal")
        assert stage.controller.container.haproxy_up


@pytest.mark.parametrize("stalled", [False, True], ids=["answer late", "we stalled"])
@in_virtual_time
async def test_grant_that_comes_when_the_window_is_empty_again_culls_nobody(*, stalled: bool) -> None:
    async with Stage(NO_SETTLE, window_s=5) as stage:
        await stage.errors(5)
        if stalled:
            stage.loop.stall(300)
        else:
            await stage.passes(7)
        await stage.answered(GRANTED)
        assert stage.state() is State.UP
        assert stage.latch is None


# -- the window ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("level", [level for level in Level if level is not Level.SERVER_ERROR])
@in_virtual_time
async def test_other_levels_are_kept_and_do_not_count(level: Level) -> None:
    async with Stage() as stage:
        await stage.pings(Ping(100, level))
        await stage.passes(20)
        assert stage.state() is State.UP
        assert stage.controller.evidence().levels == {level: 100}
        assert stage.controller.evidence().errors == 0


@in_virtual_time
async def test_announcements_without_errors_leave_no_trace_in_the_window() -> None:
    async with Stage(window_s=3) as stage:
        for _ in range(8):
            await stage.pings(Ping(0, app_start="boot-1"), Ping(0, Level.CLIENT_ERROR))
            assert stage.controller.evidence().kinds == {}
            await stage.passes(1)
        assert stage.controller.evidence().newest_age_s is None
        assert stage.failures == []


@in_virtual_time
async def test_stall_of_minutes_turns_the_window_before_anything_is_judged() -> None:
    async with Stage() as stage:
        await stage.errors(4)
        stage.loop.stall(300)
        await stage.errors(4)
        assert stage.state() is State.UP
        assert stage.controller.evidence().errors == 4
        assert stage.controller.lag_s == pytest.approx(300, abs=1)


@in_virtual_time
async def test_lag_is_how_late_the_last_tick_was() -> None:
    async with Stage() as stage:
        await stage.passes(5)
        assert stage.controller.lag_s == pytest.approx(0, abs=1e-6)
        stage.loop.stall(2.5)
        await settle()
        assert stage.controller.lag_s == pytest.approx(2.5, abs=1)
        await stage.passes(2)
        assert stage.controller.lag_s == pytest.approx(0, abs=1e-6)


# -- when it looks ------------------------------------------------------------------------------------------


@in_virtual_time
async def test_checks_without_jitter_are_exactly_an_interval_apart() -> None:
    async with Stage(pace=EXACT) as stage:
        started = stage.loop.time()
        await stage.passes(100.5)
        assert check_times(stage) == pytest.approx([started + 10 * number for number in range(11)])


@in_virtual_time
async def test_checks_with_jitter_stay_within_its_bounds_and_are_not_in_step() -> None:
    async with Stage(pace=Pace(jitter=0.2)) as stage:
        await stage.passes(1000)
        times = check_times(stage)
        gaps = [later - earlier for earlier, later in pairwise(times[1:])]
        assert len(gaps) > 80
        assert min(gaps) >= 8 - 1e-6
        assert max(gaps) <= 12 + 1e-6
        assert max(gaps) - min(gaps) > 2


def test_first_interval_spreads_a_fleet_over_all_of_it() -> None:
    phases = []

    async def second_check(seed: int) -> None:
        async with Stage(pace=Pace(jitter=0.1), rng=Random(seed)) as stage:
            await stage.passes(10.5)
            first, second, *_ = check_times(stage)
            phases.append(second - first)

    for seed in range(40):
        in_virtual_time(second_check)(seed)
    assert {int(phase // 2.5) for phase in phases} == {0, 1, 2, 3}
    assert max(phases) <= 10 + 1e-6


@pytest.mark.parametrize("on_ping", [True, False], ids=["judged at once", "judged at a check"])
@pytest.mark.parametrize("reported", [Ping(5), Ping(50)], ids=["just too many", "ten times as many"])
def test_claims_of_a_fleet_are_spread_by_less_the_sicker_it_is(reported: Ping, *, on_ping: bool) -> None:
    waits = []

    async def claim(seed: int) -> None:
        async with Stage(pace=Pace(jitter=0.1, on_ping=on_ping), rng=Random(seed)) as stage:
            await stage.pings(reported)
            while stage.state() is not State.SUSPECT:
                await stage.passes(0.01)
            fell_ill_at = stage.loop.time()
            while not stage.budget.asked:
                await stage.passes(0.01)
            waits.append(stage.loop.time() - fell_ill_at)

    for seed in range(40):
        in_virtual_time(claim)(seed)
    most_s = 3 * (1 + 0.25 * 5 / reported.errors)
    assert 3 - 0.02 <= min(waits) <= max(waits) <= most_s + 0.02
    assert max(waits) - min(waits) > (most_s - 3) / 2


@in_virtual_time
async def test_claim_says_who_asks_and_what_it_suffers_from() -> None:
    async with Stage(NO_SETTLE) as stage:
        await stage.pings(Ping(1, kind="http"), Ping(4, kind="redis", app_start="boot-1"))
        assert stage.budget.claims == [Claim("web/a/boot-1", "a", "boot-1", "redis")]


@in_virtual_time
async def test_denied_claim_is_made_again_as_soon_as_it_is_of_use() -> None:
    async with Stage(NO_SETTLE, window_s=600) as stage:
        await stage.errors(5)
        await stage.answered(Denied("spacing", 1, 10, 2.5))
        await stage.passes(2.25)
        assert len(stage.budget.asked) == 1
        await stage.passes(0.5)
        assert len(stage.budget.asked) == 2


@in_virtual_time
async def test_idle_hall_wakes_once_a_second() -> None:
    async with Stage() as stage:
        await stage.passes(100)
        read_before = stage.clock_reads
        await stage.passes(100)
        assert stage.clock_reads - read_before <= 2 * (100 + 10) + 2


# -- the end ------------------------------------------------------------------------------------------------


@in_virtual_time
async def test_stop_is_told_to_the_balancer_and_not_to_nomad() -> None:
    async with Stage() as stage:
        await stage.errors(5)
        stage.controller.inbox.put(Stopped())
        await settle()
        assert stage.state() is State.STOPPING
        assert not stage.controller.container.haproxy_up
        assert stage.controller.container.nomad_up
        await stage.errors(50)
        await stage.passes(30)
        assert stage.state() is State.STOPPING
        assert stage.budget.asked == []


@in_virtual_time
async def test_cancelled_run_ends_with_its_claim() -> None:
    async with Stage(NO_SETTLE) as stage:
        await stage.errors(5)
        stage.running.cancel()
        with pytest.raises(asyncio.CancelledError):
            await stage.running
        assert stage.budget.cancelled == ["web/a/-"]
        assert asyncio.all_tasks() == {asyncio.current_task()}
        assert stage.failures == []


# -- the inbox ----------------------------------------------------------------------------------------------


def test_full_inbox_takes_no_pings_but_every_answer() -> None:
    inbox = Inbox()
    assert all(inbox.offer([Ping()]) for _ in range(INBOX_LIMIT))
    assert not inbox.offer([Ping()])
    inbox.put(Stopped())

    taken = asyncio.run(inbox.take(0))
    assert len(taken) == INBOX_LIMIT + 1
    assert taken[-1] == Stopped()
    assert inbox.offer([Ping()])


@in_virtual_time
async def test_take_waits_for_the_first_message_or_the_time_out() -> None:
    loop = asyncio.get_running_loop()
    inbox = Inbox()
    started = loop.time()
    loop.call_later(2, inbox.put, Stopped())
    assert list(await inbox.take(5)) == [Stopped()]
    assert loop.time() - started == pytest.approx(2)
    assert list(await inbox.take(5)) == []
    assert loop.time() - started == pytest.approx(7)
