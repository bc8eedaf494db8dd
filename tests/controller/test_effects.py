"""What the controller asks of budget, disk and hook in virtual time, and what it does with each answer."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from random import Random
from typing import Self

import pytest

from harness.cases import cases
from harness.controller import IDENTITY, POLICY, WALL_S, ControllerRig, MemoryJournal
from harness.virtual_time import in_virtual_time, settle
from sidecar.controller.inbox import Inbox
from sidecar.controller.journal import SavedIncarnation
from sidecar.controller.membership import AGAIN_JITTER, AGAIN_S, RETURN_BEATS, Membership
from sidecar.controller.runtime import Runtime
from sidecar.core.app_reports import ErrorReport, Results
from sidecar.core.claims import Beat, Claim, Denied, Fleet, Granted, LeaseRequest, Presence, RandomIdentity, Unknown
from sidecar.core.life.container import start
from sidecar.core.life.events import CullOrdered, ReviveOrdered
from sidecar.core.life.snapshot import Snapshot
from sidecar.core.types import Latch, Policy, State

# -- the controller and the membership: claims never overtake beats, and a token that is not used is given back ------


GRANTED = Granted(1, 10)
AWAY = Unknown("timeout")
AT_ONCE = POLICY._replace(settle_s=0.0)
INTERVAL_S = 10.0


class Fleetwide:
    """A store that answers beats as it is told, in no time while it is ``open``."""

    def __init__(self) -> None:
        self.answer: Fleet | Unknown = Fleet(10, 1)
        self.beats: list[Beat] = []
        self.open = asyncio.Event()
        self.open.set()

    async def beat(self, beat: Beat) -> Fleet | Unknown:
        self.beats.append(beat)
        await self.open.wait()
        return self.answer


@contextlib.asynccontextmanager
async def beating(policy: Policy = POLICY, window_s: int = 600) -> AsyncIterator[tuple[ControllerRig, Fleetwide]]:
    """A controller with its own membership, as a sidecar has them."""
    store, inbox, failures = Fleetwide(), Inbox(), []  # type: tuple[Fleetwide, Inbox, list[Exception]]
    loop = asyncio.get_running_loop()
    membership = Membership(
        store.beat,
        Runtime(loop.time, lambda: WALL_S, Random(0), failures.append),
        error_limit=policy.error_limit,
        interval_s=INTERVAL_S,
        put=inbox.put,
        on_answer=lambda _: None,
    )
    rig = ControllerRig(policy, window_s=window_s, inbox=inbox, publish=membership.update)
    rig.fleet = None
    running = rig.loop.create_task(membership.run())
    async with rig:
        yield rig, store
    running.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await running
    assert rig.failures == failures == []


@in_virtual_time
async def test_without_settle_the_fifth_error_is_told_claimed_and_carried_out_without_any_timer() -> None:
    async with beating(AT_ONCE) as (rig, store):
        await rig.advance(1)
        began = rig.loop.time()
        await rig.errors(4)
        await rig.errors(1, kind="redis")
        assert store.beats[-1].presence is Presence.SUSPECT
        assert len(rig.budget.asked) == 1
        await rig.answered(GRANTED)
        assert (rig.state(), rig.loop.time()) == (State.DRAINING, began)


@pytest.mark.parametrize("away_s", [2, 6, 20, 60])
@in_virtual_time
async def test_while_the_store_is_away_nothing_is_claimed_and_after_that_the_fleet_is_heard_first(
    away_s: float,
) -> None:
    async with beating() as (rig, store):
        await rig.advance(1)
        store.answer = AWAY
        await rig.reports(ErrorReport(fatal=True))  # a condition that still stands after a minute
        await rig.advance(away_s)
        assert (rig.budget.asked, rig.controller.snapshot.beat_error) == ([], "timeout")
        store.answer = Fleet(10, 10)
        came_back = rig.loop.time()
        others_beat_s = RETURN_BEATS * INTERVAL_S
        latest_s = others_beat_s + AGAIN_S * (1 + AGAIN_JITTER) + 0.2
        while not rig.budget.asked and rig.loop.time() - came_back <= latest_s:
            await rig.advance(0.1)
        assert others_beat_s <= rig.loop.time() - came_back <= latest_s


# -- a token that is not used ---------------------------------------------------------------------------------

RETURNED = [("a", "web/a/boot-1")]


async def recovers_while_asking(rig: ControllerRig) -> None:
    await rig.errors(5, app_start="boot-1")
    assert len(rig.budget.outstanding) == 1
    await rig.advance(7)


@cases(
    "answer",
    {
        "granted": GRANTED,
        "unclear": AWAY,
        "failed": RuntimeError("broken"),
    },
)
@in_virtual_time
async def test_recovered_container_gives_its_token_back(answer: Granted | Unknown | Exception) -> None:
    async with ControllerRig(AT_ONCE, window_s=5) as rig:
        await recovers_while_asking(rig)
        await rig.answered(answer)
        await rig.advance(2)
        assert (rig.state(), rig.budget.returned) == (State.UP, RETURNED)


@in_virtual_time
async def test_token_is_given_back_until_that_is_confirmed() -> None:
    async with ControllerRig(AT_ONCE, window_s=5) as rig:
        rig.budget.refuses = [AWAY] * 3
        await recovers_while_asking(rig)
        await rig.answered(GRANTED)
        assert rig.budget.returned == []
        await rig.advance(9)
        assert rig.budget.returned == RETURNED
        await rig.advance(120)
        assert rig.budget.returned == RETURNED


@in_virtual_time
async def test_claim_is_not_made_again_before_its_token_is_given_back() -> None:
    """Or it would be granted what it had been granted, past every gate."""
    async with ControllerRig(AT_ONCE, window_s=5) as rig:
        rig.budget.return_gate.clear()
        await recovers_while_asking(rig)
        await rig.answered(GRANTED)
        await rig.errors(5, app_start="boot-1")
        assert (rig.state(), len(rig.budget.asked)) == (State.SUSPECT, 1)
        rig.budget.return_gate.set()
        await settle()
        assert (rig.budget.returned, len(rig.budget.asked)) == (RETURNED, 2)


@pytest.mark.parametrize(
    ("refusal", "answer"),
    [(AWAY, AWAY), (RuntimeError("broken"), Unknown("internal"))],
    ids=["unclear", "failed"],
)
@in_virtual_time
async def test_claim_whose_token_cannot_be_given_back_is_not_answered(
    refusal: Unknown | Exception, answer: Unknown
) -> None:
    async with ControllerRig(AT_ONCE, window_s=5) as rig:
        rig.budget.refuses = [refusal] * 2
        await recovers_while_asking(rig)
        await rig.answered(GRANTED)
        await rig.errors(5, app_start="boot-1")
        assert (rig.controller.container.answer, len(rig.budget.asked)) == (answer, 1)
        await rig.advance(2)
        assert (rig.budget.returned, len(rig.budget.asked)) == (RETURNED, 2)


# -- the controller at a retirement, and when a person orders a restart: what it asks the budget, and what it kee ---


LEASED = Granted(1, 1)
AGING = POLICY._replace(lifetime_s=100.0, retire_slots="100p", retire_timeout_s=60.0)
PATIENT = AGING._replace(busy_load=0.5)
HOLDER = "lease-of-a"


def aging_stage(policy: Policy = AGING, rng: Random | None = None) -> ControllerRig:
    now = asyncio.get_running_loop().time()
    return ControllerRig(
        policy, rng=rng, container=start("web/a", now, policy, app_start="boot-1", identity=RandomIdentity(HOLDER))
    )


@in_virtual_time
async def test_old_container_retires_under_a_lease() -> None:
    async with aging_stage() as rig:
        await rig.advance(99)
        assert rig.budget.leases == []
        await rig.advance(2)
        assert rig.budget.leases == [LeaseRequest(HOLDER, "a", "boot-1", "100p", 60.0)]
        assert rig.state() is State.RETIRING
        await rig.answered(LEASED)
        reason = "retired at age 1m 41s, its lifetime is 1m 40s"
        assert rig.latch == Latch("", WALL_S, reason, lease=HOLDER, spent_s=1.0)  # the answer took a second
        await rig.advance(10)
        assert rig.states == [State.UP, State.RETIRING, State.DRAINING, State.DOWN]
        assert rig.notes.saved[-1].latch == rig.latch
        assert rig.budget.claims == []
        assert rig.budget.most_at_once == 1
        assert rig.failures == []


@in_virtual_time
async def test_every_life_has_a_word_and_a_part_of_the_jitter_of_its_own() -> None:
    async with aging_stage(rng=Random(0)) as rig:
        identities = [rig.controller.container.identity]
        for number in range(2, 6):
            await rig.reports(ErrorReport(0, app_start=f"boot-{number}"))
            identities.append(rig.controller.container.identity)
        assert len({identity.holder for identity in identities}) == len({identity.part for identity in identities}) == 5
        assert all(0 <= identity.part <= 1 for identity in identities)


@in_virtual_time
async def test_age_and_word_are_written_down_at_once_where_they_count() -> None:
    async with aging_stage() as rig:
        (saved,) = rig.notes.saved
        assert (saved.born, saved.identity) == (WALL_S, RandomIdentity(HOLDER))
    async with ControllerRig() as rig:
        assert rig.notes.saved == []


@in_virtual_time
async def test_snapshot_tells_when_the_end_is_due_and_how_busy_the_app_is() -> None:
    async with aging_stage(PATIENT) as rig:
        born = rig.controller.container.born
        await rig.reports(Results(in_flight=3))
        await rig.advance(5)
        seen = rig.controller.snapshot
        assert seen.retire_at == born + 100
        assert seen.load is not None
        assert seen.load.value == 3
        assert seen.load.age_s == pytest.approx(5 - (rig.loop.time() - seen.now))
    async with ControllerRig() as rig:
        assert rig.controller.snapshot.retire_at is None


# -- orders of a person ---------------------------------------------------------------------------------------


@in_virtual_time
async def test_ordered_cull_is_claimed_the_moment_a_request_for_a_lease_is_answered() -> None:
    async with aging_stage() as rig:
        await rig.advance(101)
        rig.controller.inbox.put(CullOrdered("ann", "it leaks"))
        await rig.advance(1)
        assert rig.budget.claims == []
        now = rig.loop.time()
        await rig.answered(Unknown("timeout"))
        assert ([claim.claim_id for claim in rig.budget.claims], rig.loop.time()) == (["web/a/boot-1"], now)
        assert rig.budget.returned == [("a", HOLDER)]


@in_virtual_time
async def test_revived_container_is_another_life_of_the_app_that_still_reports() -> None:
    async with ControllerRig(AT_ONCE._replace(drain_s=0.0)) as rig:
        await rig.errors(5, app_start="boot-1")
        await rig.answered(Granted(1, 10))
        assert rig.state() is State.DOWN
        await rig.errors(9, app_start="boot-1")
        rig.controller.inbox.put(ReviveOrdered("ann", "it was me"))
        await settle()
        word = rig.controller.container.life
        assert word.startswith("revived-")
        assert (rig.state(), rig.controller.snapshot.evidence.errors) == (State.UP, 0)
        assert rig.notes.last == SavedIncarnation("web/a", "boot-1", word)
        await rig.errors(5, app_start="boot-1")
        assert rig.budget.outstanding == [f"web/a/{word}"]
        assert rig.controller.stale_reports == 0


@in_virtual_time
async def test_store_that_takes_no_lease_back_holds_nothing_up_for_ever() -> None:
    async with aging_stage(PATIENT) as rig:
        await rig.advance(101)
        rig.budget.return_gate.clear()
        await rig.reports(Results(load=0.9))
        await rig.answered(LEASED)
        await rig.reports(Results(load=0.0))
        await rig.advance(45)
        assert rig.controller.container.lease_answer == Unknown("internal")
        assert {type(failure) for failure in rig.failures} == {TimeoutError}


# -- the hook: between a grant and the drain, in enforce mode, and never in the way of the cull ----------------------

REPLAYED = Granted(1, 10, replayed=True)
SICK = ErrorReport(5, kind="redis", message="no route to 10.0.0.1", app_start="life-1")


class Hook:
    """Takes some time, or fails, and knows what it was called with."""

    def __init__(self, takes_s: float = 0.0, failure: Exception | None = None) -> None:
        self.calls: list[tuple[Claim, str]] = []
        self.cancelled = 0
        self.takes_s = takes_s
        self._failure = failure

    async def __call__(self, claim: Claim, reason: str) -> str:
        self.calls.append((claim, reason))
        try:
            await asyncio.sleep(self.takes_s)
        except asyncio.CancelledError:
            self.cancelled += 1
            raise
        if self._failure is not None:
            raise self._failure
        return "what it saw"


@contextlib.asynccontextmanager
async def hooked(hook: Hook, policy: Policy = AT_ONCE) -> AsyncIterator[ControllerRig]:
    """A controller whose claim was just granted."""
    async with ControllerRig(policy, hook=hook) as rig:
        await rig.reports(SICK)
        await rig.answered(GRANTED)
        if hook.calls and not hook.takes_s:
            await rig.answered(REPLAYED)
        yield rig


@cases(
    "again, state, returned",
    {
        "held": (Denied("hold", 1, 10, 60.0), State.SUSPECT, [("a", "web/a/life-1")]),
        "still granted": (REPLAYED, State.DRAINING, []),
        "no clear answer takes back no grant": (Unknown("timeout"), State.DRAINING, []),
    },
)
@in_virtual_time
async def test_hook_runs_before_the_drain_and_a_hold_that_is_set_meanwhile_is_heard(
    again: Denied | Granted | Unknown, state: State, returned: list[tuple[str, str]]
) -> None:
    hook = Hook(takes_s=2.0)
    async with hooked(hook) as rig:
        await rig.advance(2.0)
        assert rig.state() is State.SUSPECT  # asked once more
        await rig.answered(again)
        assert (rig.state(), rig.budget.returned) == (state, returned)
        evidence = rig.controller.snapshot.last_cull
        assert (evidence.capture if evidence else None) == ("what it saw" if state is State.DRAINING else None)
        assert rig.records[-1].cull_evidence == evidence
    ((claim, reason),) = hook.calls
    assert claim == Claim("web/a/life-1", "a", "life-1", "redis", IDENTITY.holder)
    assert reason.startswith("5 server errors in 60 s")


@in_virtual_time
async def test_hook_that_fails_is_reported_and_does_not_keep_the_container_up() -> None:
    failure = RuntimeError("broken")
    async with hooked(Hook(failure=failure)) as rig:
        assert rig.controller.snapshot.last_cull is not None
        assert rig.controller.snapshot.last_cull.capture is None
        assert (rig.state(), rig.failures) == (State.DRAINING, [failure])


@in_virtual_time
async def test_hook_does_not_run_in_shadow_mode_and_ends_with_the_incarnation() -> None:
    hook = Hook(takes_s=60.0)
    async with hooked(hook, AT_ONCE._replace(enforce=False)) as rig:
        assert (rig.controller.container.would_culls, rig.controller.snapshot.last_cull) == (1, None)
        assert hook.calls == []
    async with hooked(hook) as rig:
        await rig.reports(ErrorReport(0, app_start="life-2"))
        assert hook.cancelled == 1
        await rig.advance(100.0)
        assert (rig.state(), rig.latch) == (State.UP, None)


@in_virtual_time
async def test_samples_end_with_the_incarnation_and_those_of_the_cull_are_kept() -> None:
    async with hooked(Hook()) as rig:
        samples = rig.controller.assessment.measurements.samples
        await rig.reports(ErrorReport(message="while it drains"))
        assert len(samples.newest()) == 2
        await rig.reports(ErrorReport(0, app_start="life-2"))
        assert samples.newest() == ()
        kept = rig.controller.snapshot.last_cull
        assert kept is not None
        assert (kept.claim_id, kept.at, kept.capture) == ("web/a/life-1", WALL_S, "what it saw")
        assert [sample.message for sample in kept.samples] == ["no route to 10.0.0.1"]


# -- no reader sees a grant before its latch is on disk, or the disk has had its time --------------------------------

WAIT_S = 0.25
OUT_OF_BALANCE = frozenset({State.DRAINING, State.DOWN})


class HeldJournal(MemoryJournal):
    """A journal whose writes of a latch end when the test says so."""

    def __init__(self) -> None:
        super().__init__()
        self.released = asyncio.Event()

    @property
    def keeps(self) -> bool:
        return True

    async def save(self, saved: SavedIncarnation) -> None:
        self.saved.append(saved)
        if saved.latch is not None:
            await self.released.wait()

    async def settled(self, timeout_s: float) -> None:
        if self.saved and self.saved[-1].latch is not None and not self.released.is_set():
            await asyncio.sleep(timeout_s)


class DiskHangs:
    """A controller whose claim was just granted while its disk hangs, and the states that readers have seen."""

    def __init__(self, policy: Policy = AT_ONCE) -> None:
        self.states: list[State] = []
        self.journal = HeldJournal()
        self.rig = ControllerRig(policy, journal=self.journal, publish=self._publish)

    def _publish(self, snapshot: Snapshot) -> None:
        self.states.append(snapshot.container.state)

    async def __aenter__(self) -> Self:
        await self.rig.__aenter__()
        await self.rig.errors(5, app_start="boot-1")
        await self.rig.answered(GRANTED)
        assert self.journal.saved[-1].latch == self.rig.latch is not None
        return self

    async def __aexit__(self, *failure: object) -> None:
        self.journal.released.set()
        await self.rig.__aexit__(*failure)


@pytest.mark.parametrize("drain_s", [10.0, 0.0])
@pytest.mark.parametrize("is_written", [True, False], ids=["written", "the disk has had its time"])
@in_virtual_time
async def test_grant_is_shown_when_its_latch_is_on_disk_or_a_quarter_of_a_second_later(
    drain_s: float, *, is_written: bool
) -> None:
    async with DiskHangs(AT_ONCE._replace(drain_s=drain_s)) as culled:
        await culled.rig.advance(WAIT_S - 0.01)
        await culled.rig.errors(7, app_start="boot-1")
        assert culled.rig.controller.assessment.measurements.errors.total == 12
        assert OUT_OF_BALANCE.isdisjoint(culled.states)
        if is_written:
            culled.journal.released.set()
            await settle()
        else:
            await culled.rig.advance(0.02)
        assert culled.rig.controller.snapshot.container.state is culled.rig.state() in OUT_OF_BALANCE


@in_virtual_time
async def test_app_that_restarts_while_the_disk_hangs_is_shown_at_once() -> None:
    async with DiskHangs() as culled:
        await culled.rig.errors(1, app_start="boot-2")
        assert culled.rig.controller.snapshot.container.state is State.UP
        await culled.rig.advance(2 * WAIT_S)
        assert OUT_OF_BALANCE.isdisjoint(culled.states)
        assert culled.journal.saved[-1].latch is None


@in_virtual_time
async def test_latch_that_cannot_be_kept_is_reported_and_the_container_drains() -> None:
    failure = RuntimeError("broken")

    class BrokenJournal(MemoryJournal):
        async def save(self, saved: SavedIncarnation) -> None:
            if saved.latch is not None:
                raise failure

    async with ControllerRig(AT_ONCE, journal=BrokenJournal()) as rig:
        await rig.errors(5)
        await rig.answered(GRANTED)
        await rig.advance(2 * WAIT_S)
        assert (rig.state(), rig.failures) == (State.DRAINING, [failure])
