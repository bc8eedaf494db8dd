"""Which events make a message, in which words."""

from __future__ import annotations

from dataclasses import replace

import pytest

from harness.containers import begun
from sidecar.core.claims import CauseTrial, Denied, Fleet, Granted, Unknown
from sidecar.core.fleet.fleet_events import BeatRecord, FleetWatch
from sidecar.core.life.container import Record
from sidecar.core.life.events import NotHonoured, TokenAnswered
from sidecar.core.types import Entry, Evidence, Hold
from sidecar.notify.alerts import Alert, of_action, of_beat, of_step

CALM = Fleet(10)
PAUSED = CauseTrial("redis", 1, 0, 540.0, 1)
EMPTY = Denied("window", 5, 5, 200.0, 10, 6)


def after(*answers: Fleet | Unknown) -> list[Alert]:
    """The alerts of the last of these answers."""
    watch = FleetWatch()
    records = [watch.record(answer, float(second)) for second, answer in enumerate(answers)]
    return list(of_beat(records[-1]))


@pytest.mark.parametrize(
    ("answer", "word", "sentence"),
    [
        (Fleet(10, suspect=1, trials=(PAUSED,)), "paused", "Culls for redis did not help: they are paused for 9m."),
        (
            Fleet(10, suspect=8, cause="redis", trials=(PAUSED,)),
            "paused_shared",
            "Most of 8 suspects of 10 containers have it. An engineer has to look.",
        ),
        (Fleet(10, suspect=1, trials=(CauseTrial("redis", 1, 1),)), "", "not paused"),
        (Fleet(10, hold=Hold("alice", "deploy", 9.0)), "hold", "No culls: alice holds the service: deploy."),
    ],
)
def test_event_of_the_fleet_is_a_message(answer: Fleet, word: str, sentence: str) -> None:
    alerts = after(CALM, answer)
    assert [alert.word for alert in alerts] == [word] * bool(word), sentence
    assert all(sentence in alert.sentence for alert in alerts)
    assert after(CALM, answer, answer) == after(CALM, Unknown("connection"), answer, answer) == []
    assert after(answer) == [], "the others have sent it"


def test_claims_tell_apart_what_is_a_message_of_its_own() -> None:
    alerts = [
        *after(CALM, Fleet(10, trials=(PAUSED,))),
        *after(CALM, Fleet(10, trials=(PAUSED._replace(failures=2),))),
        *after(CALM, Fleet(10, trials=(PAUSED._replace(cause="mysql"),))),
        *after(CALM, Fleet(10, hold=Hold("alice", "deploy", 9.0))),
        *after(CALM, Fleet(10, hold=Hold("alice", "deploy", 10.0))),
    ]
    assert len({alert.claim for alert in alerts}) == len(alerts) == 5
    assert [alert.topic for alert in alerts[:3]] == ["paused:redis", "paused:redis", "paused:mysql"]


def test_cull_that_is_not_honoured_and_an_action_that_failed_are_messages_about_the_container() -> None:
    (alert,) = of_step(Record((NotHonoured("id", 300.0),), begun(), Evidence(60)))
    assert (alert.instance, alert.word) == ("alloc", "not_honoured")
    assert alert.sentence == "alloc was culled 5 min ago and is still there: it has not been replaced."
    failed = of_action(Entry("action_failed", 1.0, reason="command", detail="exit code 5:\n unit not found"), "a")
    assert "The action command of a failed: exit code 5: unit not found. The container stays out" in failed.sentence
    assert (failed.instance, failed.claim) == ("a", "")


@pytest.mark.parametrize(
    ("event", "is_told"),
    [
        (TokenAnswered("id", EMPTY, 0.1), True),
        (TokenAnswered("id", EMPTY, 0.1, is_repeated=True), False),
        (TokenAnswered("id", EMPTY, 0.1, is_late=True), False),
        (TokenAnswered("id", replace(EMPTY, reason="trial"), 0.1), False),
        (TokenAnswered("id", Granted(5, 5), 0.1), False),
    ],
    ids=["refused", "again", "for another incarnation", "refused for another reason", "granted"],
)
def test_suspect_that_waits_for_a_token_is_a_message_that_says_when_the_next_one_comes(
    event: TokenAnswered, *, is_told: bool
) -> None:
    alerts = list(of_step(Record((event,), begun(), Evidence(60))))
    assert [(alert.word, alert.claim) for alert in alerts] == [("budget_empty", "budget")] * is_told
    for alert in alerts:
        assert alert.sentence == (
            "All 5 tokens of the window are in use, the next comes back in 3m 20s; 6 of 10 containers are suspect. "
            "An engineer has to look."
        )


def test_answer_without_events_is_no_message() -> None:
    assert list(of_beat(BeatRecord(Unknown("timeout")))) == list(of_step(Record((), begun(), Evidence(60)))) == []
