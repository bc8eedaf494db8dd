"""Which conditions make a message, and when an alert begins and ends."""

from __future__ import annotations

from dataclasses import replace

import pytest

from sidecar.core.life.container import Container
from sidecar.core.life.snapshot import Record
from sidecar.core.types import (
    CauseTrial,
    Entry,
    Evidence,
    Fleet,
    Hold,
    Latch,
    State,
    Unknown,
)
from sidecar.notify.alerts import REDIS_AWAY_S, Alert, Alerts

QUIET_S = 60.0
AWAY = Unknown("connection")
CALM = Fleet(10)
PAUSED = CauseTrial("redis", 1, 0, 540.0, 1)
FAILED = Entry("action_failed", 1.0, reason="command", detail="exit code 5:\n unit not found")


def alerts(*, scrapes: bool = False) -> Alerts:
    """A sidecar whose first look is over."""
    made = Alerts("a", quiet_s=QUIET_S, honour_s=300.0, scrapes=scrapes)
    assert looked(made, CALM, 0.0) == []
    return made


def looked(seen: Alerts, answer: Fleet | Unknown, now: float) -> list[Alert]:
    seen.beaten(answer, now)
    return seen.due(now)


def words(seen: Alerts, answer: Fleet | Unknown, now: float) -> list[str]:
    return [one.word for one in looked(seen, answer, now)]


@pytest.mark.parametrize(
    ("answer", "word", "sentence"),
    [
        (
            Fleet(10, suspect=1, used=5, capacity=5),
            "budget_empty",
            "All 5 tokens of the budget are in use, and 1 of 10",
        ),
        (Fleet(10, used=5, capacity=5), "", "nobody wants a token"),
        (Fleet(10, suspect=1, used=4, capacity=5), "", "one is left"),
        (Fleet(10, suspect=1), "", "the capacity is not known"),
        (Fleet(10, suspect=1, trials=(PAUSED,)), "paused", "Culls for redis did not help: they are paused for 9m."),
        (
            Fleet(10, suspect=8, cause="redis", trials=(PAUSED,)),
            "paused_shared",
            "Most of the 8 suspects of 10 containers have it. An engineer has to look.",
        ),
        (Fleet(10, suspect=1, trials=(CauseTrial("redis", 1, 1),)), "", "not paused"),
        (Fleet(10, hold=Hold("alice", "deploy", 9.0)), "hold", "No culls: alice holds the service: deploy."),
    ],
)
def test_condition_of_the_fleet_is_a_message(answer: Fleet, word: str, sentence: str) -> None:
    due = looked(alerts(), answer, 10.0)
    assert [one.word for one in due] == [word] * bool(word), sentence
    assert all(sentence in one.sentence for one in due)


def test_alert_begins_again_only_after_a_quiet_time() -> None:
    seen, on = alerts(), Fleet(10, hold=Hold("alice", "", 9.0))
    assert words(seen, on, 10.0) == ["hold"]
    assert words(seen, on, 50.0) == []
    assert words(seen, CALM, 60.0) == []
    assert words(seen, on, 50.0 + QUIET_S - 1) == [], "it was never over"
    last = 50.0 + QUIET_S - 1
    assert words(seen, CALM, last + QUIET_S) == []
    assert words(seen, on, last + QUIET_S + 1) == ["hold"]


def test_each_paused_cause_is_an_alert_of_its_own() -> None:
    seen, other = alerts(), PAUSED._replace(cause="mysql")
    assert words(seen, Fleet(10, suspect=1, trials=(PAUSED,)), 10.0) == ["paused"]
    (second,) = looked(seen, Fleet(10, suspect=1, trials=(PAUSED, other)), 20.0)
    assert (second.topic, second.cause) == ("paused:mysql", "mysql")


def test_pause_that_ends_during_the_trouble_is_not_the_end() -> None:
    seen, over = alerts(), Fleet(10, suspect=3, trials=(PAUSED._replace(paused_s=0.0),))
    assert words(seen, Fleet(10, suspect=3, trials=(PAUSED,)), 10.0) == ["paused"]
    for now in range(20, 400, 10):
        assert words(seen, over, float(now)) == []
    assert words(seen, Fleet(10, suspect=3, trials=(PAUSED,)), 400.0) == []
    for now in range(410, 500, 10):
        assert words(seen, replace(over, suspect=0), float(now)) == [], "nobody is sick: it is over"
    assert words(seen, Fleet(10, suspect=3, trials=(PAUSED,)), 500.0) == ["paused"]


def test_condition_that_lasts_at_the_first_look_is_no_news() -> None:
    on = Fleet(10, hold=Hold("alice", "", 9.0))
    late = Alerts("a", quiet_s=QUIET_S, honour_s=300.0, scrapes=False)
    assert words(late, on, 0.0) == words(late, on, 100.0) == []
    back = alerts()
    assert words(back, AWAY, 10.0) == []
    assert words(back, on, QUIET_S + 10.0) == [], "after a time in which others have seen it begin"


def test_nothing_begins_or_ends_while_redis_is_away() -> None:
    seen, on = alerts(), Fleet(10, hold=Hold("alice", "", 9.0))
    assert words(seen, on, 10.0) == ["hold"]
    for now in range(20, 200, 10):
        assert words(seen, AWAY, float(now)) == []
    assert words(seen, on, 200.0) == []


def test_redis_is_away_after_five_minutes_and_once() -> None:
    seen = alerts()
    assert words(seen, AWAY, REDIS_AWAY_S - 1) == []
    (one,) = looked(seen, AWAY, REDIS_AWAY_S)
    assert one.sentence.startswith("No answer from Redis for 5 min, no container can be culled: ")
    assert words(seen, AWAY, REDIS_AWAY_S + 100) == []
    never = Alerts("a", quiet_s=QUIET_S, honour_s=300.0, scrapes=False)
    assert words(never, AWAY, 0.0) == words(never, AWAY, 1000.0) == [], "nobody is elected to say so"


# -- the own container ------------------------------------------------------------------------------------------------


def down(since: float, *, evidence: Evidence, lease: str = "") -> Record:
    container = Container(State.DOWN, since, "web/a", latch=Latch("id", 0.0, "why", lease))
    return Record((), container, evidence)


SILENT = Evidence(60)


@pytest.mark.parametrize(
    ("evidence", "scrapes", "is_there"),
    [
        (SILENT, False, False),
        (replace(SILENT, errors=1), False, True),
        (replace(SILENT, requests=1), False, True),
        (replace(SILENT, heartbeat_age_s=59.0), False, True),
        (replace(SILENT, heartbeat_age_s=61.0), False, False),
        (SILENT, True, True),
        (replace(SILENT, missed_scrapes=1), True, False),
    ],
)
def test_app_that_is_still_there_long_after_its_cull_is_told(
    evidence: Evidence, *, scrapes: bool, is_there: bool
) -> None:
    seen = alerts(scrapes=scrapes)
    for now in (100.0, 400.0):
        seen.step(down(100.0, evidence=evidence), now)
        assert words(seen, CALM, now) == []
    seen.step(down(100.0, evidence=evidence), 401.0)
    assert words(seen, CALM, 401.0) == ["not_honoured"] * is_there


def test_action_that_failed_is_told_once_until_the_container_is_up() -> None:
    seen = alerts()
    seen.acted(FAILED)
    (one,) = looked(seen, AWAY, 10.0)
    assert (
        "The action command of a failed: exit code 5: unit not found. The container is out of service" in one.sentence
    )
    assert words(seen, AWAY, 20.0) == []
    up = Container(State.UP, 30.0, "web/a")
    seen.step(Record((), up, SILENT), 30.0)
    assert words(seen, AWAY, 30.0) == []
    seen.acted(FAILED)
    assert words(seen, AWAY, 31.0) == [], "it is up: nobody has to restart it"
    seen.step(down(40.0, evidence=SILENT), 40.0)
    seen.acted(FAILED)
    assert words(seen, AWAY, 41.0) == ["action_failed"], "at once, another cull"
