"""Which containers enforce, and that an order reaches those that do and those that do not."""

from __future__ import annotations

import shutil
import subprocess
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from harness.claims import S
from harness.server_group import START_US, ServerGroup
from sidecar.app import build_store
from sidecar.config.load import load
from sidecar.config.settings import IdentityConfig
from sidecar.core.claims import Claim, Denied, Unknown
from sidecar.core.types import Hold

if TYPE_CHECKING:
    from harness.redis_server import RedisServer
    from sidecar.store.budget import FleetBudget

TOP = Path(__file__).parents[2]
INSTANCES = [f"web-{number}" for number in range(1_000)]


def _named(service: str, instance: str, percent: int = 100) -> IdentityConfig:
    return IdentityConfig(service=service, instance=instance, mode="enforce", enforce_percent=percent)


def _at(place: int) -> str:
    """An instance of the service ``app`` with this place."""
    return next(name for name in INSTANCES if _named("app", name).place == place)


@pytest.mark.parametrize(
    ("service", "instance", "place"),
    [("app", "web-0", 72), ("app", "web-1", 3), ("shop.web", "web-1", 81), ("app", "", 69)],
)
def test_place_never_changes(service: str, instance: str, place: int) -> None:
    assert _named(service, instance).place == place


def test_line_for_the_shell_says_the_same_wherever_it_stands() -> None:
    shell = shutil.which("bash")
    assert shell is not None
    (line,) = (line.strip() for line in (IdentityConfig.place.__doc__ or "").splitlines() if "sha256sum" in line)
    assert line in (TOP / "deploy" / "access.md").read_text()
    environ = {"SERVICE": "app", "INSTANCE": "web-0"}
    ran = subprocess.run([shell, "-c", line], env=environ, capture_output=True, text=True, check=True)
    assert int(ran.stdout) == _named("app", "web-0").place


def test_higher_percentage_only_adds_containers() -> None:
    parts = [
        {
            name
            for name in INSTANCES
            if _named("app", name)._replace(mode="enforce", enforce_percent=percent).own_mode == "enforce"
        }
        for percent in range(101)
    ]
    assert all(less <= more for less, more in pairwise(parts))
    assert (parts[0], parts[100]) == (set(), set(INSTANCES))


@pytest.mark.parametrize(
    ("mode", "percent", "place", "effective", "suffix"),
    [
        ("enforce", 100, 99, "enforce", ""),
        ("enforce", 50, 49, "enforce", ""),
        ("enforce", 50, 50, "shadow", ":shadow"),
        ("enforce", 0, 0, "shadow", ":shadow"),
        ("shadow", 100, 0, "shadow", ":shadow"),
    ],
)
def test_each_container_has_its_mode_and_each_mode_a_budget_of_its_own(
    mode: str, percent: int, place: int, effective: str, suffix: str
) -> None:
    config = load({"mode": mode, "alone": "true", "enforce_percent": str(percent), "instance": _at(place)}, {})
    assert (config.identity.mode, config.identity.enforce_percent) == (effective, percent)
    assert build_store.prefix(config) == f"{{ha:default/app}}{suffix}"


# -- orders reach both parts --------------------------------------------------------------------------------


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
