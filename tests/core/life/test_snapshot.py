"""What a record shows of a step: a cull, a retirement, a restart, or a return after a lease."""

from __future__ import annotations

from dataclasses import replace

import pytest

from harness.containers import DOWN, FINE, GRANTED, LATCH, LEASE, UP, answered, begun, leased
from sidecar.core.life.container import Container
from sidecar.core.life.events import AppRestarted, Event
from sidecar.core.life.snapshot import Record, Snapshot
from sidecar.core.types import Evidence

BEGUN = begun()
UNNAMED = begun(app_start=None)
SERVES = replace(BEGUN, state=UP)
CULLED, RETIRED = replace(BEGUN, latch=LATCH), replace(BEGUN, latch=LEASE)
GRANT = replace(answered(BEGUN, GRANTED), took_s=0.5)
LEASED = leased(GRANTED, took_s=0.25)
NAMED, EXITED = AppRestarted("two"), AppRestarted(None, "random")
EVIDENCE = Evidence(60)


@pytest.mark.parametrize(
    ("before", "event", "after", "shown"),
    [
        (BEGUN, FINE, SERVES, set()),
        (BEGUN, GRANT, CULLED, {"culled"}),
        (CULLED, FINE, replace(CULLED, state=DOWN), set()),
        (BEGUN, LEASED, RETIRED, {"retired"}),
        (RETIRED, FINE, replace(RETIRED, state=DOWN), set()),
        (replace(RETIRED, state=DOWN), FINE, SERVES, {"not_honoured"}),
        (replace(RETIRED, state=DOWN), EXITED, SERVES, {"restarted"}),
        (replace(RETIRED, state=DOWN), FINE, BEGUN, set()),
        (BEGUN, NAMED, SERVES, {"restarted"}),
        (UNNAMED, NAMED, BEGUN, set()),
        (UNNAMED, EXITED, BEGUN, {"restarted"}),
        (replace(UNNAMED, latch=LATCH), NAMED, BEGUN, {"restarted"}),
        (BEGUN, NAMED, BEGUN, set()),
    ],
    ids=[
        "a check", "cull", "after the cull", "retirement", "after the retirement", "up after its lease",
        "restarted under its lease", "not up after its lease", "another id", "first id", "exit without an id",
        "first id of an incarnation after a cull", "nothing changed",
    ],
)  # fmt: skip
def test_record_says_what_a_step_was(before: Container, event: Event, after: Container, shown: set[str]) -> None:
    record = Record(event, before, after, EVIDENCE)
    names = ("culled", "retired", "restarted", "not_honoured")
    assert {name for name in names if getattr(record, name)} == shown


@pytest.mark.parametrize(("event", "seconds"), [(GRANT, 0.5), (LEASED, 0.25), (FINE, None)])
def test_answers_of_the_budget_have_a_duration(event: Event, seconds: float | None) -> None:
    assert Record(event, BEGUN, BEGUN, EVIDENCE).claim_s == seconds


def test_snapshot_has_no_weight_for_a_container_out_of_balance_and_tells_its_instants_in_unix_time() -> None:
    snapshot = Snapshot(100.0, SERVES, EVIDENCE, None, weight=40, unix=5_000.0)
    assert (snapshot.share, replace(snapshot, container=replace(CULLED, state=DOWN)).share) == (40, 0)
    assert (snapshot.unix_of(90.0), snapshot.unix_of(101.5)) == (4_990.0, 5_001.5)
