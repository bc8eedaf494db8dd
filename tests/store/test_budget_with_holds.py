from __future__ import annotations

import asyncio

import pytest

from harness.budgets import UnreliableBudget
from harness.claims import S, lease
from harness.server_group import START_US, ServerGroup
from sidecar.core.types import Answer, Beat, Claim, Denied, Fleet, Granted, Hold, Presence, Unknown
from sidecar.store.budget import FleetBudget
from sidecar.store.budget_with_holds import BudgetWithHolds

START_S = START_US / S


class World:
    """One time, one store in it, and sidecar ``a``."""

    def __init__(self) -> None:
        self.group = ServerGroup()
        self.budget = UnreliableBudget(self.other())
        self.held = BudgetWithHolds(self.budget, lambda: self.group.now_us / S, "a")

    def other(self) -> FleetBudget:
        return self.group.sidecar()

    async def claim(self, claim_id: str = "1") -> Answer:
        return await self.held.claim(_claim(claim_id))


def _claim(claim_id: str) -> Claim:
    return Claim(claim_id, "a", f"life-{claim_id}")


def _beat(presence: Presence = Presence.WELL) -> Beat:
    return Beat("a", "life-1", presence)


@pytest.fixture
async def world() -> World:
    return World()


@pytest.mark.parametrize("instance", ["", "a"], ids=["service", "own instance"])
async def test_hold_that_the_budget_keeps_is_not_kept_here_as_well(world: World, instance: str) -> None:
    held = await world.held.hold(instance, "alice", "why", 60)
    assert held == Hold("alice", "why", START_S + 60, instance)
    assert world.held.local is None
    assert isinstance(answer := await world.claim(), Denied)
    assert (answer.reason, answer.hold) == ("hold", held)
    assert await world.other().release(instance) is True  # by somebody else
    assert isinstance(await world.claim(), Granted)


@pytest.mark.parametrize("instance", ["", "a"], ids=["service", "own instance"])
async def test_local_hold_denies_retirement(world: World, instance: str) -> None:
    world.budget.error = "connection"
    assert await world.held.hold(instance, "alice", "why", 60) == Unknown("connection")
    world.budget.error = None
    hold = Hold("alice", "why", START_S + 60, instance)
    assert await world.held.retire(lease("a")) == Denied("hold", 0, 0, 60.0, hold=hold)
    world.group.advance(60)
    assert isinstance(await world.held.retire(lease("a")), Granted)
    assert await world.held.give_back("a", "a's") is True


@pytest.mark.parametrize("instance", ["", "a"], ids=["service", "own instance"])
async def test_hold_that_the_budget_cannot_keep_denies_here_until_it_is_over(world: World, instance: str) -> None:
    world.budget.error = "connection"
    assert await world.held.hold(instance, "alice", "why", 60) == Unknown("connection")
    world.budget.error = None
    hold = Hold("alice", "why", START_S + 60, instance)
    assert world.held.local == hold
    asked = world.budget.asked
    assert await world.claim() == Denied("hold", 0, 0, 60.0, hold=hold)
    assert world.budget.asked == asked
    world.group.advance(59.9)
    assert isinstance(await world.claim(), Denied)
    world.group.advance(0.1)
    assert isinstance(await world.claim(), Granted)
    assert world.held.local is None


async def test_hold_of_another_instance_never_holds_this_one(world: World) -> None:
    world.budget.error = "connection"
    assert await world.held.hold("b", "alice", "why", 60) == Unknown("connection")
    world.budget.error = None
    assert world.held.local is None
    assert world.held.local_of("b") is None
    assert isinstance(await world.claim(), Granted)


async def test_hold_counts_from_the_moment_it_is_asked_for(world: World) -> None:
    world.budget.hangs = True
    async with asyncio.TaskGroup() as tasks:
        claim = tasks.create_task(world.held.claim(_claim("1")))
        await world.budget.stuck()
        hold = tasks.create_task(world.held.hold("", "alice", "why", 60))
        await asyncio.sleep(0)
        assert world.held.local is not None
        world.budget.heal()
    assert isinstance(hold.result(), Hold)
    assert isinstance(claim.result(), Denied)


async def test_hold_that_was_given_up_waiting_for_stays_here(world: World) -> None:
    world.budget.hangs = True
    task = asyncio.create_task(world.held.hold("", "alice", "why", 60))
    await world.budget.stuck()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    world.budget.heal()
    assert isinstance(await world.claim(), Denied)


async def test_shorter_hold_replaces_the_local_one(world: World) -> None:
    world.budget.error = "timeout"
    await world.held.hold("", "alice", "for long", 3600)
    world.budget.error = None
    await world.held.hold("", "bob", "for short", 10)
    world.group.advance(10)
    assert isinstance(await world.claim(), Granted)


async def test_beat_tells_of_the_local_hold(world: World) -> None:
    world.budget.error = "timeout"
    await world.held.hold("", "alice", "why", 60)
    assert await world.held.beat(_beat()) == Unknown("timeout")
    world.budget.error = None
    fleet = await world.held.beat(_beat())
    assert isinstance(fleet, Fleet)
    assert fleet.hold == world.held.local


async def test_beat_tells_of_the_shared_hold_first(world: World) -> None:
    shared = await world.other().hold("", "bob", "for all", 60)
    world.budget.error = "timeout"
    await world.held.hold("a", "alice", "here", 60)
    world.budget.error = None
    fleet = await world.held.beat(_beat())
    assert isinstance(fleet, Fleet)
    assert fleet.hold == shared


@pytest.mark.parametrize(
    ("held", "stored", "error", "answer"),
    [
        pytest.param(False, False, None, False, id="nothing to release"),
        pytest.param(False, True, None, True, id="shared"),
        pytest.param(True, False, None, True, id="local"),
        pytest.param(True, True, None, True, id="both"),
        pytest.param(True, False, "timeout", Unknown("timeout"), id="local, and nobody knows of a shared one"),
        pytest.param(False, False, "timeout", Unknown("timeout"), id="nobody knows"),
    ],
)
async def test_release_ends_the_local_hold_and_tells_of_both(
    world: World, *, held: bool, stored: bool, error: str | None, answer: bool | Unknown
) -> None:
    if held:
        world.budget.error = "timeout"
        await world.held.hold("", "alice", "why", 60)
    if stored:
        await world.other().hold("", "bob", "why", 60)
    world.budget.error = error
    assert await world.held.release("") == answer
    assert world.held.local is None


async def test_release_of_the_service_leaves_the_hold_of_the_instance(world: World) -> None:
    world.budget.error = "timeout"
    await world.held.hold("", "alice", "all", 60)
    await world.held.hold("a", "alice", "one", 60)
    assert world.held.local == world.held.local_of("")
    await world.held.release("")
    assert world.held.local == world.held.local_of("a") == Hold("alice", "one", START_S + 60, "a")
    await world.held.release("a")
    assert world.held.local is None


async def test_hold_that_is_over_is_not_released(world: World) -> None:
    world.budget.error = "timeout"
    await world.held.hold("", "alice", "why", 60)
    world.budget.error = None
    world.group.advance(60)
    assert await world.held.release("") is False
