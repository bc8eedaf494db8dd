"""Orders reach the containers that enforce and those that do not."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from harness.claims import S
from harness.server_group import START_US, ServerGroup
from sidecar.app import build_store
from sidecar.config.load import load
from sidecar.core.claims import Claim, Denied, Unknown
from sidecar.core.types import Hold

if TYPE_CHECKING:
    from harness.redis_server import RedisServer
    from sidecar.store.budget import FleetBudget


class World:
    """The two budgets of a service, and a sidecar ``a`` with one of them."""

    def __init__(self) -> None:
        self.parts = {"own": ServerGroup(), "other": ServerGroup()}
        self.budget = self.parts["own"].sidecar("a", other=self.parts["other"].sidecar)


async def _is_held(budget: FleetBudget) -> bool:
    answer = await budget.claim(Claim("b/1", "b", "1"))
    return isinstance(answer, Denied) and answer.reason == "hold"


@pytest.mark.parametrize("part", ["own", "other"])
async def test_hold_and_its_end_reach_both_parts(part: str) -> None:
    world = World()
    assert await world.budget.hold("", "alice", "why", 60) == Hold("alice", "why", START_US / S + 60)
    assert await _is_held(world.parts[part].sidecar())
    assert await world.budget.release("") is True
    assert not await _is_held(world.parts[part].sidecar())
    await world.parts[part].sidecar().hold("", "alice", "why", 60)
    assert [await world.budget.release("") for _ in range(2)] == [True, False]


@pytest.mark.parametrize("cut", ["own", "other"])
async def test_order_that_one_part_does_not_know_of_is_no_order_that_is_stored(cut: str) -> None:
    world = World()
    world.parts[cut].server.fails = "timeout"
    assert await world.budget.hold("", "alice", "why", 60) == Unknown("timeout")
    assert world.budget.local_holds.in_force is not None
    assert await world.budget.release("") == Unknown("timeout")


@pytest.mark.parametrize(
    ("flags", "keys"),
    [
        ({}, ["{ha:default/app}:holds"]),
        ({"enforce_percent": "0"}, ["{ha:default/app}:holds", "{ha:default/app}:shadow:holds"]),
        ({"mode": "shadow"}, ["{ha:default/app}:holds", "{ha:default/app}:shadow:holds"]),
    ],
    ids=["all enforce", "none does", "all are in shadow"],
)
async def test_order_goes_to_every_part_that_there_may_be(
    redis_server: RedisServer, flags: dict[str, str], keys: list[str]
) -> None:
    config = load({"redis_url": redis_server.url, "redis_timeout": "5s", **flags}, {})
    held = build_store.budget(config, lambda _error: None)
    assert isinstance(await held.hold("", "alice", "why", 60), Hold)
    await held.aclose()
    assert sorted(redis_server.cli("KEYS", "*:holds")) == keys
