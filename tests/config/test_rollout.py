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
from sidecar.config import rollout
from sidecar.config.load import load
from sidecar.config.settings import Config
from sidecar.core.types import Claim, Denied, Hold, Unknown
from sidecar.store.budget import FleetBudget

if TYPE_CHECKING:
    from harness.redis_server import RedisServer

TOP = Path(__file__).parents[2]
INSTANCES = [f"web-{number}" for number in range(1_000)]
NOW_S = START_US / S
AT_ALL_PERCENTS = range(101)
PATIENT = {"redis_timeout": "5s"}


def _config(**flags: object) -> Config:
    return load({name: str(value) for name, value in flags.items()}, {})


def _is_enforced(service: str, instance: str, percent: int) -> bool:
    return rollout.own_mode("enforce", service, instance, percent) == "enforce"


def _at(place: int) -> str:
    """An instance of the service ``app`` with this place."""
    return next(name for name in INSTANCES if rollout.place("app", name) == place)


# -- who enforces -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("service", "instance", "place"),
    [("app", "web-0", 72), ("app", "web-1", 3), ("shop.web", "web-1", 81), ("app", "", 69)],
)
def test_place_never_changes(service: str, instance: str, place: int) -> None:
    assert rollout.place(service, instance) == place


def test_line_for_the_shell_says_the_same_wherever_it_stands() -> None:
    shell = shutil.which("bash")
    assert shell is not None
    (line,) = (line.strip() for line in (rollout.__doc__ or "").splitlines() if "sha256sum" in line)
    assert line in (TOP / "deploy" / "access.md").read_text()
    for instance in INSTANCES[:3]:
        ran = subprocess.run(
            [shell, "-c", line],
            env={"SERVICE": "app", "INSTANCE": instance},
            capture_output=True,
            text=True,
            check=True,
        )
        assert int(ran.stdout) == rollout.place("app", instance)


def test_higher_percentage_only_adds_containers() -> None:
    parts = [{name for name in INSTANCES if _is_enforced("app", name, percent)} for percent in AT_ALL_PERCENTS]
    assert all(less <= more for less, more in pairwise(parts))
    assert parts[0] == set()
    assert parts[100] == set(INSTANCES)


# -- the mode of this container ------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("mode", "percent", "place", "effective"),
    [
        ("enforce", 100, 99, "enforce"),
        ("enforce", 50, 49, "enforce"),
        ("enforce", 50, 50, "shadow"),
        ("enforce", 0, 0, "shadow"),
        ("shadow", 100, 0, "shadow"),
    ],
)
def test_mode_of_the_configuration_is_that_of_this_container(
    mode: str, percent: int, place: int, effective: str
) -> None:
    config = _config(mode=mode, alone=True, enforce_percent=percent, instance=_at(place))
    assert (config.identity.mode, config.identity.enforce_percent) == (effective, percent)


@pytest.mark.parametrize(("place", "suffix"), [(49, ""), (50, ":shadow")])
def test_each_part_has_a_budget_of_its_own(place: int, suffix: str) -> None:
    config = _config(alone=True, enforce_percent=50, instance=_at(place))
    assert build_store.prefix(config) == f"{{ha:default/app}}{suffix}"


# -- orders reach both parts --------------------------------------------------------------------------------


class World:
    """The two budgets of a service, and a sidecar ``a`` with one of them."""

    def __init__(self) -> None:
        self.parts = {"own": ServerGroup(), "other": ServerGroup()}
        self.budget = self.parts["own"].sidecar("a", other=self.parts["other"].sidecar)


@pytest.fixture
async def world() -> World:
    return World()


async def _is_held(budget: FleetBudget) -> bool:
    answer = await budget.claim(Claim("b/1", "b", "1"))
    return isinstance(answer, Denied) and answer.reason == "hold"


@pytest.mark.parametrize("part", ["own", "other"])
async def test_hold_and_its_end_reach_both_parts(world: World, part: str) -> None:
    assert await world.budget.hold("", "alice", "why", 60) == Hold("alice", "why", NOW_S + 60)
    assert await _is_held(world.parts[part].sidecar())
    assert await world.budget.release("") is True
    assert not await _is_held(world.parts[part].sidecar())


@pytest.mark.parametrize("part", ["own", "other"])
async def test_release_tells_of_a_hold_of_either_part(world: World, part: str) -> None:
    await world.parts[part].sidecar().hold("", "alice", "why", 60)
    assert await world.budget.release("") is True
    assert await world.budget.release("") is False


@pytest.mark.parametrize("cut", ["own", "other"])
async def test_order_that_one_part_does_not_know_of_is_no_order_that_is_stored(world: World, cut: str) -> None:
    world.parts[cut].server.fails = "timeout"
    assert await world.budget.hold("", "alice", "why", 60) == Unknown("timeout")
    assert world.budget.local_holds.in_force is not None
    assert await world.budget.release("") == Unknown("timeout")


@pytest.mark.parametrize(
    ("flags", "keys"),
    [
        ({}, ["{ha:default/app}:holds"]),
        ({"enforce_percent": 0}, ["{ha:default/app}:holds", "{ha:default/app}:shadow:holds"]),
        ({"mode": "shadow"}, ["{ha:default/app}:holds", "{ha:default/app}:shadow:holds"]),
    ],
    ids=["all enforce", "none does", "all are in shadow"],
)
async def test_order_goes_to_every_part_that_there_may_be(
    redis_server: RedisServer, flags: dict[str, object], keys: list[str]
) -> None:
    held = build_store.budget(_config(redis_url=redis_server.url, **PATIENT, **flags), lambda _error: None)
    assert isinstance(await held.hold("", "alice", "why", 60), Hold)
    await held.aclose()
    assert sorted(redis_server.cli("KEYS", "*:holds")) == keys
