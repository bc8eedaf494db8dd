"""The budget of a configuration: its terms, its servers, and its behaviour with and without Redis."""

from __future__ import annotations

import json
import subprocess
import sys
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from harness.claims import beat, claim, down, lease, suspect
from sidecar.app import build_store
from sidecar.config.load import load
from sidecar.core.claims import CauseTrial, Claim, Denied, Fleet, Granted, Unknown
from sidecar.core.fleet.fleet_settings import FleetSettings, Share
from sidecar.core.fleet.rotation import RotationPlan
from sidecar.core.types import Hold
from sidecar.store.budget import Counter

if TYPE_CHECKING:
    from sidecar.config.settings import Config

TOP = Path(__file__).parents[2]
CLAIM = Claim("shop/one/boot", "one", "boot")


def settings(**flags: str) -> Config:
    return load({"alone": "true", **flags}, {})


def terms(**flags: str) -> FleetSettings:
    config = settings(**flags)
    return build_store.fleet_settings(config)


# -- terms --------------------------------------------------------------------------------------------------


REDIS = {"redis_url": "redis://host"}


def test_defaults_of_settings_and_terms_are_the_same() -> None:
    found = terms(**REDIS)
    assert found == FleetSettings(refund_max=0, servers=found.servers, error_limit=5)


def test_sidecar_without_redis_keeps_no_floor_and_loses_no_memory() -> None:
    found = terms()
    assert (found.min_healthy, found.after_loss_wait, found.servers) == ("0", False, "")
    assert found.trial


# -- the address of Redis -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("one", "other", "same"),
    [
        ("redis+cluster://a,b", "redis+cluster://b,a", True),
        ("redis://:secret@a", "redis://:changed@a", True),
        ("redis://a", "redis://a/1", False),
        ("redis://a", "redis://b", False),
    ],
    ids=["another order", "another password", "another database", "another host"],
)
def test_another_address_of_redis_is_another_digest(one: str, other: str, *, same: bool) -> None:
    digests = [terms(redis_url=url).servers for url in (one, other)]
    assert (digests[0] == digests[1]) is same
    assert not any(word in digest for digest in digests for word in ("redis", "secret", "a:"))


def test_digest_of_the_address_is_that_of_the_version_before() -> None:
    """Or sidecars of both would take each other for a fleet that has moved, and grant nothing."""
    assert terms(redis_url="redis://:secret@redis.internal:6380/2").servers == "14e457e9e97e"


@pytest.mark.parametrize(
    ("own", "mode", "prefix"),
    [
        ("shadow", "", "{ha:default/web}:shadow"),
        ("shadow", "enforce", "{ha:default/web}"),
        ("enforce", "shadow", "{ha:default/web}:shadow"),
    ],
)
def test_keys_are_those_of_the_own_mode_unless_another_is_named(own: str, mode: str, prefix: str) -> None:
    assert build_store.prefix(settings(service="web", mode=own), mode) == prefix


@pytest.mark.parametrize(
    ("flags", "at", "counter"),
    [
        ({}, (10, 0, 0), ("errorWatcher:0", 600, 600.0)),
        ({}, (10, 9, 59), ("errorWatcher:0", 600, 1.0)),
        ({}, (10, 10, 0), ("errorWatcher:1", 600, 600.0)),
        ({"budget_window": "5m", "mode": "shadow"}, (10, 59, 30), ("errorWatcher:shadow:11", 300, 30.0)),
    ],
    ids=["first of the hour", "its end", "second of the hour", "shadow"],
)
def test_article_s_windows_are_numbered_within_the_hour(
    flags: dict[str, str], at: tuple[int, int, int], counter: tuple[str, int, float]
) -> None:
    found = build_store.article_counter(
        settings(preset="classdojo", **flags), "", lambda: datetime(2026, 11, 22, *at, tzinfo=UTC)
    )
    assert found == Counter(*counter)


# -- the budget ---------------------------------------------------------------------------------------------


async def test_without_redis_the_budget_is_of_this_process_and_knows_no_fleet() -> None:
    failures: list[Exception] = []
    held = build_store.budget(settings(budget="1", trial="off"), failures.append)
    fleet = await held.beat(suspect("one"))
    assert isinstance(fleet, Fleet)
    assert (fleet.alive, fleet.suspect, fleet.capacity) == (1, 1, 1)
    assert await held.claim(claim("one")) == Granted(1, 1, alive=1, suspect=1)
    refused = await held.claim(claim("two"))
    assert isinstance(refused, Denied)
    assert (refused.reason, refused.used, refused.capacity) == ("window", 1, 1)
    await held.aclose()
    assert failures == []


async def test_without_redis_a_cull_that_did_not_help_still_pauses_its_cause() -> None:
    held = build_store.budget(settings(), lambda _error: None)
    await held.beat(suspect("one"))
    await held.claim(claim("one"))
    await held.beat(down("one"))
    await held.beat(beat("one", life="2"))
    fleet = await held.beat(suspect("one", life="2"))
    assert isinstance(fleet, Fleet)
    (trial,) = fleet.trials
    assert trial == CauseTrial("redis", 1, 0, trial.paused_s, 1, trial.since)
    assert fleet.paused == ("redis",)
    assert await held.release("") == Unknown("alone")
    assert isinstance(await held.claim(claim("one", life="2")), Granted)


async def test_operator_may_hold_a_sidecar_that_is_alone() -> None:
    held = build_store.budget(settings(), lambda _error: None)
    assert await held.hold("", "ann", "look", 60.0) == Unknown("alone")
    refused = await held.claim(CLAIM)
    assert isinstance(refused, Denied)
    assert isinstance(refused.hold, Hold)
    assert refused.hold.author == "ann"
    assert isinstance(await held.retire(lease("one")), Denied)
    assert await held.release("") == Unknown("alone")
    assert isinstance(await held.claim(CLAIM), Granted)


async def test_sidecar_that_is_alone_shows_no_fleet_and_has_no_leases() -> None:
    held = build_store.budget(settings(), lambda _error: None)
    assert [await held.member_list(), await held.retire(lease("one"))] == [Unknown("alone")] * 2


IMPORTS = """
import asyncio, json, sys
from sidecar.app import build_store
from sidecar.config.load import load

async def story():
    held = build_store.budget(load({"redis_url": sys.argv[1]}, {}), print)
    await held.aclose()

asyncio.run(story())
print(json.dumps([name for name in sys.modules if name.split(".")[0] == "redis"]))
"""


@pytest.mark.parametrize("url", ["", "redis://127.0.0.1:1"])
def test_nothing_of_redis_is_imported_before_the_budget_is_asked(url: str) -> None:
    ran = subprocess.run(
        [sys.executable, "-c", IMPORTS, url], cwd=TOP, capture_output=True, text=True, timeout=90, check=True
    )
    assert json.loads(ran.stdout) == []


# -- how the fleet retires --------------------------------------------------------------------------------------------

HALF = Share(500, is_part=True)


@pytest.mark.parametrize(
    ("flags", "plan"),
    [
        ({}, RotationPlan(0.0, Share(1), 60.0, HALF)),
        (
            {"lifetime": "6h", "redis_url": "redis://a", "retire_slots": "2"},
            RotationPlan(21_600.0, Share(2), 60.0, HALF),
        ),
        (
            {"drain": "90s", "retire_slots": "10%"},
            RotationPlan(0.0, Share(100, is_part=True), 90.0, HALF),
        ),
        ({"min_healthy": "3"}, RotationPlan(0.0, Share(1), 60.0, Share(3))),
    ],
    ids=["never", "two at once", "a part at once, and none is replaced before it has drained", "another floor"],
)
def test_plan_is_that_of_the_settings(flags: dict[str, str], plan: RotationPlan) -> None:
    assert build_store.rotation_plan(load(flags, {})) == plan
