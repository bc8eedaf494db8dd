"""The controller in virtual time: what it asks, when it judges, and what it survives."""

from __future__ import annotations

import asyncio
from collections import Counter
from dataclasses import dataclass, field
from itertools import pairwise
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from harness.controller import IDENTITY, POLICY, WALL_S, ControllerRig, MemoryJournal
from harness.virtual_time import in_virtual_time, settle
from sidecar.controller.journal import SavedIncarnation
from sidecar.core.app_reports import ErrorLevel, ErrorReport, Heartbeat, Results
from sidecar.core.claims import Answer, Denied, Fleet, Granted, Unknown
from sidecar.core.life.events import Checked, Culled, StopRequested
from sidecar.core.life.snapshot import Record, Snapshot
from sidecar.core.measure.measurements import RESULTS_KEPT_S
from sidecar.core.types import Latch, State

GRANTED = Granted(1, 10)
DENIED = Denied("window", 10, 10, 60.0)
NO_SETTLE = POLICY._replace(settle_s=0.0)


def check_times(rig: ControllerRig) -> list[float]:
    """When the controller has judged: with nothing else going on, at its checks."""
    return [at for at, record in rig.observed if any(isinstance(event, Checked) for event in record.events)]


# -- from an error to a cull --------------------------------------------------------------------------------


@in_virtual_time
async def test_app_reports_its_version_and_the_next_incarnation_its_own() -> None:
    async with ControllerRig() as rig:
        versions = []
        for report in (
            ErrorReport(0, version="411"),
            ErrorReport(0, app_start="boot-1"),
            ErrorReport(0, app_start="boot-2"),
            ErrorReport(0, app_start="boot-2", version="412"),
        ):
            await rig.reports(report)
            versions.append(rig.controller.container.app_version)
        assert versions == ["411", "411", "", "412"]


@in_virtual_time
async def test_grant_drains_and_then_goes_down() -> None:
    async with ControllerRig() as rig:
        await rig.errors(5, kind="redis", app_start="boot-1")
        await rig.advance(3.25)
        await rig.answered(GRANTED)
        assert rig.state() is State.DRAINING
        await rig.advance(10.25)
        assert rig.states == [State.UP, State.SUSPECT, State.DRAINING, State.DOWN]
        reason = "5 server errors in 60 s (5 of them redis), the limit is 5"
        latch = Latch("web/a/boot-1", WALL_S, reason)
        assert rig.notes.saved[0] == SavedIncarnation("web/a", "boot-1", "boot-1", None, WALL_S, IDENTITY)
        assert rig.notes.last == SavedIncarnation("web/a", "boot-1", "boot-1", latch)


@in_virtual_time
async def test_a_budget_that_never_answers_is_not_waited_for_for_ever() -> None:
    async with ControllerRig(NO_SETTLE, window_s=600) as rig:
        await rig.errors(5)
        for _ in range(8):
            await rig.advance(5)
            await rig.errors(1)  # old errors claim nothing
        assert rig.budget.asked == ["web/a/-"] * 2
        assert rig.controller.container.answer == Unknown("internal")
        assert rig.controller.container.haproxy_up


@pytest.mark.parametrize("stalled", [False, True], ids=["answer late", "we stalled"])
@in_virtual_time
async def test_grant_that_comes_when_the_window_is_empty_again_culls_nobody(*, stalled: bool) -> None:
    async with ControllerRig(NO_SETTLE, window_s=5) as rig:
        await rig.errors(5)
        if stalled:
            rig.loop.stall(300)
        else:
            await rig.advance(7)
        await rig.answered(GRANTED)
        assert rig.state() is State.UP
        assert rig.latch is None


# -- the window ---------------------------------------------------------------------------------------------


@in_virtual_time
async def test_stall_of_minutes_turns_the_window_before_anything_is_judged() -> None:
    async with ControllerRig() as rig:
        await rig.errors(4)
        rig.loop.stall(300)
        await rig.errors(4)
        assert rig.state() is State.UP
        assert rig.controller.snapshot.evidence.errors == 4
        assert rig.controller.lag_s == pytest.approx(300, abs=1)


# -- when it looks ------------------------------------------------------------------------------------------


@in_virtual_time
async def test_checks_with_jitter_stay_within_its_bounds_and_are_not_in_step() -> None:
    async with ControllerRig(rng=Random(0)) as rig:
        await rig.advance(1000)
        times = check_times(rig)
        gaps = [later - earlier for earlier, later in pairwise(times[1:])]
        assert len(gaps) > 80
        assert min(gaps) >= 9 - 1e-6
        assert max(gaps) <= 11 + 1e-6
        assert max(gaps) - min(gaps) > 1


def test_first_interval_spreads_a_fleet_over_all_of_it() -> None:
    phases = []

    async def second_check(seed: int) -> None:
        async with ControllerRig(rng=Random(seed)) as rig:
            await rig.advance(10.5)
            first, second, *_ = check_times(rig)
            phases.append(second - first)

    for seed in range(40):
        in_virtual_time(second_check)(seed)
    assert {int(phase // 2.5) for phase in phases} == {0, 1, 2, 3}
    assert max(phases) <= 10 + 1e-6


def test_claims_of_a_fleet_are_spread() -> None:
    waits = []

    async def claim(seed: int) -> None:
        async with ControllerRig(rng=Random(seed)) as rig:
            await rig.errors(5)
            waits.append((rig.controller.container.due or 0) - rig.loop.time())

    for seed in range(20):
        in_virtual_time(claim)(seed)
    assert 3 <= min(waits) < 3.2
    assert 3.5 < max(waits) <= 3.75


@in_virtual_time
async def test_controller_with_an_empty_window_wakes_for_its_checks_and_for_beats_only() -> None:
    published: list[Snapshot] = []
    async with ControllerRig(publish=published.append) as rig:
        await rig.reports(Results(20, 0))
        published.clear()
        await rig.advance(100)
        assert len(published) >= 100
        await rig.advance(RESULTS_KEPT_S - 100)
        published.clear()
        for _ in range(10):
            await rig.advance(9.75)
            await rig.beat_answered(Fleet(1))
        assert len(published) == 10 + 10
        assert len(check_times(rig)) == (RESULTS_KEPT_S + 97.5) // 10 + 1


# -- the snapshot -------------------------------------------------------------------------------------------


@in_virtual_time
async def test_snapshot_is_published_once_a_turn_however_many_reports_come() -> None:
    published: list[Snapshot] = []
    async with ControllerRig(publish=published.append) as rig:
        await rig.advance(1)
        before = len(published)
        for _ in range(1000):
            rig.controller.inbox.offer([ErrorReport(level=ErrorLevel.CLIENT_ERROR)])
        await settle()
        assert len(published) - before == 1
        assert published[-1] is rig.controller.snapshot
        assert rig.controller.snapshot.evidence.levels == {"client_error": 1000}


# -- the end ------------------------------------------------------------------------------------------------


@in_virtual_time
async def test_stop_is_told_to_the_balancer_and_not_to_nomad() -> None:
    async with ControllerRig() as rig:
        await rig.errors(5)
        rig.controller.inbox.put(StopRequested())
        await settle()
        assert rig.state() is State.STOPPING
        assert not rig.controller.container.haproxy_up
        assert rig.controller.container.nomad_up
        await rig.errors(50)
        await rig.advance(30)
        assert rig.state() is State.STOPPING
        assert rig.budget.asked == []


@in_virtual_time
async def test_cancelled_run_ends_with_its_claim() -> None:
    async with ControllerRig(NO_SETTLE) as rig:
        await rig.errors(5)
        rig.running.cancel()
        with pytest.raises(asyncio.CancelledError):
            await rig.running
        assert rig.budget.cancelled == ["web/a/-"]
        assert asyncio.all_tasks() == {asyncio.current_task()}
        assert rig.failures == []


# -- the controller among parts that fail: each failure is reported, and the controller goes on ----------------------


class BadError(Exception):
    """What the fakes below raise."""


@in_virtual_time
async def test_bad_observer_is_reported_and_changes_nothing() -> None:
    def observe(_record: Record) -> None:
        raise BadError

    async with ControllerRig(observe=observe) as rig:
        assert rig.controller.snapshot.checked_at is not None
        await rig.errors(5, app_start="boot-1")
        assert rig.controller.snapshot.evidence.errors == 5
        await rig.advance(3.25)
        await rig.answered(GRANTED)
        await rig.advance(10.25)
        assert rig.state() is State.DOWN
        assert {type(error) for error in rig.failures} == {BadError}
        assert len(rig.failures) < 20


class BrokenNotes(MemoryJournal):
    """A journal that breaks its promise never to raise."""

    async def save(self, saved: SavedIncarnation) -> None:
        raise BadError(saved.app)

    async def settled(self, timeout_s: float) -> None:
        raise BadError(timeout_s)


@pytest.mark.parametrize("journal", [MemoryJournal, BrokenNotes], ids=["budget", "journal"])
@in_virtual_time
async def test_broken_budget_or_journal_is_an_unclear_answer(journal: type[MemoryJournal]) -> None:
    async with ControllerRig(NO_SETTLE, journal=journal()) as rig:
        await rig.errors(5, app_start="boot-1")
        if rig.budget.outstanding:
            await rig.answered(BadError())
        assert rig.controller.container.answer == Unknown("internal")
        assert not rig.controller.container.asking
        assert {type(error) for error in rig.failures} == {BadError}


class HangingNotes(MemoryJournal):
    """A journal whose disk hangs for as long as one is willing to wait."""

    async def settled(self, timeout_s: float) -> None:
        await asyncio.sleep(timeout_s)


@in_virtual_time
async def test_hanging_disk_holds_up_a_claim_for_a_second_and_nothing_else() -> None:
    async with ControllerRig(NO_SETTLE, journal=HangingNotes()) as rig:
        await rig.errors(5)
        await rig.errors(5)
        assert rig.controller.snapshot.evidence.errors == 10
        assert rig.budget.asked == []
        await rig.advance(1)
        assert rig.budget.asked == ["web/a/-"]


@in_virtual_time
async def test_message_that_cannot_be_handled_does_not_take_the_next_ones_with_it() -> None:
    async with ControllerRig() as rig:
        rig.controller.inbox.offer([ErrorReport(1, kind=[])])  # type: ignore[arg-type] # no listener accepts this
        rig.controller.inbox.offer([ErrorReport(5)])
        await settle()
        assert [type(error) for error in rig.failures] == [TypeError]
        assert rig.state() is State.SUSPECT


class Limit(int):
    """A limit of errors that can be made to fail, and every judgement with it."""

    broken = False

    def __gt__(self, other: int) -> bool:
        if self.broken:
            raise BadError
        return super().__gt__(other)


@in_virtual_time
async def test_step_that_always_fails_is_tried_once_a_second_and_not_in_a_spin() -> None:
    limit = Limit(5)
    async with ControllerRig(POLICY._replace(error_limit=limit)) as rig:
        await rig.errors(5)
        limit.broken = True
        await rig.advance(2.75)
        assert rig.failures == []
        await rig.advance(20)
        assert 15 <= len(rig.failures) <= 25
        assert rig.budget.asked == []
        await rig.errors(1)  # old errors claim nothing
        limit.broken = False
        await rig.advance(2)
        assert rig.budget.asked == ["web/a/-"]


@in_virtual_time
async def test_two_transitions_that_are_due_within_a_second_are_both_on_time() -> None:
    async with ControllerRig(POLICY._replace(drain_s=0.5)) as rig:
        await rig.errors(5)
        await rig.advance(3.25)
        await rig.answered(GRANTED)
        await rig.advance(0.5)
        assert rig.state() is State.DOWN


@in_virtual_time
async def test_container_that_is_not_up_is_shown_anew_each_second_though_nothing_is_counted() -> None:
    async with ControllerRig(POLICY._replace(grace_s=30.0)) as rig:
        for _ in range(5):
            await rig.advance(1.0)
            assert (rig.state(), rig.loop.time() - rig.controller.snapshot.now < 1.0) == (State.STARTING, True)


# -- the controller and each detector: what counts against an app, when it is noticed, and what ends it --------------


@in_virtual_time
async def test_silent_heart_is_noticed_at_the_next_check_and_one_beat_heals_it() -> None:
    async with ControllerRig(POLICY._replace(heartbeat_timeout_s=15.0)) as rig:
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
    async with ControllerRig(NO_SETTLE._replace(heartbeat_timeout_s=15.0, grace_s=30.0)) as rig:
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


# -- any story of pings, answers and time, against a model that counts anew on each question -------------------------


LIVES = ["boot-1", "boot-2", "boot-3", None]
PINGS = st.builds(
    ErrorReport,
    errors=st.integers(0, 4),
    level=st.sampled_from([ErrorLevel.SERVER_ERROR, ErrorLevel.SERVER_ERROR, ErrorLevel.CLIENT_ERROR]),
    kind=st.sampled_from(["redis", "http", "unknown"]),
    app_start=st.sampled_from(LIVES),
)
ANSWERS = st.sampled_from([GRANTED, GRANTED, DENIED, Unknown("timeout"), RuntimeError("broken")])
TIMES = st.sampled_from([0.25, 0.5, 1.0, 3.0, 9.75, 30.0])
Action = list[ErrorReport] | float | Answer | Exception
ACTIONS: st.SearchStrategy[Action] = st.one_of(st.lists(PINGS, min_size=1, max_size=3), TIMES, ANSWERS)


@dataclass
class Naive:
    """What the window should hold: every error with its second, of the incarnation that goes on."""

    window_s: int
    life: str | None = None
    ended: set[str | None] = field(default_factory=set)
    errors: list[tuple[int, str, int]] = field(default_factory=list)
    stale: int = 0

    def receive(self, ping: ErrorReport, now: float, *, is_culled: bool) -> None:
        if ping.app_start in self.ended:
            self.stale += 1
            return
        if ping.app_start not in (None, self.life):
            if self.life is not None or is_culled:
                self.errors = []
            self.ended |= {self.life} - {None}
            self.life = ping.app_start
        if ping.level is ErrorLevel.SERVER_ERROR and ping.errors:
            self.errors.append((int(now), ping.kind, ping.errors))

    def kinds(self, now: float) -> dict[str, int]:
        counts = Counter[str]()
        for second, kind, errors in self.errors:
            if second > int(now) - self.window_s:
                counts[kind] += errors
        return dict(counts)


@settings(max_examples=100, deadline=None)
@given(actions=st.lists(ACTIONS, max_size=40), settle_s=st.sampled_from([0.0, 3.0]))
def test_any_story_keeps_the_window_exact_and_culls_only_with_a_grant(
    *, actions: list[Action], settle_s: float
) -> None:
    @in_virtual_time
    async def story() -> None:
        granted: list[str] = []
        naive, policy = Naive(10), POLICY._replace(settle_s=settle_s)
        async with ControllerRig(policy, window_s=10) as rig:
            for action in actions:
                if isinstance(action, float):
                    await rig.advance(action)
                elif isinstance(action, list):
                    for ping in action:
                        naive.receive(ping, rig.loop.time(), is_culled=rig.latch is not None)
                        await rig.reports(ping)
                elif rig.budget.outstanding:
                    granted += rig.budget.outstanding if isinstance(action, Granted) else []
                    await rig.answered(action)
                controller, kinds = rig.controller, naive.kinds(rig.loop.time())
                assert controller.snapshot.evidence.kinds == kinds
                assert controller.snapshot.evidence.errors == sum(kinds.values())
                assert controller.stale_reports == naive.stale
                assert controller.container.state is not State.DRAINING or rig.latch is not None
                assert rig.latch is None or rig.latch.claim_id in granted
            assert rig.budget.most_at_once <= 1
            for record in rig.records:
                if any(isinstance(event, Culled) for event in record.events):
                    assert record.evidence.errors >= policy.error_limit or record.evidence.fatal
            assert all(isinstance(error, RuntimeError | TimeoutError) for error in rig.failures)

    story()
