"""The metrics after scripted stories of the controller, and the page as Prometheus reads it."""

from __future__ import annotations

import subprocess
from collections import Counter
from dataclasses import replace

import pytest
from prometheus_client.parser import text_string_to_metric_families

from harness.binaries import require
from harness.controller import POLICY, ControllerRig
from harness.virtual_time import in_virtual_time
from sidecar.core.types import (
    Answer,
    CauseTrial,
    Denied,
    ErrorLevel,
    ErrorReport,
    Fleet,
    Granted,
    Missed,
    Report,
    Results,
    Sample,
    Unknown,
)
from sidecar.telemetry.metrics import Metrics
from sidecar.telemetry.observers import Failure
from sidecar.telemetry.readings import ContainerReadings, FleetReadings

GRANTED = Granted(3, 10)
DENIED = Denied("window", 10, 10, 60.0)
NO_SETTLE = replace(POLICY, settle_s=0.0)
SHADOW = replace(NO_SETTLE, enforce=False)
UNIX_S = 1_700_000_000.0

NAMES = {
    "arbiter_build_info": "gauge",
    "arbiter_state": "gauge",
    "arbiter_state_since_timestamp_seconds": "gauge",
    "arbiter_state_changes_total": "counter",
    "arbiter_window_seconds": "gauge",
    "arbiter_window_errors": "gauge",
    "arbiter_error_limit": "gauge",
    "arbiter_errors_total": "counter",
    "arbiter_stale_reports_total": "counter",
    "arbiter_checks_total": "counter",
    "arbiter_weight": "gauge",
    "arbiter_success_rate": "gauge",
    "arbiter_scrapes_total": "counter",
    "arbiter_scrape_unknown_total": "counter",
    "arbiter_not_honoured": "gauge",
    "arbiter_age_seconds": "gauge",
    "arbiter_lifetime_due_timestamp_seconds": "gauge",
    "arbiter_load": "gauge",
    "arbiter_retirements_total": "counter",
    "arbiter_last_check_timestamp_seconds": "gauge",
    "arbiter_loop_lag_seconds": "gauge",
    "arbiter_claims_total": "counter",
    "arbiter_claim_duration_seconds": "histogram",
    "arbiter_culls_total": "counter",
    "arbiter_would_culls_total": "counter",
    "arbiter_app_restarts_total": "counter",
    "arbiter_budget_used_tokens": "gauge",
    "arbiter_budget_capacity_tokens": "gauge",
    "arbiter_budget_reachable": "gauge",
    "arbiter_fleet_alive": "gauge",
    "arbiter_fleet_suspect": "gauge",
    "arbiter_fleet_median_errors": "gauge",
    "arbiter_trial_limit": "gauge",
    "arbiter_trial_out": "gauge",
    "arbiter_cause_paused_seconds": "gauge",
    "arbiter_fleet_down": "gauge",
    "arbiter_fleet_retiring": "gauge",
    "arbiter_fleet_policies": "gauge",
    "arbiter_fleet_same_cause": "gauge",
    "arbiter_fleet_culls_total": "counter",
    "arbiter_hold_until_timestamp_seconds": "gauge",
    "arbiter_engineer_needed": "gauge",
    "arbiter_data_losses_total": "counter",
    "arbiter_tls_certificate_expiry_timestamp_seconds": "gauge",
    "arbiter_polls_total": "counter",
    "arbiter_refusals_total": "counter",
    "arbiter_failures_total": "counter",
}

CROWD = Fleet(10, 6, cause="redis", trials=(CauseTrial("redis", 1, 1),), median_errors=4)


class Board:
    """Metrics whose samples one can ask for."""

    def __init__(self, mode: str = "enforce") -> None:
        self.metrics = Metrics(mode, error_limit=5, capacity=10)

    def watch(self, rig: ControllerRig) -> None:
        controller = rig.controller
        measurements = controller.assessment.measurements
        readings = ContainerReadings(
            lambda: controller.snapshot,
            counted=lambda: (measurements.errors.ever(), measurements.others.ever()),
            stale=lambda: controller.stale_reports,
            lag_s=lambda: controller.lag_s,
            clock=rig.loop.time,
        )
        self.metrics.registry.register(readings)
        self.metrics.registry.register(FleetReadings(lambda: CROWD))

    def value(self, name: str, **labels: str) -> float | None:
        return self.metrics.registry.get_sample_value(name, labels)

    def series(self, name: str) -> dict[tuple[str, ...], float]:
        """Values of all samples of this name, by their label values."""
        return {
            tuple(sample.labels.values()): sample.value
            for family in self.metrics.registry.collect()
            for sample in family.samples
            if sample.name == name
        }

    def page(self) -> str:
        return self.metrics.page()[0].decode()


@in_virtual_time
async def full_story(board: Board) -> None:
    """Let happen what gives every metric a sample."""
    async with ControllerRig(NO_SETTLE, observe=board.metrics.observe) as rig:
        board.watch(rig)
        await rig.errors(4, kind="redis", app_start="boot-1")
        await rig.pings(ErrorReport(2, ErrorLevel.CLIENT_ERROR), ErrorReport(1, kind="http"))
        await rig.answered(Unknown("timeout"))
        await rig.advance(2)
        await rig.answered(DENIED)
        await rig.advance(7)
        await rig.errors(1, kind="redis", app_start="boot-1")  # old errors claim nothing
        await rig.advance(8)
        await rig.answered(GRANTED)
        await rig.pings(ErrorReport(1, app_start="boot-2"), ErrorReport(1, app_start="boot-1"))
        await rig.reports(Results(3, 1, load=0.7))
        await rig.advance(1)
        board.metrics.polled("/health", 200)
        board.metrics.refused("local", "size")
        board.metrics.failed(Failure("listener", ValueError()))


# -- the page -----------------------------------------------------------------------------------------------


def test_page_has_every_documented_metric_in_its_type_and_no_other() -> None:
    board = Board()
    full_story(board)
    families = text_string_to_metric_families(board.page())
    found = {
        family.name + ("_total" if family.type == "counter" else ""): family.type
        for family in families
        if family.samples and family.name.startswith("arbiter_") and not family.name.endswith("_created")
    }
    assert found == NAMES


def test_promtool_has_nothing_to_say_about_a_full_page() -> None:
    promtool = require("promtool")
    board = Board()
    full_story(board)
    checked = subprocess.run(
        [promtool, "check", "metrics"], input=board.page(), capture_output=True, text=True, timeout=60, check=False
    )
    assert (checked.returncode, checked.stdout, checked.stderr) == (0, "", "")


def test_build_and_limits_are_told_from_the_beginning() -> None:
    board = Board("shadow")
    assert board.value("arbiter_error_limit") == 5
    assert board.value("arbiter_budget_capacity_tokens") == 10
    ((_, _, mode),) = board.series("arbiter_build_info")
    assert mode == "shadow"


@pytest.mark.parametrize(
    ("report", "outcome"), [(Sample({}, unknown=3), "ok"), (Missed("timeout"), "timeout")], ids=["page", "no page"]
)
def test_scrape_is_counted_by_how_it_ended(report: Report, outcome: str) -> None:
    board = Board()
    board.metrics.scraped(report)
    assert board.value("arbiter_scrapes_total", outcome=outcome) == 1
    assert board.value("arbiter_scrape_unknown_total") == getattr(report, "unknown", 0)


# -- culls and claims ---------------------------------------------------------------------------------------


@in_virtual_time
async def test_cull_and_would_be_cull_are_counted_apart() -> None:
    enforced, shadow = Board(), Board("shadow")
    for board, policy in ((enforced, NO_SETTLE), (shadow, SHADOW)):
        async with ControllerRig(policy, observe=board.metrics.observe) as rig:
            await rig.errors(5)
            await rig.answered(GRANTED)
            await rig.advance(30)
    counted = [
        (board.value("arbiter_culls_total"), board.value("arbiter_would_culls_total")) for board in (enforced, shadow)
    ]
    assert counted == [(1, 0), (0, 1)]


@pytest.mark.parametrize(
    ("answer", "outcome", "reason"),
    [
        (GRANTED, "granted", "granted"),
        (Granted(3, 10, replayed=True), "granted", "replayed"),
        (DENIED, "denied", "window"),
        (Unknown("timeout"), "unknown", "timeout"),
        (RuntimeError("broken"), "unknown", "internal"),
    ],
    ids=["granted", "replayed", "denied", "unknown", "failed"],
)
@in_virtual_time
async def test_claims_are_counted_by_outcome_and_reason(answer: Answer | Exception, outcome: str, reason: str) -> None:
    board = Board()
    async with ControllerRig(NO_SETTLE, observe=board.metrics.observe) as rig:
        await rig.errors(5)
        await rig.advance(0.25)
        await rig.answered(answer)
    assert board.series("arbiter_claims_total") == {(outcome, reason): 1}
    assert board.value("arbiter_claim_duration_seconds_count") == 1
    assert board.value("arbiter_claim_duration_seconds_sum") == pytest.approx(0.25)
    assert board.value("arbiter_budget_reachable") == (outcome != "unknown")


@pytest.mark.parametrize(
    ("answer", "shown"),
    [
        (Granted(2, 4), (2, 4, 1)),
        (Denied("window", 30, 30, 60.0), (30, 30, 1)),
        (Denied("hold", 1, 20, 60.0), (1, 20, 1)),
        (Denied("hold", 0, 0, 60.0), (0, 10, None)),
        (Unknown("timeout"), (0, 10, 0)),
    ],
    ids=["share of one server", "larger fleet", "held in the store", "held here without asking", "unknown"],
)
@in_virtual_time
async def test_capacity_is_that_of_the_last_store_that_answered(
    answer: Answer, shown: tuple[float, float, float | None]
) -> None:
    board = Board()
    board.metrics.reachable.set(7)
    async with ControllerRig(NO_SETTLE, observe=board.metrics.observe) as rig:
        await rig.errors(5)
        await rig.answered(answer)
    used, capacity, reachable = shown
    assert board.value("arbiter_budget_used_tokens") == used
    assert board.value("arbiter_budget_capacity_tokens") == capacity
    assert board.value("arbiter_budget_reachable") == (7 if reachable is None else reachable)


# -- the controller, read at the scrape ---------------------------------------------------------------------------


@in_virtual_time
async def test_story_as_the_metrics_tell_it() -> None:
    board = Board()
    async with ControllerRig(observe=board.metrics.observe) as rig:
        board.watch(rig)
        began_s = rig.loop.time() + UNIX_S
        await rig.pings(ErrorReport(2, ErrorLevel.CLIENT_ERROR))
        await rig.advance(20.5)
        assert board.value("arbiter_last_check_timestamp_seconds") == pytest.approx(began_s + 20)
        assert board.value("arbiter_state_since_timestamp_seconds") == pytest.approx(began_s)
        await rig.errors(3, kind="redis")
        await rig.errors(2, kind="http", app_start="boot-1")
        await rig.advance(3.25)
        await rig.answered(GRANTED)

        checks = board.series("arbiter_checks_total")
        assert (set(checks), checks["fine",]) == ({("fine",), ("excessive",)}, 3)
        assert board.series("arbiter_window_errors") == {("redis",): 3, ("http",): 2}
        assert board.series("arbiter_errors_total") == {
            ("server_error", "redis"): 3,
            ("server_error", "http"): 2,
            ("client_error", ""): 2,
        }
        assert board.value("arbiter_window_seconds") == 60
        assert board.series("arbiter_state_changes_total") == {("up",): 1, ("suspect",): 1, ("draining",): 1}
        await rig.errors(1, app_start="boot-2")
        await rig.errors(1, app_start="boot-1")
        assert board.value("arbiter_stale_reports_total") == 1
        assert board.series("arbiter_window_errors") == {("unknown",): 1}
        assert board.value("arbiter_errors_total", level="server_error", kind="redis") == 3


# -- labels -------------------------------------------------------------------------------------------------


@in_virtual_time
async def test_flood_of_kinds_does_not_grow_the_page() -> None:
    board = Board()
    async with ControllerRig(observe=board.metrics.observe) as rig:
        board.watch(rig)
        sizes = []
        for batch in range(3):
            pings = [ErrorReport(1, level, f"kind-{batch}-{number}") for number in range(1000) for level in ErrorLevel]
            await rig.pings(*pings)
            await rig.advance(1)
            sizes.append((len(board.series("arbiter_window_errors")), len(board.series("arbiter_errors_total"))))
        assert sizes == [(33, 36)] * 3
        assert sum(board.series("arbiter_window_errors").values()) == 3000


# -- planned ends ---------------------------------------------------------------------------------------------

AGING = replace(POLICY, lifetime_s=100.0, retire_timeout_s=60.0)
NEVER = Counter({"granted": 0, "denied": 0, "unknown": 0, "not_honoured": 0, "would": 0})


def retirements(board: Board) -> Counter[str]:
    return Counter({outcome: int(count) for (outcome,), count in board.series("arbiter_retirements_total").items()})


@in_virtual_time
async def test_planned_end_is_counted_by_what_came_of_it_and_is_no_cull() -> None:
    board = Board()
    async with ControllerRig(AGING, observe=board.metrics.observe) as rig:
        board.watch(rig)
        await rig.advance(101)
        assert board.value("arbiter_state", state="retiring") == 1.0
        assert board.value("arbiter_age_seconds") == pytest.approx(101, abs=1)
        seen = rig.controller.snapshot
        assert board.value("arbiter_lifetime_due_timestamp_seconds") == seen.unix_of(seen.container.born + 100)
        for answer in (Denied("slots", 1, 1, 10.0), Unknown("timeout"), Granted(1, 1)):
            await rig.answered(answer)
            await rig.advance(11)
        assert retirements(board) == Counter({**NEVER, "granted": 1, "denied": 1, "unknown": 1})
        await rig.advance(60)
        assert retirements(board)["not_honoured"] == 1
        assert board.value("arbiter_state_changes_total", state="up") == 2.0
        assert (board.value("arbiter_culls_total"), board.series("arbiter_claims_total")) == (0.0, {})


@pytest.mark.parametrize("where", ["step", "journal", "budget", "listener"])
def test_failures_are_zero_before_the_first_one(where: str) -> None:
    board = Board()
    assert board.value("arbiter_failures_total", where=where) == 0
    board.metrics.failed(Failure(where, ValueError()))
    assert board.value("arbiter_failures_total", where=where) == 1
