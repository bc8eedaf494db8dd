from __future__ import annotations

from functools import partial

from sidecar.core.fleet.fleet_events import BeatRecord
from sidecar.core.life.container import start
from sidecar.core.life.snapshot import Record
from sidecar.core.types import Evidence, Fleet, Missed, Policy, Sample, Unknown
from sidecar.telemetry.log import Log
from sidecar.telemetry.metrics import Metrics
from sidecar.telemetry.observers import Failure, Observers


def _keep(seen: list[tuple[str, object]], name: str, what: object) -> None:
    seen.append((name, what))


def test_every_observer_gets_the_same_record_in_order() -> None:
    container = start("web/a", 0.0, Policy())
    record, error = Record((), container, Evidence(60)), ValueError("lost")
    observers, seen = Observers(), list[tuple[str, object]]()
    for name in ("first", "second"):
        observe = partial(_keep, seen, name)
        observers.steps.append(observe)
        observers.beats.append(observe)
        observers.scrapes.append(observe)
        observers.failures.append(observe)
    observers.step(record)
    beat = BeatRecord(Unknown("timeout"))
    observers.beat(beat)
    observers.scrape(Missed("status"))
    observers.failed("journal", error, "write")
    expected = [record, beat, Missed("status"), Failure("journal", error, "write")]
    assert seen == [(name, what) for what in expected for name in ("first", "second")]
    assert all(one is other for (_, one), (_, other) in zip(seen[::2], seen[1::2], strict=True))


def test_metrics_and_log_can_observe_everything() -> None:
    observers, metrics, log = Observers(), Metrics("enforce", 5, 10), Log()
    for each in (metrics, log):
        observers.steps.append(each.observe)
        observers.beats.append(each.beaten)
        observers.scrapes.append(each.scraped)
        observers.failures.append(each.failed)
    observers.beat(BeatRecord(Fleet(3, used=2, capacity=4)))
    observers.scrape(Sample({}))
    observers.failed("budget", ValueError("lost"))
    value = metrics.registry.get_sample_value
    assert (value("arbiter_budget_used_tokens"), value("arbiter_budget_capacity_tokens")) == (2, 4)
    assert value("arbiter_scrapes_total", {"outcome": "ok"}) == 1
    assert value("arbiter_failures_total", {"where": "budget"}) == 1


def test_budget_is_shown_as_unreachable_until_a_beat_is_answered() -> None:
    metrics, reachable = Metrics("enforce", 5, 10), []
    for answer in (Fleet(3), Unknown("timeout"), Fleet(2)):
        metrics.beaten(BeatRecord(answer))
        reachable.append(metrics.registry.get_sample_value("arbiter_budget_reachable"))
    assert reachable == [1, 0, 1]
    assert metrics.registry.get_sample_value("arbiter_budget_capacity_tokens") == 10  # the answers have none
