"""The hall and its pulse: claims never overtake beats, and a token that is not used is given back."""

from __future__ import annotations

import asyncio
import contextlib
from dataclasses import replace
from random import Random
from typing import TYPE_CHECKING

import pytest

from harness.controller import EXACT, POLICY, WALL_S, Stage
from harness.virtual_time import in_virtual_time, settle
from sidecar.controller.membership import AGAIN_JITTER, AGAIN_S, FIRST_AFTER_S, RETURN_BEATS, Membership
from sidecar.core.life.events import Answered
from sidecar.core.types import AppExited, Beat, Claim, Denied, Fleet, Granted, Ping, Policy, Presence, State, Unknown

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from sidecar.core.life.snapshot import Record

GRANTED = Granted(1, 10)
AWAY = Unknown("timeout")
AT_ONCE = replace(POLICY, settle_s=0.0)
INTERVAL_S = 10.0


class Fleetwide:
    """A store that answers beats as it is told, in no time."""

    def __init__(self) -> None:
        self.answer: Fleet | Unknown = Fleet(10, 1)
        self.beats: list[Beat] = []

    async def beat(self, beat: Beat) -> Fleet | Unknown:
        self.beats.append(beat)
        return self.answer


@contextlib.asynccontextmanager
async def beating(policy: Policy = POLICY, window_s: int = 600) -> AsyncIterator[tuple[Stage, Fleetwide]]:
    """A hall with a pulse of its own, as a sidecar has them."""
    noticed: list[Membership] = []

    def observe(record: Record) -> None:
        stage.told.append((stage.loop.time(), record))
        noticed[0].notice(record)

    stage, store = Stage(policy, EXACT, window_s=window_s, observe=observe), Fleetwide()
    stage.fleet = None
    controller = stage.controller
    membership = Membership(
        controller.snapshot,
        store,
        policy=policy,
        interval_s=INTERVAL_S,
        clock=stage.loop.time,
        rng=Random(0),
        errors=lambda: controller.measurements.errors.total,
        put=controller.inbox.put,
        told=lambda _: None,
        on_failure=stage.failures.append,
    )
    noticed.append(membership)
    controller.each_second = membership.look
    running = stage.loop.create_task(membership.run())
    async with stage:
        yield stage, store
    running.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await running
    assert stage.failures == []


@in_virtual_time
async def test_without_settle_the_fifth_error_is_told_claimed_and_carried_out_without_any_timer() -> None:
    async with beating(AT_ONCE) as (stage, store):
        await stage.passes(1)
        began = stage.loop.time()
        await stage.errors(4)
        await stage.errors(1, kind="redis")
        assert store.beats[-1].presence is Presence.SUSPECT
        assert len(stage.budget.asked) == 1
        await stage.answered(GRANTED)
        assert (stage.state(), stage.loop.time()) == (State.DRAINING, began)


@in_virtual_time
async def test_sidecar_that_has_just_started_claims_nothing_before_its_first_beat() -> None:
    async with beating(AT_ONCE) as (stage, store):
        await stage.errors(5)
        assert (stage.state(), stage.budget.asked, store.beats) == (State.SUSPECT, [], [])
        await stage.passes(FIRST_AFTER_S)
        assert len(stage.budget.asked) == 1


@pytest.mark.parametrize("away_s", [2, 6, 20, 60])
@in_virtual_time
async def test_while_the_store_is_away_nothing_is_claimed_and_after_that_the_fleet_is_heard_first(
    away_s: float,
) -> None:
    async with beating() as (stage, store):
        await stage.passes(1)
        store.answer = AWAY
        await stage.errors(5)
        await stage.passes(away_s)
        assert (stage.budget.asked, stage.controller.snapshot().beat_error) == ([], "timeout")
        store.answer = Fleet(10, 10)
        came_back = stage.loop.time()
        while not stage.budget.asked:
            await stage.passes(0.1)
        waited_s = stage.loop.time() - came_back
        others_beat_s = RETURN_BEATS * INTERVAL_S
        assert others_beat_s <= waited_s <= others_beat_s + AGAIN_S * (1 + AGAIN_JITTER) + 0.2


@in_virtual_time
async def test_refused_suspect_claims_no_more_while_the_store_is_away() -> None:
    async with beating(AT_ONCE) as (stage, store):
        await stage.passes(1)
        await stage.errors(5)
        await stage.answered(Denied("trial", 1, 10, 5.0))
        assert store.beats[-1].refused
        store.answer = AWAY
        await stage.passes(60)
        assert len(stage.budget.asked) == 1
        store.answer = Fleet(10, 1)
        await stage.passes(RETURN_BEATS * INTERVAL_S)
        assert len(stage.budget.asked) == 1
        await stage.passes(3)
        assert len(stage.budget.asked) == 2


# -- a token that is not used ---------------------------------------------------------------------------------

RETURNED = [("a", "web/a/boot-1")]


async def recovers_while_asking(stage: Stage) -> None:
    await stage.errors(5, app_start="boot-1")
    assert len(stage.budget.in_the_air) == 1
    await stage.passes(7)


@pytest.mark.parametrize("answer", [GRANTED, AWAY, RuntimeError("broken")], ids=["granted", "unclear", "failed"])
@in_virtual_time
async def test_recovered_container_gives_its_token_back(answer: Granted | Unknown | Exception) -> None:
    async with Stage(AT_ONCE, window_s=5) as stage:
        await recovers_while_asking(stage)
        await stage.answered(answer)
        await stage.passes(2)
        assert (stage.state(), stage.budget.resigned) == (State.UP, RETURNED)


@pytest.mark.parametrize("end", [Ping(0, app_start="boot-2"), AppExited()], ids=["another name", "gone"])
@in_virtual_time
async def test_claim_of_a_life_that_ends_is_given_back(end: Ping | AppExited) -> None:
    async with Stage(AT_ONCE) as stage:
        await stage.errors(5, app_start="boot-1")
        await stage.reports(end)
        assert (stage.budget.cancelled, stage.budget.resigned) == (["web/a/boot-1"], RETURNED)


@in_virtual_time
async def test_grant_that_comes_late_is_given_back() -> None:
    async with Stage(AT_ONCE) as stage:
        stage.controller.inbox.put(Answered("web/a/boot-0", GRANTED, WALL_S))
        await settle()
        assert stage.budget.resigned == [("a", "web/a/boot-0")]


@in_virtual_time
async def test_token_is_given_back_until_that_is_confirmed() -> None:
    async with Stage(AT_ONCE, window_s=5) as stage:
        stage.budget.refuses = [AWAY] * 3
        await recovers_while_asking(stage)
        await stage.answered(GRANTED)
        assert stage.budget.resigned == []
        await stage.passes(9)
        assert stage.budget.resigned == RETURNED
        await stage.passes(120)
        assert stage.budget.resigned == RETURNED


@in_virtual_time
async def test_claim_is_not_made_again_before_its_token_is_given_back() -> None:
    """Or it would be granted what it had been granted, past every gate."""
    async with Stage(AT_ONCE, window_s=5) as stage:
        stage.budget.resigning.clear()
        await recovers_while_asking(stage)
        await stage.answered(GRANTED)
        await stage.errors(5, app_start="boot-1")
        assert (stage.state(), len(stage.budget.asked)) == (State.SUSPECT, 1)
        stage.budget.resigning.set()
        await settle()
        assert (stage.budget.resigned, len(stage.budget.asked)) == (RETURNED, 2)


@in_virtual_time
async def test_claim_whose_token_cannot_be_given_back_is_not_answered() -> None:
    async with Stage(AT_ONCE, window_s=5) as stage:
        stage.budget.refuses = [AWAY] * 2
        await recovers_while_asking(stage)
        await stage.answered(GRANTED)
        await stage.errors(5, app_start="boot-1")
        assert (stage.controller.container.answer, len(stage.budget.asked)) == (AWAY, 1)
        await stage.passes(2)
        assert (stage.budget.resigned, len(stage.budget.asked)) == (RETURNED, 2)


@in_virtual_time
async def test_token_that_a_hold_took_back_while_the_evidence_was_kept_is_given_back() -> None:
    async with Stage(AT_ONCE) as stage:

        async def looks(_claim: Claim, _reason: str) -> str:
            await asyncio.sleep(1)
            return ""

        stage.controller.inquest._hook = looks
        await stage.errors(5, app_start="boot-1")
        await stage.answered(GRANTED)
        await stage.passes(1)
        await stage.answered(Denied("hold", 1, 10, 60.0))
        assert (stage.state(), stage.budget.resigned) == (State.SUSPECT, RETURNED)
