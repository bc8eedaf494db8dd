from __future__ import annotations

import asyncio

import pytest

from harness.claims import S
from harness.server_group import START_US, ServerGroup
from sidecar.core.fleet.view import BeatReply
from sidecar.core.types import Answer, Beat, Claim, Denied, Fleet, Granted, Hold, Presence, Unknown
from sidecar.store.budget import FleetBudget
from sidecar.store.own_holds import SeenHolds

START_S = START_US / S


class World:
    """One time, one store in it, and sidecar ``a``."""

    def __init__(self) -> None:
        self.group = ServerGroup()
        self.server = self.group.server
        self.budget = self.group.sidecar("a")

    def other(self) -> FleetBudget:
        return self.group.sidecar()

    async def claim(self, claim_id: str = "1") -> Answer:
        return await self.budget.claim(_claim(claim_id))


def _claim(claim_id: str) -> Claim:
    return Claim(claim_id, "a", f"life-{claim_id}")


def _beat(presence: Presence = Presence.WELL) -> Beat:
    return Beat("a", "life-1", presence)


@pytest.fixture
async def world() -> World:
    return World()


@pytest.mark.parametrize("instance", ["", "a"], ids=["service", "own instance"])
async def test_hold_that_the_budget_cannot_keep_denies_here_until_it_is_over(world: World, instance: str) -> None:
    world.server.fails = "connection"
    assert await world.budget.hold(instance, "alice", "why", 60) == Unknown("connection")
    world.server.fails = ""
    hold = Hold("alice", "why", START_S + 60, instance)
    assert world.budget.local_holds.in_force == hold
    asked = world.server.calls.total()
    assert await world.claim() == Denied("hold", 0, 0, 60.0, hold=hold)
    assert world.server.calls.total() == asked
    world.group.advance(59.9)
    assert isinstance(await world.claim(), Denied)
    world.group.advance(0.1)
    assert isinstance(await world.claim(), Granted)
    assert world.budget.local_holds.in_force is None


async def test_hold_counts_from_the_moment_it_is_asked_for(world: World) -> None:
    world.server.hang()
    async with asyncio.TaskGroup() as tasks:
        claim = tasks.create_task(world.budget.claim(_claim("1")))
        await world.server.stuck()
        hold = tasks.create_task(world.budget.hold("", "alice", "why", 60))
        await asyncio.sleep(0)
        assert world.budget.local_holds.in_force is not None
        world.server.heal()
    assert isinstance(hold.result(), Hold)
    assert isinstance(claim.result(), Denied)


async def test_beat_tells_of_the_local_hold(world: World) -> None:
    world.server.fails = "timeout"
    await world.budget.hold("", "alice", "why", 60)
    assert await world.budget.beat(_beat()) == Unknown("timeout")
    world.server.fails = ""
    fleet = await world.budget.beat(_beat())
    assert isinstance(fleet, Fleet)
    assert fleet.hold == world.budget.local_holds.in_force


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
        world.server.fails = "timeout"
        await world.budget.hold("", "alice", "why", 60)
    if stored:
        await world.other().hold("", "bob", "why", 60)
    world.server.fails = error or ""
    assert await world.budget.release("") == answer
    assert world.budget.local_holds.in_force is None


async def test_release_of_the_service_leaves_the_hold_of_the_instance(world: World) -> None:
    world.server.fails = "timeout"
    await world.budget.hold("", "alice", "all", 60)
    await world.budget.hold("a", "alice", "one", 60)
    assert world.budget.local_holds.in_force == world.budget.local_holds.of("")
    await world.budget.release("")
    assert (
        world.budget.local_holds.in_force == world.budget.local_holds.of("a") == Hold("alice", "one", START_S + 60, "a")
    )
    await world.budget.release("a")
    assert world.budget.local_holds.in_force is None


@pytest.mark.parametrize(
    ("scope", "after_us", "is_lost"),
    [
        pytest.param("", 1, True, id="of the service"),
        pytest.param("a", 1, True, id="of the instance"),
        pytest.param("b", 1, False, id="of another instance"),
        pytest.param("", 0, False, id="of a beat that was on its way"),
    ],
)
def test_hold_that_this_sidecar_has_set_is_missed_by_its_later_beats(
    scope: str, after_us: int, *, is_lost: bool
) -> None:
    seen = SeenHolds(600 * S)
    seen.take("a", BeatReply(START_US))
    seen.put(Hold("ann", "look", START_S + 61, scope), 60 * S)
    seen.take("a", BeatReply(START_US + S + after_us))
    assert (seen.has_news, seen.lost is not None) == (is_lost, is_lost)
