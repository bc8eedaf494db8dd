from __future__ import annotations

from functools import partial

from sidecar.core.fleet.fleet_events import BeatRecord
from sidecar.core.life.container import start
from sidecar.core.life.snapshot import Record
from sidecar.core.types import Evidence, Fleet, Missed, Policy, Unknown
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


def test_budget_is_shown_as_unreachable_until_a_beat_is_answered() -> None:
    metrics, reachable = Metrics("enforce", 5, 10), []
    for answer in (Fleet(3), Unknown("timeout"), Fleet(2)):
        metrics.beaten(BeatRecord(answer))
        reachable.append(metrics.registry.get_sample_value("arbiter_budget_reachable"))
    assert reachable == [1, 0, 1]
    assert metrics.registry.get_sample_value("arbiter_budget_capacity_tokens") == 10  # the answers have none
