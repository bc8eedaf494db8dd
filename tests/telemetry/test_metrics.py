"""What is counted, what is read at each scrape, and the page as Prometheus reads it.

``tests/test_readme.py`` has the names and the labels.
"""

from __future__ import annotations

import subprocess
from collections.abc import Iterable

import pytest
from prometheus_client.core import Metric

from harness.binaries import require
from harness.controller import POLICY
from sidecar.core.app_reports import Load, Missed, Sample
from sidecar.core.claims import Answer, CauseTrial, Denied, Fleet, Granted, Unknown
from sidecar.core.fleet.fleet_events import BeatRecord
from sidecar.core.life.container import Container, start
from sidecar.core.life.events import (
    Checked,
    Culled,
    Event,
    Moved,
    Restarted,
    Retired,
    RetirementAnswered,
    Revived,
    ReviveOrdered,
    TokenAnswered,
    WouldCull,
    WouldRetire,
)
from sidecar.core.life.snapshot import Record, Snapshot
from sidecar.core.types import Evidence, Hold, State, Verdict
from sidecar.telemetry.metrics import Metrics
from sidecar.telemetry.readings import of_container, of_controller, of_datagrams, of_fleet, of_ledger

Samples = dict[tuple[str, ...], float]

GRANTED = Granted(3, 10)
DENIED = Denied("window", 10, 10, 60.0)
SLOTS = Denied("slots", 1, 1, 10.0)
CALLED = Revived(was=State.DOWN, state=State.UP, out_s=9.0, order=ReviveOrdered("ann", "mine"))
RETURNED = Revived(was=State.DOWN, state=State.UP, out_s=9.0, order=None)
CULLED = Culled(was=State.SUSPECT, state=State.DRAINING, verdict=None, order=None, suspect_s=3.0)


class Board:
    """Metrics whose samples one can ask for, by name without prefix and label values."""

    def __init__(self, mode: str = "enforce") -> None:
        self.metrics = Metrics(mode, error_limit=5, capacity=10)

    def observe(self, *events: Event) -> None:
        self.metrics.observe(Record(events, start("web/a", 0.0, POLICY), Evidence(60)))

    def samples(self) -> dict[str, float]:
        return {
            " ".join([sample.name.removeprefix("arbiter_"), *sample.labels.values()]): sample.value
            for family in self.metrics.registry.collect()
            for sample in family.samples
            if sample.name.startswith("arbiter_") and not sample.name.endswith(("_created", "_bucket", "_info"))
        }

    def changed(self, before: dict[str, float]) -> dict[str, float]:
        """The samples that have another value than before."""
        return {name: value for name, value in self.samples().items() if before.get(name) != value}


@pytest.mark.parametrize(
    ("event", "counted"),
    [
        (Checked(Verdict()), {"checks_total fine": 1}),
        (CULLED, {"culls_total": 1, "state_changes_total draining": 1}),
        (WouldCull(None), {"would_culls_total": 1}),
        (
            Retired(was=State.RETIRING, state=State.DRAINING),
            {"retirements_total granted": 1, "state_changes_total draining": 1},
        ),
        (WouldRetire(), {"retirements_total would": 1}),
        (RETURNED, {"retirements_total not_honoured": 1, "state_changes_total up": 1}),
        (CALLED, {"state_changes_total up": 1}),
        (
            Restarted(was=State.STARTING, state=State.STARTING, app_start="boot-2", out_s=None),
            {"app_restarts_total": 1},
        ),
        (Moved(was=State.STARTING, state=State.UP), {"state_changes_total up": 1}),
        (RetirementAnswered(Granted(1, 1)), {"budget_reachable": 1}),
        (RetirementAnswered(SLOTS), {"retirements_total denied": 1, "budget_reachable": 1}),
        (RetirementAnswered(Denied("hold", 0, 0, 1.0)), {"retirements_total denied": 1}),
        (RetirementAnswered(Unknown("timeout")), {"retirements_total unknown": 1, "budget_reachable": 0}),
    ],
    ids=lambda value: type(value).__name__,
)
def test_event_is_counted(event: Event, counted: dict[str, float]) -> None:
    board = Board()
    board.metrics.reachable.set(7)
    before = board.samples()
    board.observe(event)
    assert board.changed(before) == counted


@pytest.mark.parametrize(
    ("answer", "words", "budget"),
    [
        (GRANTED, "granted granted", (1, 3, 10)),
        (Granted(2, 4, replayed=True), "granted replayed", (1, 2, 4)),
        (Denied("window", 30, 30, 60.0), "denied window", (1, 30, 30)),
        (Denied("hold", 0, 0, 60.0), "denied hold", (7, 0, 10)),
        (Unknown("timeout"), "unknown timeout", (0, 0, 10)),
    ],
    ids=["granted", "replayed", "denied", "held here without asking", "unknown"],
)
def test_claim_is_counted_and_shows_the_budget(answer: Answer, words: str, budget: tuple[float, float, float]) -> None:
    board = Board()
    board.metrics.reachable.set(7)
    board.observe(TokenAnswered("web/a/-", answer, 0.25))
    samples = board.samples()
    assert samples[f"claims_total {words}"] == 1
    assert (samples["claim_duration_seconds_count"], samples["claim_duration_seconds_sum"]) == (1, 0.25)
    names = ("budget_reachable", "budget_used_tokens", "budget_capacity_tokens")
    assert tuple(samples[name] for name in names) == budget


def test_beat_shows_whether_the_budget_is_reachable_and_its_numbers_if_it_has_some() -> None:
    board, shown = Board(), []
    for answer in (Fleet(3, used=2, capacity=20), Unknown("timeout"), Fleet(2)):
        board.metrics.beaten(BeatRecord(answer))
        samples = board.samples()
        names = ("budget_reachable", "budget_used_tokens", "budget_capacity_tokens")
        shown.append(tuple(samples[name] for name in names))
    assert shown == [(1, 2, 20), (0, 2, 20), (1, 2, 20)]


@pytest.mark.parametrize(
    ("report", "counted"),
    [
        (Sample({}, unknown=3), {"scrapes_total ok": 1, "scrape_unknown_total": 3}),
        (Missed("timeout"), {"scrapes_total timeout": 1}),
    ],
    ids=["page", "no page"],
)
def test_scrape_is_counted_by_how_it_ended(report: Sample | Missed, counted: dict[str, float]) -> None:
    board = Board()
    before = board.samples()
    board.metrics.scraped(report)
    assert board.changed(before) == counted


def test_what_other_parts_count() -> None:
    board = Board()
    before = board.samples()
    board.metrics.polled("/health", 200)
    board.metrics.refused("local", "size")
    board.metrics.failed("beat", ValueError())
    board.metrics.log_dropped()
    assert board.changed(before) == {
        "polls_total /health 200": 1,
        "refusals_total local size": 1,
        "failures_total beat": 1,
        "failures_total log": 1,
    }


def test_counters_begin_at_zero_and_the_settings_are_told() -> None:
    """A series that appears with its first event has no increase."""
    samples = Board("shadow").samples()
    assert (samples["error_limit"], samples["budget_capacity_tokens"]) == (5, 10)
    zero = {name for name, value in samples.items() if value == 0}
    assert zero >= {f"failures_total {where}" for where in ("step", "journal", "budget", "listener", "log")}
    assert zero >= {f"retirements_total {word}" for word in ("granted", "denied", "unknown", "not_honoured", "would")}
    assert zero >= {"scrapes_total ok", "culls_total", "would_culls_total"}


def test_promtool_has_nothing_to_say_about_a_full_page() -> None:
    promtool = require("promtool")
    board = Board()
    board.observe(CULLED, RETURNED, Checked(Verdict()), TokenAnswered("web/a/-", DENIED, 0.25))
    board.metrics.polled("/health", 200)
    page, content_type = board.metrics.page()
    assert (b'mode="enforce"' in page, content_type) == (True, "text/plain; version=0.0.4; charset=utf-8")
    checked = subprocess.run([promtool, "check", "metrics"], input=page, capture_output=True, timeout=60, check=False)
    assert (checked.returncode, checked.stdout, checked.stderr) == (0, b"", b"")


# -- what is read at each scrape ----------------------------------------------------------------------------


CALM = Fleet(10)
LOUD = Fleet(
    10,
    6,
    2,
    "redis",
    (CauseTrial("mysql", 2, 1), CauseTrial("redis", 1, 0, 540.0, 2)),
    2,
    losses=3,
    helped=4,
    unhelped=5,
    unclear=6,
    hold=Hold("ann", "deploy", 1_700_000_000.0),
    retiring=2,
    culls_by=(("helped", "mysql", 1), ("helped", "redis", 3)),
    median_errors=4,
)
FRESH = Snapshot(100.0, Container(State.UP, 90.0, "app/a", born=40.0), Evidence(60), None, unix=5_000.0)
BUSY = Snapshot(
    100.0,
    Container(State.SUSPECT, 95.0, "app/a", born=40.0),
    Evidence(30, 3, {"redis": 2, "http": 1}),
    98.0,
    weight=40,
    success_rate=0.25,
    retire_at=160.0,
    load=Load(0.5, 99.0),
    unix=5_000.0,
)


def samples(families: Iterable[Metric]) -> Samples:
    """The value of every sample by its name without prefix and its label values."""
    return {
        (sample.name.removeprefix("arbiter_"), *sample.labels.values()): sample.value
        for family in families
        for sample in family.samples
    }


def states(now: State) -> Samples:
    return {("state", state): float(state is now) for state in State}


def test_snapshot_is_shown_by_the_clock_of_the_world() -> None:
    assert samples(of_container(FRESH, 101.0)) == {
        **states(State.UP),
        ("state_since_timestamp_seconds",): 4_990.0,
        ("not_honoured",): 0.0,
        ("age_seconds",): 61.0,
        ("lifetime_due_timestamp_seconds",): 0.0,
        ("window_seconds",): 60.0,
        ("weight",): 100.0,
    }
    assert samples(of_container(BUSY, 100.0)) == {
        **states(State.SUSPECT),
        ("state_since_timestamp_seconds",): 4_995.0,
        ("not_honoured",): 0.0,
        ("age_seconds",): 60.0,
        ("lifetime_due_timestamp_seconds",): 5_060.0,
        ("load",): 0.5,
        ("window_seconds",): 30.0,
        ("window_errors", "redis"): 2.0,
        ("window_errors", "http"): 1.0,
        ("weight",): 40.0,
        ("success_rate",): 0.25,
        ("last_check_timestamp_seconds",): 4_998.0,
    }


def test_would_be_weight_is_shown_in_shadow_mode_alone() -> None:
    shadow = Snapshot(100.0, BUSY.container, Evidence(60), None, weight=40, enforce=False)
    shown = samples(of_container(shadow, 100.0))
    assert (shown["weight",], shown["would_weight",]) == (100.0, 40.0)


def test_container_that_is_not_replaced_is_shown() -> None:
    overdue = Snapshot(0.0, Container(State.DOWN, 0.0, "app/a", is_overdue=True), Evidence(60), None)
    assert samples(of_container(overdue, 0.0))["not_honoured",] == 1.0


def test_counts_of_the_controller() -> None:
    assert samples(of_controller({"redis": 3}, {"client_error": 2}, stale=1, lag_s=0.5)) == {
        ("errors_total", "server_error", "redis"): 3.0,
        ("errors_total", "client_error", ""): 2.0,
        ("stale_reports_total",): 1.0,
        ("loop_lag_seconds",): 0.5,
    }


@pytest.mark.parametrize(
    ("name", "calm", "loud"),
    [
        ("fleet_alive", 10, 10),
        ("fleet_suspect", 0, 6),
        ("fleet_down", 0, 2),
        ("fleet_retiring", 0, 2),
        ("fleet_settings", 1, 2),
        ("fleet_median_errors", None, 4),
        ("trial_limit mysql", None, 2),
        ("trial_limit redis", None, 1),
        ("trial_out mysql", None, 1),
        ("trial_out redis", None, 0),
        ("cause_paused_seconds mysql", None, 0),
        ("cause_paused_seconds redis", None, 540),
        ("fleet_same_cause redis", None, 1),
        ("hold_until_timestamp_seconds", 0, 1_700_000_000),
        ("engineer_needed paused", 0, 1),
        ("fleet_culls_total helped ", 0, None),
        ("fleet_culls_total unhelped ", 0, 5),
        ("fleet_culls_total unclear ", 0, 6),
        ("fleet_culls_total helped redis", None, 3),
        ("fleet_culls_total helped mysql", None, 1),
        ("data_losses_total", 0, 3),
    ],
)
def test_fleet_of_the_last_beat(name: str, calm: float | None, loud: float | None) -> None:
    key = tuple(name.split(" "))
    assert [samples(of_fleet(fleet)).get(key) for fleet in (CALM, LOUD)] == [calm, loud]


def test_no_other_sample_is_shown_and_none_of_a_fleet_that_is_not_known() -> None:
    assert (len(samples(of_fleet(LOUD))), samples(of_fleet(None))) == (20, {})


def test_ledger_and_datagrams() -> None:
    assert samples(of_ledger(3, 7)) == {("events_waiting",): 3.0, ("events_dropped_total",): 7.0}
    counts = {"packets": 9, "lines": 8, "unreadable": 2, "kernel": 1}
    assert samples(of_datagrams(counts)) == {
        ("datagram_packets_total",): 9.0,
        ("datagram_lines_total",): 8.0,
        ("datagram_dropped_total", "unreadable"): 2.0,
        ("datagram_dropped_total", "kernel"): 1.0,
    }
