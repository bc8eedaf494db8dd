"""Which events make a message, in which words: its fields, its text, and the containers that it names."""

from __future__ import annotations

from typing import Any

import pytest

from harness import receiver
from harness.containers import begun
from sidecar.config.settings import IdentityConfig
from sidecar.core.claims import CauseTrial, Denied, Fleet, Granted, Presence, Unknown
from sidecar.core.fleet.fleet_events import BeatRecord, FleetWatch
from sidecar.core.fleet.members import Member
from sidecar.core.life.events import NotHonoured, TokenAnswered
from sidecar.core.life.snapshot import Record
from sidecar.core.types import Entry, Evidence, Hold
from sidecar.notify.messages import Alert, concerned, fields_of, of_action, of_beat, of_step

CALM = Fleet(10)
TRIAL = CauseTrial("redis", 1, 0, 540.0, 1)
EMPTY = Denied("window", 5, 5, 200.0, 10, 6)


def after(*answers: Fleet | Unknown) -> list[Alert]:
    """The alerts of the last of these answers."""
    watch = FleetWatch()
    records = [watch.record(answer, float(second)) for second, answer in enumerate(answers)]
    return list(of_beat(records[-1]))


@pytest.mark.parametrize(
    ("answer", "word", "sentence"),
    [
        (Fleet(10, suspect=1, trials=(TRIAL,)), "paused", "Culls for redis did not help: they are paused for 9m."),
        (
            Fleet(10, suspect=8, cause="redis", trials=(TRIAL,)),
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
        *after(CALM, Fleet(10, trials=(TRIAL,))),
        *after(CALM, Fleet(10, trials=(TRIAL._replace(failures=2),))),
        *after(CALM, Fleet(10, trials=(TRIAL._replace(cause="mysql"),))),
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
        (TokenAnswered("id", EMPTY._replace(reason="trial"), 0.1), False),
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


# -- the fields -------------------------------------------------------------------------------------------------------


OWN = IdentityConfig("shop.web", "default", "n1", mode="enforce")
PAUSED = Alert("paused:redis", "paused", "Culls for redis did not help.", cause="redis")


def fields(alert: Alert = PAUSED, own: IdentityConfig = OWN, **more: Any) -> dict[str, str]:
    return fields_of(alert, own, "https://wiki/runbooks.md", 1_772_357_400.412, **more)


def test_text_has_all_that_a_reader_needs() -> None:
    message = fields(containers=["n1", "n2"], cause="redis", sample="5 x redis: connection lost")
    assert message["text"] == (
        "Warning: shop.web: Culls for redis did not help. Containers: n1, n2 (redis). Sample: 5 x redis: connection "
        "lost. Type: health-arbiter why n1 Runbook: https://wiki/runbooks.md#paused"
    )
    expected = {
        "severity": "warning",
        "word": "paused",
        "service": "shop.web",
        "sender": "n1",
        "mode": "enforce",
        "at": "2026-03-01T09:30:00.412Z",
        "key": "health-arbiter/default/shop.web/paused:redis",
    }
    assert message.items() >= expected.items()


def test_message_names_five_containers_at_most() -> None:
    assert fields(containers=list("abcdefg"))["containers"] == "a, b, c, d, e and 2 more"


def test_key_of_an_incident_has_the_mode_and_the_container() -> None:
    shadow = fields(Alert("action", "action_failed", "It failed.", "n1"), OWN._replace(mode="shadow"))
    assert shadow["key"] == "health-arbiter/default/shop.web/shadow/n1/action"
    assert shadow["sentence"] == "Shadow mode: It failed."


@pytest.mark.parametrize("reason", ["<!channel> & <@U1>", "@channel @all", "*bold* <http://evil|here>"])
def test_reason_of_a_person_notifies_no_channel(reason: str) -> None:
    shown = fields(Alert("hold", "hold", f"No culls: {reason}."))["text"]
    assert receiver.check_webhook({"text": shown}) == []
    assert "channel" not in reason or "channel" in shown


@pytest.mark.parametrize(
    ("alert", "containers", "command"),
    [
        (PAUSED, ["n1"], "health-arbiter why n1"),
        (PAUSED, [], "health-arbiter fleet"),
        (Alert("redis", "redis_unknown", "s"), [], "health-arbiter doctor"),
        (Alert("action", "action_failed", "s", "a b"), ["n1"], "health-arbiter why 'a b'"),
        (Alert("hold", "hold", "s", "n3"), [], "health-arbiter fleet"),
    ],
)
def test_command_is_the_one_to_type_first(alert: Alert, containers: list[str], command: str) -> None:
    assert fields(alert, containers=containers)["command"] == command


MEMBERS = (
    *(Member(f"o{at}", Presence.DOWN, "disk", 0.0) for at in range(3)),
    Member("n0", Presence.DOWN, "redis", 0.0),
    Member("n1", Presence.SUSPECT, "redis", 0.0),
    Member("n2", Presence.SUSPECT, "mysql", 0.0),
    Member("n3", Presence.SUSPECT, "mysql", 0.0),
    Member("n4", Presence.WELL, "", 0.0),
    Member("n5", Presence.SUSPECT, "", 0.0),
)
BUDGET = Alert("budget", "budget_empty", "s")


@pytest.mark.parametrize(
    ("alert", "members", "containers", "cause"),
    [
        (PAUSED, MEMBERS, ["n1", "n0"], "redis"),
        (BUDGET, MEMBERS, ["n1", "n2", "n3", "n5", "o0", "o1", "o2", "n0"], "mysql"),
        (BUDGET, MEMBERS[:4], ["o0", "o1", "o2", "n0"], "disk"),
        (Alert("not_honoured", "not_honoured", "s", "n0"), MEMBERS, ["n0"], "redis"),
        (BUDGET, (), [], ""),
    ],
    ids=["of the cause", "of most suspects", "all down", "of one container", "nobody"],
)
def test_message_is_about_the_containers_that_are_out_for_its_cause_suspects_first(
    alert: Alert, members: tuple[Member, ...], containers: list[str], cause: str
) -> None:
    assert concerned(alert, members) == (containers, cause)
