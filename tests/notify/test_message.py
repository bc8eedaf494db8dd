"""The fields of a message, its text, and the containers that it names."""

from __future__ import annotations

from typing import Any

import pytest

from harness import receiver
from sidecar.config.settings import IdentityConfig, NotifyConfig
from sidecar.core.claims import Presence
from sidecar.core.fleet.members import Member
from sidecar.notify.alerts import Alert
from sidecar.notify.message import concerned, fields_of

OWN = IdentityConfig("shop.web", "default", "n1", mode="enforce")
LINKS = NotifyConfig(runbook_url="https://wiki/runbooks.md")
PAUSED = Alert("paused:redis", "paused", "Culls for redis did not help.", cause="redis")


def fields(alert: Alert = PAUSED, own: IdentityConfig = OWN, **about: Any) -> dict[str, str]:
    return fields_of(alert, own, LINKS, 1_772_357_400.412, **about)


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
