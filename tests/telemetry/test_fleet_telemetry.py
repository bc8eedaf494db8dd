"""The fleet in the metrics and in the log."""

from __future__ import annotations

import logging
from dataclasses import replace

import pytest
from prometheus_client import CollectorRegistry, generate_latest

from sidecar.core.explain import reasons
from sidecar.core.types import CauseTrial, Fleet, Hold
from sidecar.telemetry.fleet_telemetry import FleetReadings, Line, changes

INFO, WARNING = logging.INFO, logging.WARNING
CALM = Fleet(10)
FREEZE = Hold("ann", "deploy", 1_700_000_000.0)
TRIED = CauseTrial("mysql", 2, 1)
PAUSED = CauseTrial("redis", 1, 0, 540.0, 2)
LOUD = Fleet(
    10,
    6,
    2,
    "redis",
    (TRIED, PAUSED),
    2,
    losses=3,
    helped=4,
    unhelped=5,
    unclear=6,
    hold=FREEZE,
    retiring=2,
    culls_by=(("helped", "mysql", 1), ("helped", "redis", 3)),
    median_errors=4,
    median_ratio=0.25,
    duplicate=True,
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
        ("arbiter_fleet_suspect", {}, 0, 6),
        ("arbiter_fleet_down", {}, 0, 2),
        ("arbiter_fleet_policies", {}, 1, 2),
        ("arbiter_fleet_median_errors", {}, None, 4),
        ("arbiter_trial_limit", {"cause": "mysql"}, None, 2),
        ("arbiter_trial_limit", {"cause": "redis"}, None, 1),
        ("arbiter_trial_out", {"cause": "mysql"}, None, 1),
        ("arbiter_trial_out", {"cause": "redis"}, None, 0),
        ("arbiter_cause_paused_seconds", {"cause": "mysql"}, None, 0),
        ("arbiter_cause_paused_seconds", {"cause": "redis"}, None, 540),
        ("arbiter_hold_until_timestamp_seconds", {}, 0, FREEZE.until),
        ("arbiter_engineer_needed", {"reason": "paused"}, 0, 1),
        ("arbiter_fleet_culls_total", {"outcome": "helped", "kind": ""}, 0, None),
        ("arbiter_fleet_culls_total", {"outcome": "unhelped", "kind": ""}, 0, 5),
        ("arbiter_fleet_culls_total", {"outcome": "unclear", "kind": ""}, 0, 6),
        ("arbiter_fleet_culls_total", {"outcome": "helped", "kind": "redis"}, None, 3),
        ("arbiter_fleet_culls_total", {"outcome": "helped", "kind": "mysql"}, None, 1),
        ("arbiter_fleet_retiring", {}, 0, 2),
        ("arbiter_fleet_same_cause", {"kind": "redis"}, None, 1),
        ("arbiter_data_losses_total", {}, 0, 3),
    ],
)
def test_fleet_is_read_at_the_scrape(name: str, labels: dict[str, str], calm: float | None, loud: float | None) -> None:
    assert [board(fleet).get_sample_value(name, labels) for fleet in (CALM, LOUD)] == [calm, loud]


def test_no_other_sample_is_on_the_page() -> None:
    samples = [sample for family in board(LOUD).collect() for sample in family.samples]
    assert len(samples) == 20


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


def test_number_of_series_follows_the_trials() -> None:
    trials = tuple(CauseTrial(f"cause-{number}", 1, 0) for number in range(20))
    families = {family.name: family.samples for family in board(replace(CALM, trials=trials)).collect()}
    for name in ("arbiter_trial_limit", "arbiter_trial_out", "arbiter_cause_paused_seconds"):
        assert len(families[name]) == 20


# -- lines --------------------------------------------------------------------------------------------------

NUMBERS: dict[str, object] = {"alive": 10, "suspect": 0, "down": 0}
PAUSE = Line(
    WARNING,
    "culls for redis are paused: the last one did not help",
    {"cause": "redis", "paused_s": 540, "failures": 2},
)


@pytest.mark.parametrize(
    ("before", "after", "line"),
    [
        ({}, {"trials": (TRIED, PAUSED)}, PAUSE),
        (
            {"trials": (PAUSED._replace(paused_s=60.0, failures=1),)},
            {"trials": (PAUSED,)},
            PAUSE,
        ),
        (
            {"trials": (PAUSED,)},
            {"trials": (PAUSED._replace(paused_s=0.0),)},
            Line(INFO, "the pause of culls for redis is over", {"cause": "redis"}),
        ),
        ({"trials": (PAUSED,)}, {}, Line(INFO, "the pause of culls for redis is over", {"cause": "redis"})),
        (
            {},
            {"duplicate": True},
            Line(
                WARNING,
                "two containers run under this instance name: neither may be culled or retired until one is renamed",
                {},
            ),
        ),
        ({"duplicate": True}, {}, Line(INFO, "no other container runs under this instance name any more", {})),
        (
            {},
            {"policies": 2},
            Line(
                WARNING,
                "sidecars of this service run with different policies, the strictest of each number holds",
                {"policies": 2},
            ),
        ),
        ({}, {"tells_process": False}, Line(WARNING, reasons.UNKNOWN_PROCESS, {})),
        ({"losses": 1}, {"losses": 2}, Line(WARNING, "Redis lost its record of earlier culls", NUMBERS)),
        ({}, {"hold": FREEZE}, Line(WARNING, "held: ann holds the service: deploy", {"until": FREEZE.until})),
        (
            {"hold": FREEZE},
            {"hold": replace(FREEZE, instance="one")},
            Line(WARNING, "held: ann holds instance one: deploy", {"until": FREEZE.until}),
        ),
        ({"hold": FREEZE}, {}, Line(WARNING, "no hold any more", {})),
        ({}, {"lost_hold": FREEZE}, Line(logging.ERROR, reasons.lost_hold(FREEZE), {"until": FREEZE.until})),
    ],
    ids=[
        "paused",
        "paused for longer",
        "pause over",
        "pause forgotten",
        "duplicate",
        "no duplicate any more",
        "policies differ",
        "process unknown",
        "memory lost",
        "held",
        "held otherwise",
        "released",
        "lost",
    ],
)
def test_each_change_is_a_line(before: dict[str, object], after: dict[str, object], line: Line) -> None:
    assert list(changes(replace(CALM, **before), replace(CALM, **after))) == [line]  # type: ignore[arg-type]  # a table


@pytest.mark.parametrize(
    ("before", "after"),
    [
        (CALM, replace(CALM, alive=9, suspect=1, down=1, cause="redis", helped=1, unhelped=1, unclear=1)),
        (CALM, replace(CALM, trials=(TRIED,), median_errors=4, median_ratio=0.25)),
        (replace(CALM, trials=(PAUSED,)), replace(CALM, trials=(PAUSED._replace(paused_s=530.0),))),
        (replace(CALM, policies=2), CALM),
        (replace(CALM, losses=2), replace(CALM, losses=1)),
        (None, CALM),
        (None, replace(CALM, losses=7)),
    ],
    ids=[
        "numbers",
        "trials",
        "a pause that goes on",
        "policies alike again",
        "losses forgotten",
        "first answer",
        "losses before our time",
    ],
)
def test_what_is_in_the_metrics_alone_is_no_line(before: Fleet | None, after: Fleet) -> None:
    assert list(changes(before, after)) == []


def test_first_answer_tells_what_is_out_of_the_ordinary() -> None:
    assert [line.level for line in changes(None, LOUD)] == [WARNING] * 4
    assert list(changes(LOUD, LOUD)) == []
