"""Holds that a sidecar keeps by itself: what Redis could not take counts here, and what it has lost is noticed."""

from __future__ import annotations

import asyncio

import pytest

from harness.claims import S, beat, claim, lease, suspect
from harness.server_group import START_US, ServerGroup, outcome
from sidecar.core.claims import Denied, Fleet, Unknown
from sidecar.core.fleet.view import BeatReply, Edits
from sidecar.core.types import Hold
from sidecar.store.holds import StoredHolds
from store.test_budget import SAFE, SETTLED_S, fleet_of, member_list_of

START_S = START_US / S


@pytest.mark.parametrize("instance", ["", "a"], ids=["service", "own instance"])
async def test_hold_that_the_budget_cannot_keep_denies_here_until_it_is_over(instance: str) -> None:
    group = ServerGroup()
    budget = group.sidecar("a")
    group.server.fails = "connection"
    assert await budget.hold(instance, "alice", "why", 60) == Unknown("connection")
    group.server.fails = ""
    hold, asked = Hold("alice", "why", START_S + 60, instance), group.server.calls.total()
    assert budget.local_holds.in_force == hold
    assert await budget.claim(claim("a")) == Denied("hold", 0, 0, 60.0, hold=hold)
    assert await budget.retire(lease("a")) == Denied("hold", 0, 0, 60.0, hold=hold)
    assert group.server.calls.total() == asked
    group.advance(59.9)
    assert outcome(await budget.claim(claim("a"))) == "hold"
    group.advance(0.1)
    assert outcome(await budget.claim(claim("a"))) == "granted"
    assert budget.local_holds.in_force is None


async def test_hold_of_another_instance_never_holds_this_one() -> None:
    group = ServerGroup()
    budget = group.sidecar("a")
    group.server.fails = "connection"
    assert await budget.hold("b", "alice", "why", 60) == Unknown("connection")
    assert (budget.local_holds.in_force, budget.local_holds.of("b")) == (None, None)


async def test_hold_counts_from_the_moment_it_is_asked_for() -> None:
    group = ServerGroup()
    budget = group.sidecar("a")
    group.server.hang()
    async with asyncio.TaskGroup() as tasks:
        claiming = tasks.create_task(budget.claim(claim("a")))
        await group.server.stuck()
        holding = tasks.create_task(budget.hold("", "alice", "why", 60))
        await asyncio.sleep(0)
        assert budget.local_holds.in_force is not None
        group.server.heal()
    assert isinstance(holding.result(), Hold)
    assert outcome(claiming.result()) == "hold"


async def test_beat_tells_of_the_local_hold() -> None:
    group = ServerGroup()
    budget = group.sidecar("a")
    group.server.fails = "timeout"
    await budget.hold("", "alice", "why", 60)
    assert await budget.beat(beat("a")) == Unknown("timeout")
    group.server.fails = ""
    fleet = await budget.beat(beat("a"))
    assert isinstance(fleet, Fleet)
    assert fleet.hold == budget.local_holds.in_force


@pytest.mark.parametrize(
    ("held", "stored", "error", "answer"),
    [
        pytest.param(False, False, "", False, id="nothing to release"),
        pytest.param(False, True, "", True, id="shared"),
        pytest.param(True, False, "", True, id="local"),
        pytest.param(True, False, "timeout", Unknown("timeout"), id="local, and nobody knows of a shared one"),
        pytest.param(False, False, "timeout", Unknown("timeout"), id="nobody knows"),
    ],
)
async def test_release_ends_the_local_hold_and_tells_of_both(
    *, held: bool, stored: bool, error: str, answer: bool | Unknown
) -> None:
    group = ServerGroup()
    budget = group.sidecar("a")
    if held:
        group.server.fails = "timeout"
        await budget.hold("", "alice", "why", 60)
    if stored:
        await group.sidecar().hold("", "bob", "why", 60)
    group.server.fails = error
    assert await budget.release("") == answer
    assert budget.local_holds.in_force is None


async def test_release_of_the_service_leaves_the_hold_of_the_instance() -> None:
    group = ServerGroup()
    budget = group.sidecar("a")
    holds = budget.local_holds
    group.server.fails = "timeout"
    await budget.hold("", "alice", "all", 60)
    await budget.hold("a", "alice", "one", 60)
    assert holds.in_force == holds.of("")
    await budget.release("")
    assert holds.in_force == holds.of("a") == Hold("alice", "one", START_S + 60, "a")
    await budget.release("a")
    assert holds.in_force is None


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
    holds = StoredHolds(600 * S)
    holds.take("a", BeatReply(START_US))
    holds.put(Hold("ann", "look", START_S + 61, scope), 60 * S)
    holds.take("a", BeatReply(START_US + S + after_us))
    assert (holds.has_unrecorded_loss, holds.lost is not None) == (is_lost, is_lost)


# -- holds that the server loses ---------------------------------------------------------------------------------


async def lose_holds(group: ServerGroup) -> None:
    """Have the server lose the key of the holds alone."""
    view = await group.server.content()
    await group.server.store.commit(view.revision, Edits(holds=dict.fromkeys(view.holds)))


@pytest.mark.parametrize("scope", ["", "a"], ids=["of the service", "of the instance"])
@pytest.mark.parametrize("has_set_it", [True, False], ids=["that set it", "that saw it"])
async def test_hold_that_is_lost_is_told_by_the_sidecar(scope: str, *, has_set_it: bool) -> None:
    group = ServerGroup(terms=SAFE)
    person, sidecar = group.sidecar(), group.sidecar()
    await sidecar.beat(beat("a", first=True))
    group.advance(SETTLED_S)
    await sidecar.beat(beat("a"))
    held = await (sidecar if has_set_it else person).hold(scope, "ann", "a deployment", 3600)
    if not has_set_it:
        assert (await fleet_of(sidecar, beat("a"))).hold == held
    await lose_holds(group)
    group.advance(10)
    fleet = await fleet_of(sidecar, suspect("a"))
    assert (fleet.hold, fleet.lost_hold, fleet.losses) == (None, held, 1)
    assert (await member_list_of(sidecar)).fleet.lost_hold == held
    assert outcome(await sidecar.claim(claim("a"))) == "data_loss", "whoever froze the culls has not allowed them again"
    group.advance(601)
    fleet = await fleet_of(sidecar, suspect("a"))
    assert (fleet.lost_hold, fleet.losses) == (held, 1)
    again = await person.hold(scope, "ann", "a deployment", 60)
    assert (await fleet_of(sidecar, beat("a"))).lost_hold is None
    group.advance(61)
    fleet = await fleet_of(sidecar, beat("a"))
    assert (isinstance(again, Hold), fleet.hold, fleet.lost_hold, fleet.losses) == (True, None, None, 1)


@pytest.mark.parametrize("how", ["released", "over", "nobody was there for a window"])
async def test_hold_that_ends_is_not_lost(how: str) -> None:
    group = ServerGroup(terms=SAFE)
    person, sidecar = group.sidecar(), group.sidecar()
    await person.hold("", "ann", "a deployment", 60 if how == "over" else 3600)
    await sidecar.beat(beat("a", first=True))
    if how == "released":
        assert await person.release("") is True
    elif how == "over":
        group.advance(61)
    else:
        await lose_holds(group)
        group.advance(601)
    for _ in range(70):
        group.advance(10)
        fleet = await fleet_of(sidecar, beat("a"))
        assert (fleet.lost_hold, fleet.losses) == (None, 0)
