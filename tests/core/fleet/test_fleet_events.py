"""The fleet as an answer to a beat shows it, and what has happened since the last one."""

from __future__ import annotations

import pytest

from harness.rule_fleet import START_US, TERMS
from sidecar.core.claims import CauseTrial, Fleet, Unknown
from sidecar.core.fleet.fleet_events import (
    CausePaused,
    DataLost,
    Duplicated,
    DuplicateEnded,
    FleetEvent,
    FleetWatch,
    HoldBegan,
    HoldEnded,
    HoldLost,
    PauseEnded,
    ProcessUnknown,
    SettingsDiffer,
    StoreAway,
    StoreBack,
    changes,
    fleet_of,
)
from sidecar.core.fleet.records import Epoch, FleetState, HoldRow, Trial
from sidecar.core.fleet.view import BeatReply
from sidecar.core.types import US_PER_S, Hold

S = US_PER_S
NOW = START_US
HEARD = BeatReply(NOW, alive=10, epoch=Epoch(losses=1))
CALM = Fleet(10)
HOLD = Hold("ann", "deploy", 1_700_000_000.0)
TRIED = CauseTrial("mysql", 2, 1)
PAUSED = CauseTrial("redis", 1, 0, 540.0, 2)
ENDING = PAUSED._replace(paused_s=0.5)
PAUSE_OVER = PAUSED._replace(paused_s=0.0)

ROWS: list[tuple[str, dict[str, object], dict[str, object], list[FleetEvent]]] = [
    ("paused", {}, {"trials": (TRIED, PAUSED)}, [CausePaused(PAUSED)]),
    ("paused again", {"trials": (PAUSE_OVER,)}, {"trials": (PAUSED,)}, [CausePaused(PAUSED)]),
    ("paused for longer", {"trials": (PAUSED._replace(failures=1),)}, {"trials": (PAUSED,)}, [CausePaused(PAUSED)]),
    ("paused to the last", {}, {"trials": (ENDING,)}, [CausePaused(ENDING)]),
    ("the last of a pause", {"trials": (ENDING,)}, {"trials": (ENDING._replace(paused_s=0.2),)}, []),
    ("a pause that goes on", {"trials": (PAUSED,)}, {"trials": (PAUSED._replace(paused_s=530.0),)}, []),
    ("pause over", {"trials": (PAUSED,)}, {"trials": (PAUSE_OVER,)}, [PauseEnded("redis")]),
    ("pause forgotten", {"trials": (PAUSED,)}, {}, [PauseEnded("redis")]),
    ("duplicate", {}, {"duplicate": True}, [Duplicated()]),
    ("duplicate as before", {"duplicate": True}, {"duplicate": True}, []),
    ("no duplicate any more", {"duplicate": True}, {}, [DuplicateEnded()]),
    ("settings differ", {}, {"settings": 2}, [SettingsDiffer(2)]),
    ("settings alike again", {"settings": 2}, {}, []),
    ("process unknown", {}, {"tells_process": False}, [ProcessUnknown()]),
    ("data lost", {"losses": 1}, {"losses": 2}, [DataLost(CALM._replace(losses=2))]),
    ("losses forgotten", {"losses": 2}, {"losses": 1}, []),
    ("hold", {}, {"hold": HOLD}, [HoldBegan(HOLD)]),
    ("same hold", {"hold": HOLD}, {"hold": HOLD}, []),
    ("another hold", {"hold": HOLD}, {"hold": HOLD._replace(until=1.0)}, [HoldBegan(HOLD._replace(until=1.0))]),
    ("hold ended", {"hold": HOLD}, {}, [HoldEnded()]),
    ("hold lost", {"hold": HOLD}, {"lost_hold": HOLD}, [HoldEnded(), HoldLost(HOLD)]),
    ("hold lost as before", {"lost_hold": HOLD}, {"lost_hold": HOLD}, []),
    ("numbers", {}, {"alive": 9, "suspect": 1, "down": 1, "helped": 1, "unhelped": 1, "median_errors": 4}, []),
]


@pytest.mark.parametrize(("before", "after", "events"), [row[1:] for row in ROWS], ids=[row[0] for row in ROWS])
def test_each_change_of_the_fleet_is_an_event(
    before: dict[str, object], after: dict[str, object], events: list[FleetEvent]
) -> None:
    assert list(changes(CALM._replace(**before), CALM._replace(**after))) == events  # type: ignore[arg-type]  # a table


def test_first_answer_shows_what_is_unusual_and_no_loss_of_earlier_times() -> None:
    record = FleetWatch().record(CALM._replace(losses=7, duplicate=True), 0.0)
    assert (record.events, record.is_first) == ((Duplicated(),), True)


def test_store_is_away_once_and_the_fleet_is_compared_with_how_it_was_before() -> None:
    watch = FleetWatch()
    answers: list[Fleet | Unknown] = [CALM, Unknown("timeout"), Unknown("connection"), CALM._replace(losses=1), CALM]
    records = [watch.record(answer, float(second)) for second, answer in enumerate(answers)]
    assert [record.events for record in records] == [
        (),
        (StoreAway("timeout"),),
        (),
        (StoreBack(2.0), DataLost(CALM._replace(losses=1))),
        (),
    ]
    assert [record.answer for record in records] == answers


# -- the fleet --------------------------------------------------------------------------------------------------------


def test_fleet_is_what_the_state_and_the_answer_to_the_beat_say() -> None:
    state = FleetState(
        trials={"redis": Trial(4), "disk": Trial(1, 2, NOW - S, 100 * S), "net": Trial(1, 0, NOW, 100 * S)},
        open_culls={"redis": 3},
        missing=2,
        retiring=1,
        outcomes={"helped|redis": 3, "unhelped|disk": 2, "unclear|a|b": 1},
    )
    counts = {"redis": 4, "disk": 1}
    reply = HEARD._replace(causes=counts, settings=2, median_errors=3, median_ratio=250_000, used=3, draining=3)
    fleet = fleet_of(reply._replace(state=state), TERMS, "me", duplicate=True)
    assert (fleet.alive, fleet.suspect, fleet.down, fleet.cause, fleet.retiring) == (10, 5, 2, "redis", 1)
    assert fleet.draining == 2, "of those that are down"
    assert fleet.trials == (
        CauseTrial("disk", 1, 0, 99.0, 2),
        CauseTrial("net", 1, 0, 0.0, 0),
        CauseTrial("redis", 4, 3),
    )
    assert (fleet.paused, fleet.settings, fleet.losses) == (("disk",), 2, 1)
    assert (fleet.helped, fleet.unhelped, fleet.unclear) == (3, 2, 1)
    assert fleet.culls_by == (("helped", "redis", 3), ("unclear", "a|b", 1), ("unhelped", "disk", 2))
    assert (fleet.used, fleet.capacity, fleet.duplicate) == (3, 10, True)
    assert (fleet.median_errors, fleet.median_ratio) == (3, 0.25)


@pytest.mark.parametrize(
    ("holds", "scope"),
    [
        (("", ""), None),
        (("service", "own"), ""),
        (("", "own"), "me"),
        (("over", "own"), "me"),
        (("end", "own"), "me"),
    ],
)
def test_hold_in_force_is_shown_that_of_the_service_first(holds: tuple[str, str], scope: str | None) -> None:
    rows = {
        "service": HoldRow("ada", "look", NOW - S, 60 * S),
        "own": HoldRow("ada", "look", NOW - S, 60 * S),
        "over": HoldRow("bob", "gone", NOW - 9 * S, S),
        "end": HoldRow("", "", NOW, 0),
    }
    held = {scope: rows[kind] for scope, kind in zip(("", "me"), holds, strict=True) if kind in rows}
    expected = None if scope is None else Hold("ada", "look", (NOW + 59 * S) / S, scope)
    assert fleet_of(HEARD._replace(holds=held), TERMS, "me").hold == expected


@pytest.mark.parametrize(
    ("alive", "errors", "ratio", "shown"), [(3, 0, 0, (0, 0)), (3, -1, -1, (None, None)), (2, 4, 5, (None, None))]
)
def test_medians_are_those_of_three_members_at_least_if_they_are_known(
    alive: int, errors: int, ratio: int, shown: tuple[object, object]
) -> None:
    fleet = fleet_of(HEARD._replace(alive=alive, median_errors=errors, median_ratio=ratio), TERMS, "me")
    assert (fleet.median_errors, fleet.median_ratio) == shown
