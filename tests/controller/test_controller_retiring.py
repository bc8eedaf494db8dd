"""The hall at the planned end of a life, and when a person orders one: what it asks the bucket, and what it keeps."""

from __future__ import annotations

import asyncio
from dataclasses import replace

import pytest

from harness.controller import EXACT, POLICY, WALL_S, Stage
from harness.virtual_time import in_virtual_time, settle
from sidecar.controller.journal import Memory
from sidecar.core.life.container import start
from sidecar.core.life.events import CullOrdered, Leased, Revived
from sidecar.core.types import Denied, Granted, Latch, Lease, Ping, Policy, RandomIdentity, Results, State, Unknown

GRANTED = Granted(1, 1)
DENIED = Denied("slots", 1, 1, 10.0)
AGING = replace(POLICY, lifetime_s=100.0, lifetime_jitter=0.0, retire_slots="100p", retire_timeout_s=60.0)
PATIENT = replace(AGING, lifetime_max_s=200.0, busy_load=0.5)
HOLDER = "lease-of-a"
ORDERED = CullOrdered("ann", "it leaks")


def aging_stage(policy: Policy = AGING) -> Stage:
    now = asyncio.get_running_loop().time()
    return Stage(
        policy, EXACT, container=start("web/a", now, policy, app_start="boot-1", identity=RandomIdentity(HOLDER))
    )


@in_virtual_time
async def test_old_container_retires_under_a_lease() -> None:
    async with aging_stage() as stage:
        await stage.passes(99)
        assert stage.budget.leases == []
        await stage.passes(2)
        assert stage.budget.leases == [Lease(HOLDER, "a", "boot-1", "100p", 60.0)]
        assert stage.state() is State.RETIRING
        await stage.answered(GRANTED)
        reason = "retired at age 1m 41s, its lifetime is 1m 40s"
        assert stage.latch == Latch("", WALL_S, reason, lease=HOLDER, spent_s=1.0)  # the answer took a second
        await stage.passes(10)
        assert stage.states == [State.UP, State.RETIRING, State.DRAINING, State.DOWN]
        assert stage.notes.saved[-1].latch == stage.latch
        assert stage.budget.claims == []
        assert stage.budget.most_at_once == 1
        assert stage.failures == []


@in_virtual_time
async def test_who_is_denied_asks_again_under_the_same_word() -> None:
    async with aging_stage() as stage:
        await stage.passes(101)
        for answer in (DENIED, Unknown("timeout"), RuntimeError("no budget should raise")):
            await stage.answered(answer)
            assert stage.state() is State.RETIRING
            await stage.passes(11)
        assert [lease.holder for lease in stage.budget.leases] == [HOLDER] * 4
        assert stage.controller.container.lease_answer == Unknown("internal")


@in_virtual_time
async def test_retired_container_that_nobody_replaces_is_up_again() -> None:
    async with aging_stage() as stage:
        await stage.errors(3)
        await stage.passes(100)
        await stage.answered(GRANTED)
        await stage.errors(4)
        await stage.passes(60.5)
        assert stage.state() is State.UP
        assert stage.budget.resigned == [("a", HOLDER)]
        assert stage.controller.evidence().errors == 0
        assert stage.notes.last == Memory("web/a", "boot-1", "boot-1")
        await stage.passes(20)
        assert stage.state() is State.UP
        await stage.passes(20)
        assert stage.state() is State.RETIRING
        assert len(stage.budget.leases) == 2


@in_virtual_time
async def test_busy_container_is_asked_for_its_load_and_left_alone() -> None:
    async with aging_stage(PATIENT) as stage:
        for _ in range(7):
            await stage.reports(Results(load=0.9))
            await stage.passes(20)
        assert stage.state() is State.UP
        await stage.reports(Results(load=0.5, in_flight=9))
        await stage.passes(10)
        assert stage.state() is State.RETIRING


@in_virtual_time
async def test_app_that_falls_silent_counts_as_idle() -> None:
    async with aging_stage(PATIENT) as stage:
        await stage.passes(80)
        await stage.reports(Results(load=0.9))
        await stage.passes(59)
        assert stage.state() is State.UP
        await stage.passes(12)
        assert stage.state() is State.RETIRING


@in_virtual_time
async def test_ping_that_is_too_much_does_not_retire_a_busy_container() -> None:
    async with aging_stage(replace(PATIENT, confirm=2)) as stage:
        await stage.passes(99)
        await stage.reports(Results(load=0.9))
        await stage.passes(5)
        await stage.pings(Ping(9))
        assert stage.state() is State.UP
        assert stage.budget.leases == []


@in_virtual_time
async def test_lease_that_was_granted_to_who_is_busy_again_is_given_back() -> None:
    async with aging_stage(PATIENT) as stage:
        await stage.passes(101)
        await stage.reports(Results(load=0.9))
        await stage.answered(GRANTED)
        assert stage.state() is State.UP
        assert stage.budget.resigned == [("a", HOLDER)]
        assert stage.latch is None


@in_virtual_time
async def test_next_request_waits_until_what_was_given_back_is() -> None:
    async with aging_stage(PATIENT) as stage:
        await stage.passes(101)
        stage.budget.resigning.clear()
        await stage.reports(Results(load=0.9))
        await stage.answered(GRANTED)
        await stage.reports(Results(load=0.0))
        await stage.passes(10)
        assert stage.state() is State.RETIRING
        assert len(stage.budget.leases) == 1
        stage.budget.resigning.set()
        await settle()
        assert len(stage.budget.leases) == 2


@in_virtual_time
async def test_bucket_that_takes_no_lease_back_holds_nothing_up_for_ever() -> None:
    async with aging_stage(PATIENT) as stage:
        await stage.passes(101)
        stage.budget.resigning.clear()
        await stage.reports(Results(load=0.9))
        await stage.answered(GRANTED)
        await stage.reports(Results(load=0.0))
        await stage.passes(40)
        assert len(stage.budget.leases) == 2
        assert [type(failure) for failure in stage.failures] == [TimeoutError]


@in_virtual_time
async def test_sick_container_is_culled_and_not_retired() -> None:
    async with aging_stage() as stage:
        await stage.passes(101)
        await stage.errors(5)
        await stage.passes(3)
        assert stage.state() is State.SUSPECT
        assert stage.budget.claims == []
        await stage.answered(GRANTED)
        assert stage.budget.resigned == [("a", HOLDER)]
        await stage.passes(1)
        assert [claim.claim_id for claim in stage.budget.claims] == ["web/a/boot-1"]
        await stage.answered(Granted(1, 10))
        assert stage.latch is not None
        assert stage.latch.lease == ""


@in_virtual_time
async def test_lease_of_the_old_life_is_given_back_by_the_next() -> None:
    async with aging_stage() as stage:
        await stage.passes(101)
        await stage.pings(Ping(0, app_start="boot-2"))
        await stage.answered(GRANTED)
        assert stage.budget.resigned == [("a", HOLDER)]
        assert stage.controller.container.identity.holder not in ("", HOLDER)
        assert stage.state() is not State.DRAINING


@in_virtual_time
async def test_every_life_has_a_word_and_a_part_of_the_jitter_of_its_own() -> None:
    async with aging_stage() as stage:
        identities = [stage.controller.container.identity]
        for number in range(2, 6):
            await stage.pings(Ping(0, app_start=f"boot-{number}"))
            identities.append(stage.controller.container.identity)
        assert len({identity.holder for identity in identities}) == len({identity.part for identity in identities}) == 5
        assert all(0 <= identity.part <= 1 for identity in identities)


@in_virtual_time
async def test_age_and_word_are_written_down_at_once_where_they_count() -> None:
    async with aging_stage() as stage:
        (memory,) = stage.notes.saved
        assert (memory.born, memory.identity) == (WALL_S, RandomIdentity(HOLDER))
    async with Stage() as stage:
        assert stage.notes.saved == []


@in_virtual_time
async def test_snapshot_tells_when_the_end_is_due_and_how_busy_the_app_is() -> None:
    async with aging_stage(PATIENT) as stage:
        born = stage.controller.container.born
        await stage.reports(Results(in_flight=3))
        await stage.passes(5)
        seen = stage.controller.snapshot()
        assert seen.retire_at == born + 100
        assert seen.load is not None
        assert seen.load.value == 3
        assert seen.load.age_s == pytest.approx(5)
    async with Stage() as stage:
        assert stage.controller.snapshot().retire_at is None


@in_virtual_time
async def test_shadow_asks_for_nothing() -> None:
    async with aging_stage(replace(AGING, enforce=False)) as stage:
        await stage.passes(300)
        assert (stage.state(), stage.budget.leases) == (State.UP, [])
        assert stage.controller.container.would_retire


# -- orders of a person ---------------------------------------------------------------------------------------


@in_virtual_time
async def test_ordered_cull_is_claimed_as_such_and_carried_out() -> None:
    async with Stage() as stage:
        await stage.errors(1, kind="redis", app_start="boot-1")
        stage.controller.inbox.put(ORDERED)
        await settle()
        (claim,) = stage.budget.claims
        assert (claim.claim_id, claim.kind) == ("web/a/boot-1", "manual")
        await stage.answered(Granted(1, 10))
        await stage.passes(10)
        assert stage.state() is State.DOWN
        assert stage.latch is not None
        assert stage.latch.reason == "a person ordered the cull"
        (record,) = (record for record in stage.records if record.culled)
        assert record.before.order is not None
        assert record.before.order.author == "ann"


@in_virtual_time
async def test_refused_order_leaves_the_container_up_and_its_answer_to_be_read() -> None:
    async with Stage() as stage:
        stage.controller.inbox.put(ORDERED)
        await settle()
        await stage.answered(Denied("hold", 0, 10, 5.0))
        assert stage.state() is not State.SUSPECT
        await stage.passes(60)
        assert (stage.state(), len(stage.budget.claims)) == (State.UP, 1)
        assert stage.controller.container.answer == Denied("hold", 0, 10, 5.0)


@in_virtual_time
async def test_revived_container_is_another_life_of_the_app_that_still_reports() -> None:
    async with Stage(replace(POLICY, settle_s=0.0, drain_s=0.0)) as stage:
        await stage.errors(5, app_start="boot-1")
        await stage.answered(Granted(1, 10))
        assert stage.state() is State.DOWN
        await stage.errors(9, app_start="boot-1")
        stage.controller.inbox.put(Revived("ann", "it was me"))
        await settle()
        word = stage.controller.container.life
        assert word.startswith("revived-")
        assert (stage.state(), stage.controller.evidence().errors) == (State.UP, 0)
        assert stage.notes.last == Memory("web/a", "boot-1", word)
        await stage.errors(5, app_start="boot-1")
        assert stage.budget.in_the_air == [f"web/a/{word}"]
        assert stage.controller.stale_reports == 0


@in_virtual_time
async def test_two_revivals_are_two_lives() -> None:
    async with Stage(replace(POLICY, settle_s=0.0, drain_s=0.0)) as stage:
        words = []
        for _ in range(2):
            await stage.errors(5)
            await stage.answered(Granted(1, 10))
            stage.controller.inbox.put(Revived("ann", "it was me"))
            await settle()
            words.append(stage.controller.container.life)
        assert len(set(words)) == 2


@in_virtual_time
async def test_stray_answer_changes_nothing_and_gives_back_what_it_grants() -> None:
    async with Stage() as stage:
        stage.controller.inbox.put(Leased("somebody", GRANTED, WALL_S))
        await settle()
        assert stage.budget.resigned == [("a", "somebody")]
        assert stage.latch is None
