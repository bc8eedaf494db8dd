"""The controller and the membership: claims never overtake beats, and a token that is not used is given back."""

from __future__ import annotations

import asyncio
import contextlib
from dataclasses import replace
from random import Random
from typing import TYPE_CHECKING

import pytest

from harness.controller import POLICY, ControllerRig
from harness.virtual_time import in_virtual_time, settle
from sidecar.controller.inbox import Inbox
from sidecar.controller.membership import AGAIN_JITTER, AGAIN_S, RETURN_BEATS, Membership
from sidecar.core.app_reports import ErrorReport
from sidecar.core.claims import Beat, Fleet, Granted, Presence, Unknown
from sidecar.core.types import Policy, State

if TYPE_CHECKING:
    from collections.abc import AsyncIterator


GRANTED = Granted(1, 10)
AWAY = Unknown("timeout")
AT_ONCE = replace(POLICY, settle_s=0.0)
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
        error_limit=policy.error_limit,
        interval_s=INTERVAL_S,
        clock=loop.time,
        rng=Random(0),
        put=inbox.put,
        on_answer=lambda _: None,
        on_failure=failures.append,
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


@pytest.mark.parametrize("answer", [GRANTED, AWAY, RuntimeError("broken")], ids=["granted", "unclear", "failed"])
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
