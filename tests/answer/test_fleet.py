"""What an engineer is told of the fleet, in metrics and in lines."""

from __future__ import annotations

import logging
from dataclasses import replace

import pytest
from prometheus_client import CollectorRegistry, generate_latest

from sidecar.answer.fleet import FleetReadings, Line, changes
from sidecar.core.words import Brake, Fleet, Hold

INFO, WARNING, ERROR = logging.INFO, logging.WARNING, logging.ERROR
CALM = Fleet(10)
FREEZE = Hold("ann", "deploy", 1_700_000_000.0)
LOUD = Fleet(
    10,
    6,
    2,
    Brake.CLOSED,
    "redis",
    2,
    losses=3,
    helped=4,
    unhelped=5,
    unclear=6,
    useless=("mysql", "redis"),
    hold=FREEZE,
    away=("redis://b: timeout",),
    retiring=2,
    culls_by=(("helped", "mysql", 1), ("helped", "redis", 3)),
)


def board(fleet: Fleet | None) -> CollectorRegistry:
    registry = CollectorRegistry()
    registry.register(FleetReadings(lambda: fleet))
    return registry


# -- metrics ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "labels", "calm", "loud"),
    [
        ("arbiter_fleet_alive", {}, 10, 10),
        ("arbiter_fleet_wanting", {}, 0, 6),
        ("arbiter_fleet_down", {}, 0, 2),
        ("arbiter_fleet_policies", {}, 1, 2),
        ("arbiter_redis_servers_away", {}, 0, 1),
        ("arbiter_brake", {"phase": "off"}, 1, 0),
        ("arbiter_brake", {"phase": "on"}, 0, 0),
        ("arbiter_brake", {"phase": "open"}, 0, 0),
        ("arbiter_brake", {"phase": "closed"}, 0, 1),
        ("arbiter_hold_until_timestamp_seconds", {}, 0, FREEZE.until),
        ("arbiter_engineer_needed", {"reason": "brake"}, 0, 1),
        ("arbiter_engineer_needed", {"reason": "useless"}, 0, 1),
        ("arbiter_fleet_culls_total", {"outcome": "helped", "kind": ""}, 0, None),
        ("arbiter_fleet_culls_total", {"outcome": "unhelped", "kind": ""}, 0, 5),
        ("arbiter_fleet_culls_total", {"outcome": "unclear", "kind": ""}, 0, 6),
        ("arbiter_fleet_culls_total", {"outcome": "helped", "kind": "redis"}, None, 3),
        ("arbiter_fleet_culls_total", {"outcome": "helped", "kind": "mysql"}, None, 1),
        ("arbiter_fleet_retiring", {}, 0, 2),
        ("arbiter_fleet_same_cause", {"kind": "redis"}, None, 1),
        ("arbiter_memory_losses_total", {}, 0, 3),
    ],
)
def test_fleet_is_read_at_the_scrape(name: str, labels: dict[str, str], calm: float | None, loud: float | None) -> None:
    assert [board(fleet).get_sample_value(name, labels) for fleet in (CALM, LOUD)] == [calm, loud]


def test_no_other_sample_is_on_the_page() -> None:
    samples = [sample for family in board(LOUD).collect() for sample in family.samples]
    assert len(samples) == 19


def test_without_a_shared_cause_no_kind_is_named() -> None:
    families = {family.name: family.samples for family in board(CALM).collect()}
    assert families["arbiter_fleet_same_cause"] == []


def test_fleet_that_is_not_known_has_no_samples() -> None:
    assert generate_latest(board(None)) == b""


def test_registering_reads_nothing() -> None:
    def unread() -> Fleet | None:
        raise AssertionError("read before the first scrape")

    assert list(FleetReadings(unread).describe()) == []
    CollectorRegistry().register(FleetReadings(unread))


@pytest.mark.parametrize(
    ("fleet", "needed"),
    [
        (replace(CALM, brake=Brake.ON), (0, 0)),
        (replace(CALM, brake=Brake.OPEN), (0, 0)),
        (replace(CALM, brake=Brake.CLOSED), (1, 0)),
        (replace(CALM, useless=("redis",)), (0, 1)),
    ],
    ids=["brake on", "canary helped", "canary did not help", "a kind that culls do not help with"],
)
def test_engineer_is_needed_where_nothing_will_get_well_by_itself(fleet: Fleet, needed: tuple[int, int]) -> None:
    read = board(fleet).get_sample_value
    assert (
        read("arbiter_engineer_needed", {"reason": "brake"}),
        read("arbiter_engineer_needed", {"reason": "useless"}),
    ) == needed


# -- lines --------------------------------------------------------------------------------------------------

NUMBERS: dict[str, object] = {"alive": 10, "wanting": 0, "down": 0}


@pytest.mark.parametrize(
    ("before", "after", "line"),
    [
        ({}, {"brake": Brake.ON, "cause": "redis"}, Line(WARNING, "brake on", {**NUMBERS, "cause": "redis"})),
        ({"brake": Brake.ON}, {"brake": Brake.OPEN}, Line(INFO, "brake open", {**NUMBERS, "cause": ""})),
        ({"brake": Brake.ON}, {"brake": Brake.CLOSED}, Line(ERROR, "brake closed", {**NUMBERS, "cause": ""})),
        ({"brake": Brake.CLOSED}, {"brake": Brake.OFF}, Line(INFO, "brake off", {**NUMBERS, "cause": ""})),
        (
            {},
            {"policies": 2},
            Line(
                WARNING,
                "sidecars of this service run with different policies, the strictest of each number holds",
                {"policies": 2},
            ),
        ),
        ({"losses": 1}, {"losses": 2}, Line(WARNING, "Redis lost the memory of former culls", NUMBERS)),
        (
            {},
            {"useless": ("mysql", "redis")},
            Line(WARNING, "kinds that culls do not help with", {"kinds": "mysql, redis"}),
        ),
        ({"useless": ("redis",)}, {}, Line(WARNING, "culls may help with every kind again", {"kinds": ""})),
        ({}, {"hold": FREEZE}, Line(WARNING, "held: ann holds the service: deploy", {"until": FREEZE.until})),
        (
            {"hold": FREEZE},
            {"hold": replace(FREEZE, instance="one")},
            Line(WARNING, "held: ann holds instance one: deploy", {"until": FREEZE.until}),
        ),
        ({"hold": FREEZE}, {}, Line(WARNING, "no hold any more", {})),
        (
            {},
            {"away": ("redis://b: timeout",)},
            Line(WARNING, "Redis servers are away, and their share of the budget", {"away": "redis://b: timeout"}),
        ),
        ({"away": ("redis://b: timeout",)}, {}, Line(INFO, "all Redis servers are back", {})),
    ],
    ids=[
        "brake on",
        "brake open",
        "brake closed",
        "brake off",
        "policies differ",
        "memory lost",
        "useless kinds",
        "useful again",
        "held",
        "held otherwise",
        "released",
        "a server away",
        "all back",
    ],
)
def test_each_change_is_a_line(before: dict[str, object], after: dict[str, object], line: Line) -> None:
    assert list(changes(replace(CALM, **before), replace(CALM, **after))) == [line]  # type: ignore[arg-type]  # a table


@pytest.mark.parametrize(
    ("before", "after"),
    [
        (CALM, replace(CALM, alive=9, wanting=1, down=1, cause="redis", helped=1, unhelped=1, unclear=1)),
        (replace(CALM, policies=2), CALM),
        (replace(CALM, losses=2), replace(CALM, losses=1)),
        (None, CALM),
        (None, replace(CALM, losses=7)),
    ],
    ids=["numbers", "policies alike again", "losses forgotten", "first answer", "losses before our time"],
)
def test_what_is_in_the_metrics_alone_is_no_line(before: Fleet | None, after: Fleet) -> None:
    assert list(changes(before, after)) == []


def test_first_answer_tells_what_is_out_of_the_ordinary() -> None:
    assert [line.level for line in changes(None, LOUD)] == [ERROR, WARNING, WARNING, WARNING, WARNING]
    assert list(changes(LOUD, LOUD)) == []
