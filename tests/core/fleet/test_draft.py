"""What a decision counts and writes: the cause that most suspects share, and when a row is over by itself."""

from __future__ import annotations

from typing import Any

import pytest

from harness.rule_fleet import draft_of
from sidecar.core.fleet.draft import common_cause
from sidecar.core.fleet.records import Cull, FleetState, HoldRow, Slot, Trial
from sidecar.core.fleet.view import View
from sidecar.core.types import US_PER_S

S = US_PER_S
NOW = 10_000 * S


@pytest.mark.parametrize(
    ("causes", "cause"),
    [
        ({}, ""),
        ({"redis": 2}, ""),
        ({"redis": 3}, "redis"),
        ({"redis": 3, "disk": 1}, ""),
        ({"redis": 4, "disk": 1}, "redis"),
        ({"redis": 4, "disk": 1, "net": 1}, ""),
        ({"redis": 3, "disk": 3}, ""),
    ],
)
def test_common_cause_is_that_of_three_and_of_four_fifths(causes: dict[str, int], cause: str) -> None:
    assert common_cause(causes) == cause


def with_cull(**fields: Any) -> View:
    return View(NOW, culls={"a": Cull(at_us=NOW, **fields)})


def with_trial(**fields: Any) -> View:
    return View(NOW, FleetState(trials={"redis": Trial(last_us=NOW, began_us=1, **fields)}), causes={"redis": 1})


@pytest.mark.parametrize(
    ("view", "due_us"),
    [
        pytest.param(View(NOW), 0, id="nothing"),
        pytest.param(with_cull(), NOW + 600 * S + 1, id="cull"),
        pytest.param(with_cull(down_us=NOW + 50 * S), NOW + 650 * S + 1, id="cull, its sidecar says that it is down"),
        pytest.param(with_cull(since_us=NOW + 70 * S, phase="over"), NOW + 670 * S + 1, id="outcome"),
        pytest.param(
            with_cull(down_us=NOW + 90 * S, since_us=NOW + 70 * S, phase="watched"),
            NOW + 730 * S + 1,
            id="replacement: a probation more",
        ),
        pytest.param(with_trial(), NOW + 3600 * S + 1, id="cause: an hour"),
        pytest.param(
            with_trial(paused_us=NOW, pause_us=9 * S), NOW + 3609 * S + 1, id="cause, an hour after its pause"
        ),
        pytest.param(with_trial(paused_us=NOW - 10 * S, pause_us=9 * S), NOW + 3600 * S + 1, id="earlier pause"),
        pytest.param(View(NOW, leases={"a": Slot(at_us=NOW, for_us=5 * S)}), NOW + 5 * S, id="lease"),
        pytest.param(View(NOW, holds={"": HoldRow("ada", "look", NOW, 700 * S)}), NOW + 700 * S, id="hold"),
        pytest.param(View(NOW, holds={"": HoldRow("", "", NOW, 0)}), NOW + 600 * S, id="end of a hold"),
    ],
)
def test_next_decision_is_due_when_the_first_row_is_over(view: View, due_us: int) -> None:
    draft = draft_of(view)
    draft.outcomes["helped|redis"] = 1
    state = draft.edits().state
    assert state is not None
    assert state.due_us == due_us


def test_nothing_is_written_where_only_the_time_or_other_settings_would_change_the_state() -> None:
    assert not draft_of(View(NOW, FleetState(due_us=NOW + S, retiring=3))).edits()


@pytest.mark.parametrize(
    ("alive", "culls", "available", "missing"),
    [
        pytest.param(3, {}, 3, 0, id="nothing granted"),
        pytest.param(3, {"a": Cull(incarnation="1")}, 2, 1, id="granted"),
        pytest.param(3, {"a": Cull(incarnation="0")}, 3, 1, id="another incarnation beats"),
        pytest.param(3, {"a": Cull(incarnation="1", phase="watched")}, 3, 0, id="replaced"),
        pytest.param(3, {"gone": Cull(incarnation="1")}, 3, 1, id="no longer beats"),
        pytest.param(0, {"a": Cull(incarnation="1")}, 0, 1, id="never below 0"),
    ],
)
def test_container_is_missing_and_not_available_from_its_grant_to_its_replacement(
    alive: int, culls: dict[str, Cull], available: int, missing: int
) -> None:
    draft = draft_of(View(NOW, culls=culls, alive=alive, beating={"a": "1"}))
    assert (draft.available, draft.missing, draft.fleet) == (available, missing, available + missing)


@pytest.mark.parametrize(
    ("newest_us", "grant_us", "is_ahead"),
    [(NOW, NOW, False), (NOW + S, NOW, False), (NOW + S + 1, NOW, True), (NOW, NOW + S + 1, True)],
)
def test_store_that_holds_the_future_has_stepped_back(newest_us: int, grant_us: int, *, is_ahead: bool) -> None:
    assert View(NOW, newest_us=newest_us, grants={"a": grant_us}).is_ahead is is_ahead
