"""What an answer to a beat shows to have happened since the last one."""

from __future__ import annotations

from dataclasses import replace

import pytest

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
)
from sidecar.core.types import Hold

CALM = Fleet(10)
HOLD = Hold("ann", "deploy", 1_700_000_000.0)
TRIED = CauseTrial("mysql", 2, 1)
PAUSED = CauseTrial("redis", 1, 0, 540.0, 2)
PAUSE_OVER = PAUSED._replace(paused_s=0.0)

ROWS: list[tuple[str, dict[str, object], dict[str, object], list[FleetEvent]]] = [
    ("paused", {}, {"trials": (TRIED, PAUSED)}, [CausePaused(PAUSED)]),
    ("paused again", {"trials": (PAUSE_OVER,)}, {"trials": (PAUSED,)}, [CausePaused(PAUSED)]),
    ("paused for longer", {"trials": (PAUSED._replace(failures=1),)}, {"trials": (PAUSED,)}, [CausePaused(PAUSED)]),
    ("a pause that goes on", {"trials": (PAUSED,)}, {"trials": (PAUSED._replace(paused_s=530.0),)}, []),
    ("pause over", {"trials": (PAUSED,)}, {"trials": (PAUSE_OVER,)}, [PauseEnded("redis")]),
    ("pause forgotten", {"trials": (PAUSED,)}, {}, [PauseEnded("redis")]),
    ("duplicate", {}, {"duplicate": True}, [Duplicated()]),
    ("duplicate as before", {"duplicate": True}, {"duplicate": True}, []),
    ("no duplicate any more", {"duplicate": True}, {}, [DuplicateEnded()]),
    ("settings differ", {}, {"settings": 2}, [SettingsDiffer(2)]),
    ("settings alike again", {"settings": 2}, {}, []),
    ("process unknown", {}, {"tells_process": False}, [ProcessUnknown()]),
    ("data lost", {"losses": 1}, {"losses": 2}, [DataLost(replace(CALM, losses=2))]),
    ("losses forgotten", {"losses": 2}, {"losses": 1}, []),
    ("hold", {}, {"hold": HOLD}, [HoldBegan(HOLD)]),
    ("same hold", {"hold": HOLD}, {"hold": HOLD}, []),
    ("another hold", {"hold": HOLD}, {"hold": replace(HOLD, until=1.0)}, [HoldBegan(replace(HOLD, until=1.0))]),
    ("hold ended", {"hold": HOLD}, {}, [HoldEnded()]),
    ("hold lost", {"hold": HOLD}, {"lost_hold": HOLD}, [HoldEnded(), HoldLost(HOLD)]),
    ("hold lost as before", {"lost_hold": HOLD}, {"lost_hold": HOLD}, []),
    ("numbers", {}, {"alive": 9, "suspect": 1, "down": 1, "helped": 1, "unhelped": 1, "median_errors": 4}, []),
]


@pytest.mark.parametrize(("before", "after", "events"), [row[1:] for row in ROWS], ids=[row[0] for row in ROWS])
def test_each_change_of_the_fleet_is_an_event(
    before: dict[str, object], after: dict[str, object], events: list[FleetEvent]
) -> None:
    assert list(changes(replace(CALM, **before), replace(CALM, **after))) == events  # type: ignore[arg-type]  # a table


def test_first_answer_shows_what_is_unusual_and_no_loss_of_earlier_times() -> None:
    record = FleetWatch().record(replace(CALM, losses=7, duplicate=True), 0.0)
    assert (record.events, record.is_first) == ((Duplicated(),), True)


def test_store_is_away_once_and_the_fleet_is_compared_with_how_it_was_before() -> None:
    watch = FleetWatch()
    answers: list[Fleet | Unknown] = [CALM, Unknown("timeout"), Unknown("connection"), replace(CALM, losses=1), CALM]
    records = [watch.record(answer, float(second)) for second, answer in enumerate(answers)]
    assert [record.events for record in records] == [
        (),
        (StoreAway("timeout"),),
        (),
        (StoreBack(2.0), DataLost(replace(CALM, losses=1))),
        (),
    ]
    assert [record.answer for record in records] == answers
