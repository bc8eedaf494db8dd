"""The state of the main in its standby: all of it, on the clock of the standby, or none."""

from __future__ import annotations

import json
from dataclasses import fields, replace
from random import Random
from typing import Any, Final

import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness.controller import WALL_S, ManualBudget, MemoryJournal
from sidecar.controller.container_controller import Controller, Pace
from sidecar.controller.incarnation_ids import IncarnationIds
from sidecar.core.life.container import Container, CullOrder, start
from sidecar.core.measure.measurements import Measurements
from sidecar.core.measure.weight import Weight
from sidecar.core.types import (
    Denied,
    ErrorReport,
    Granted,
    Heartbeat,
    Hold,
    Judgement,
    Latch,
    Missed,
    Policy,
    RandomIdentity,
    Reason,
    Results,
    Sample,
    State,
    Unknown,
    Verdict,
)
from sidecar.takeover import state_transfer
from sidecar.takeover.state_transfer import RefusedError, TransferredState

APP: Final = "web/a"
POLICY: Final = Policy()
NOW: Final = 1_000.0
LATCH: Final = Latch("web/a/boot-1", WALL_S, "5 server errors in 60 s")
VERDICT: Final = Verdict(Judgement.EXCESSIVE, (Reason("errors", 5, 5, "5 server errors in 60 s"),))
DENIED: Final = Denied("hold", 1, 10, 3.5, hold=Hold("ann", "deploy", WALL_S))
UP: Final = start(APP, 900.0, POLICY, app_start="boot-1")
CONTAINERS: Final = {
    "starting": UP,
    "up": replace(UP, state=State.UP, since=950.0, due=None, verdict=Verdict(Judgement.FINE)),
    "suspect": replace(UP, state=State.SUSPECT, since=990.0, due=1_002.5, verdict=VERDICT, asked=True, unknowns=2),
    "denied": replace(UP, state=State.SUSPECT, since=990.0, due=1_002.5, verdict=VERDICT, answer=DENIED),
    "unanswered": replace(UP, state=State.SUSPECT, since=990.0, due=1_002.5, answer=Unknown("timeout")),
    "heard": replace(
        UP, state=State.SUSPECT, verdict=VERDICT, is_announced=True, refused=True, unclear=True, due=1_002.5
    ),
    "ordered": replace(UP, state=State.SUSPECT, order=CullOrder("ann", "looks bad", State.RETIRING, 1_003.0)),
    "retiring": replace(UP, state=State.RETIRING, identity=RandomIdentity("lease-1", 0.25), due=1_001.0),
    "draining": replace(UP, state=State.DRAINING, since=995.0, due=1_005.0, latch=LATCH, answer=Granted(1, 10)),
    "down": replace(UP, state=State.DOWN, since=960.0, due=None, latch=LATCH, answer=Granted(1, 10, replayed=True)),
    "retired": replace(UP, state=State.DOWN, latch=Latch("", WALL_S, "old", "lease-1"), lease_ends=1_500.0),
    "shadow": replace(UP, state=State.SUSPECT, would_culls=2, would_down=True, respite_until=1_200.0),
}


def _controller(
    container: Container, measurements: Measurements | None = None, weight: Weight | None = None
) -> Controller:
    return Controller(
        container,
        policy=POLICY,
        pace=Pace(),
        measurements=measurements or Measurements(60, int(NOW)),
        weight=weight or Weight(),
        budget=ManualBudget(),
        journal=MemoryJournal(),
        clock=lambda: NOW,
        wall=lambda: WALL_S,
        rng=Random(0),
        observe=lambda _record: None,
        on_failure=lambda _error: None,
    )


def _dumped(controller: Controller, now: float = NOW) -> Any:
    """The state after its way over the wire."""
    dumped = state_transfer.dump(controller, now, POLICY)
    return None if dumped is None else json.loads(json.dumps(dumped))


def _loaded(dumped: Any, now: float = NOW, window_s: int = 60, policy: Policy = POLICY) -> TransferredState:
    measurements = Measurements(window_s, int(now))
    return state_transfer.load(dumped, now, app=APP, policy=policy, measurements=measurements, weight=Weight())


@pytest.mark.parametrize("container", CONTAINERS.values(), ids=CONTAINERS)
def test_container_is_the_same_in_the_standby(container: Container) -> None:
    assert _loaded(_dumped(_controller(container))).container == container


@pytest.mark.parametrize("container", CONTAINERS.values(), ids=CONTAINERS)
def test_instants_move_with_the_clock_of_the_standby(container: Container) -> None:
    elsewhere = _loaded(_dumped(_controller(container)), NOW + 5_000).container
    names = state_transfer.INSTANTS[Container]
    moved = {name: getattr(container, name) for name in names if getattr(container, name) is not None}
    assert {name: getattr(elsewhere, name) for name in moved} == {name: at + 5_000 for name, at in moved.items()}


def test_every_float_of_a_container_is_known_to_be_an_instant() -> None:
    """A new field that is an instant has to travel as an age: this test fails until it does."""
    numbers = {field.name for field in fields(Container) if "float" in str(field.type)}
    assert numbers == set(state_transfer.INSTANTS[Container])


@pytest.mark.parametrize(
    "container",
    [
        replace(CONTAINERS["suspect"], due=None, asking=True),
        replace(CONTAINERS["retiring"], due=None, leasing=True),
    ],
    ids=["a token", "a lease"],
)
def test_claim_in_flight_is_repeated_at_once(container: Container) -> None:
    found = _loaded(_dumped(_controller(container))).container
    assert (found.asking, found.leasing, found.due) == (False, False, NOW)
    assert found.claim_id == container.claim_id


def test_sidecar_that_stops_hands_over_no_state() -> None:
    assert state_transfer.dump(_controller(replace(UP, state=State.STOPPING)), NOW, POLICY) is None


def test_window_weight_and_names_are_those_of_the_main_before() -> None:
    measurements = Measurements(60, 940)
    for at, report in (
        (950.0, ErrorReport(3, kind="redis")),
        (970.0, Results(7, 2, 4)),
        (980.0, Heartbeat()),
        (990.0, Missed("timeout")),
        (NOW, Sample({"http": 2}, 10, 0.0)),
    ):
        measurements.turn(int(at))
        measurements.take(report, at)
    measurements.usual.sample(measurements.evidence(NOW), NOW)
    controller = _controller(CONTAINERS["up"], measurements, Weight(73, moving=True))
    controller.ids.current = {"": "boot-1", "page:": "page:17"}
    controller.ids.ended.extend(["boot-0"])
    found = _loaded(_dumped(controller))
    assert found.measurements.evidence(NOW + 3) == measurements.evidence(NOW + 3)
    assert found.measurements.success_rate(NOW + 3) == measurements.success_rate(NOW + 3)
    assert (found.measurements.in_flight, found.measurements.idle_at) == (0.0, NOW)
    later = NOW + 180
    assert found.measurements.usual.rates(later) == measurements.usual.rates(later) == pytest.approx((5.0, 5 / 19))
    assert found.weight == Weight(73, moving=True)
    assert (found.ids.current, [*found.ids.ended]) == (controller.ids.current, ["boot-0"])


def test_measurements_of_a_version_without_usual_rates_are_used() -> None:
    dumped = _dumped(_controller(CONTAINERS["up"]))
    del dumped["measurements"]["usual"]
    assert _loaded(dumped).measurements.usual.rates(NOW) == (0.0, 0.0)


def test_longer_window_of_the_standby_holds_what_the_shorter_held() -> None:
    measurements = Measurements(60, int(NOW))
    measurements.take(ErrorReport(3), NOW)
    found = _loaded(_dumped(_controller(UP, measurements)), window_s=600).measurements
    found.turn(int(NOW) + 599)
    assert found.evidence(NOW + 599).errors == 3
    found.turn(int(NOW) + 600)
    assert found.evidence(NOW + 600).errors == 0


@pytest.mark.parametrize("latch", [LATCH, replace(LATCH, claim_id="web/a/boot-0")], ids=["none", "another"])
def test_latch_on_disk_wins_over_none_and_over_another(latch: Latch) -> None:
    disk = replace(CONTAINERS["down"], latch=latch)
    told = CONTAINERS["up"] if latch is LATCH else CONTAINERS["draining"]
    ids = IncarnationIds(disk.app_start, socket="4711")
    found = state_transfer.merge(disk, ids, _loaded(_dumped(_controller(told))))
    assert (found.container, found.ids.socket) == (disk, "4711")


def test_ended_latch_holds_no_more_though_the_disk_still_has_it() -> None:
    dumped = state_transfer.dump(
        _controller(CONTAINERS["up"]), NOW, POLICY, ended_latches=[state_transfer.latch_id(LATCH)]
    )
    found = state_transfer.merge(CONTAINERS["down"], IncarnationIds(), _loaded(dumped))
    assert found.container == CONTAINERS["up"]


def test_transferred_latch_goes_on_if_the_disk_has_the_same_or_none() -> None:
    told = _loaded(_dumped(_controller(CONTAINERS["draining"])))
    assert state_transfer.merge(CONTAINERS["down"], IncarnationIds(), told).container == CONTAINERS["draining"]
    assert state_transfer.merge(CONTAINERS["starting"], IncarnationIds(), told).container == CONTAINERS["draining"]


def test_other_app_other_mode_and_other_format_are_refused() -> None:
    dumped = _dumped(_controller(CONTAINERS["down"]))
    with pytest.raises(RefusedError, match="mode"):
        _loaded(dumped, policy=replace(POLICY, enforce=False))
    with pytest.raises(RefusedError, match="format 2"):
        _loaded({**dumped, "format": 2})
    dumped["container"]["app"] = "web/b"
    with pytest.raises(RefusedError, match="web/b"):
        _loaded(dumped)


SPOILT: Final = [
    ("container", None),
    ("container", {"is": "Latch", "claim_id": "x", "at": 1, "reason": "r"}),
    ("container.state", "stopping"),
    ("container.state", "asleep"),
    ("container.is", "Popen"),
    ("container.since", "long ago"),
    ("container.incarnation", 7),
    ("container.unheard_of", 1),
    ("measurements", {}),
    ("measurements.errors.buckets", [[0, {"redis": -1}]]),
    ("measurements.errors.buckets", [[0, {"redis": "many"}]]),
    ("measurements.errors.buckets", [[float("nan"), {"redis": 1}]]),
    ("measurements.errors.age_s", float("inf")),
    ("measurements.in_flight", "some"),
    ("measurements.usual", [[0, 1, -1, 0]]),
    ("measurements._successes.ring", [[1, 2]] * 6),
    ("measurements._successes.ring", [[2, 1]]),
    ("weight.percent", 0),
    ("weight.percent", 101),
    ("weighed_age_s", None),
    ("ids", ["boot-1"]),
    ("ended_ids", None),
]


@pytest.mark.parametrize(("path", "value"), SPOILT, ids=[f"{path}={value}" for path, value in SPOILT])
def test_broken_state_is_refused_as_a_whole(path: str, value: object) -> None:
    dumped = _dumped(_controller(CONTAINERS["up"]))
    *above, last = path.split(".")
    place = dumped
    for name in above:
        place = place[name]
    place[last] = value
    with pytest.raises(RefusedError):
        _loaded(dumped)


REPORTS: Final = st.one_of(
    st.builds(ErrorReport, st.integers(0, 5), kind=st.sampled_from(["redis", "http", "disk"])),
    st.builds(Results, st.integers(0, 20), st.integers(0, 20), st.none() | st.integers(0, 3)),
    st.builds(Missed, st.just("timeout")),
    st.builds(Heartbeat),
)
STORIES: Final = st.lists(st.tuples(st.floats(0, 20), REPORTS), max_size=30)


@given(STORIES, st.floats(0, 3), STORIES)
@pytest.mark.site
def test_transferred_measurements_go_on_as_the_first_would_have(
    before: list[tuple[float, Any]], takes_s: float, after: list[tuple[float, Any]]
) -> None:
    first, now = Measurements(60, 0), 0.0
    for seconds, report in before:
        now += seconds
        first.turn(int(now))
        first.take(report, now)
    second = Measurements(60, 0)
    second.thaw(json.loads(json.dumps(first.freeze(now))), now)
    for seconds, report in [(takes_s, Heartbeat()), *after]:
        now += seconds
        for measurements in (first, second):
            measurements.turn(int(now))
            measurements.take(report, now)
        left, right = first.evidence(now), second.evidence(now)
        assert replace(left, heartbeat_age_s=None) == replace(right, heartbeat_age_s=None)
        assert first.success_rate(now) == second.success_rate(now)
        assert first.errors.ever() == second.errors.ever()
