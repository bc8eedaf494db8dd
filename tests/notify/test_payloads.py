"""What is sent: each payload against the receiver's documented rules, also with hostile words in it."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from pathlib import Path

import pytest

from harness import receiver
from sidecar.config import webhook_template
from sidecar.core.explain import reasons
from sidecar.notify import payloads
from sidecar.notify.episodes import Notification
from sidecar.notify.message import Context, Message
from sidecar.notify.rules import LEVELS, Severity

CONTEXT = Context("shop.web", "prod", "a1", "enforce", "https://wiki/runbooks.md", "https://page")
PLAIN = Notification(
    "paused", "paused", Severity.WARNING, "Culls for redis are paused.", 0.0, {"alive": 10, "cause": "redis"}
)
HOSTILE = '<!channel> & "quotes" \\ {"a": 1} \n$sentence ${word} ' + "x" * 5000


def message(notification: Notification = PLAIN, context: Context = CONTEXT) -> Message:
    return Message(notification, context, 1_700_000_000.0, 1_700_000_060.5)


def over(notification: Notification = PLAIN) -> Notification:
    return replace(notification, is_over=True)


def every_word() -> list[Notification]:
    return [
        replace(PLAIN, topic=topic, word=word, severity=severity)
        for topic, levels in LEVELS.items()
        for word, severity in levels
    ]


BAD = [
    replace(PLAIN, sentence=HOSTILE, facts={f"f{number}": HOSTILE for number in range(20)}),
    replace(PLAIN, sentence="&" * 5000, instance="<b>&" * 60),
]
CASES = [message(one) for one in [*every_word(), *BAD]]
CASES += [message(over(one)) for one in [PLAIN, *BAD]]
CASES += [message(one, Context("s" * 128, "n" * 128, "i" * 128, "shadow")) for one in [PLAIN, over(), *BAD]]


@pytest.mark.parametrize("sent", CASES, ids=range(len(CASES)))
def test_payloads_are_as_documented(sent: Message) -> None:
    assert receiver.check_webhook(payloads.webhook(sent)) == []
    assert receiver.check_slack(payloads.slack(sent)) == []
    assert receiver.check_pagerduty(payloads.pagerduty(sent, receiver.ROUTING_KEY)) == []
    assert receiver.check_alertmanager(payloads.alertmanager(sent, 240)) == []


def test_webhook_has_everything() -> None:
    assert payloads.webhook(message()) == {
        "status": "firing",
        "severity": "warning",
        "topic": "paused",
        "word": "paused",
        "sentence": "Culls for redis are paused.",
        "service": "shop.web",
        "namespace": "prod",
        "instance": "",
        "sender": "a1",
        "mode": "enforce",
        "began": "2023-11-14T22:13:20.000Z",
        "at": "2023-11-14T22:14:20.500Z",
        "key": "health-arbiter/prod/shop.web/paused",
        "runbook": "https://wiki/runbooks.md#paused",
        "page": "https://page",
        "facts": {"alive": 10, "cause": "redis"},
    }


@pytest.mark.parametrize(
    ("notification", "began"),
    [
        (PLAIN, "2023-11-14T22:13:20.000Z"),
        (over(), ""),
        (replace(PLAIN, word="paused_shared", level=2), ""),
        (replace(PLAIN, topic="redis", word="redis_unknown", is_over=True), "2023-11-14T22:13:20.000Z"),
    ],
    ids=["first", "over", "higher level", "over, of one sidecar"],
)
def test_beginning_is_given_where_no_other_sidecar_may_have_given_another(
    notification: Notification, began: str
) -> None:
    sent = payloads.webhook(message(notification))
    assert sent["began"] == began
    assert receiver.check_webhook(sent) == []


def test_pagerduty_gets_the_time_of_the_message_where_the_beginning_is_not_known() -> None:
    louder = payloads.pagerduty(message(replace(PLAIN, level=2)), receiver.ROUTING_KEY)
    assert louder["payload"]["timestamp"] == "2023-11-14T22:14:20.500Z"


# -- template ------------------------------------------------------------------------------------------------------


def test_template_stays_json_whatever_people_write() -> None:
    template = '{"text": "$severity: $sentence", "more": {"of": "${service}", "facts": "$facts", "cost": "$$5"}}'
    assert webhook_template.problem(template) == ""
    filled = json.loads(payloads.templated(template, message(BAD[0])))
    assert filled["text"] == f"warning: {HOSTILE}"
    assert filled["more"]["of"] == "shop.web"
    assert filled["more"]["cost"] == "$5"


def test_template_may_name_every_field_of_a_message() -> None:
    filled = payloads.templated("".join(f"${name} " for name in webhook_template.FIELDS), message(PLAIN))
    assert "$" not in filled
    assert {*webhook_template.FIELDS} == {*payloads.webhook(message(PLAIN))}


# -- Slack ---------------------------------------------------------------------------------------------------------


def test_slack_mentions_no_channel_that_an_author_wrote() -> None:
    sent = json.dumps(payloads.slack(message(replace(PLAIN, sentence="<!channel> held by <@U1>"))))
    assert "<!" not in sent
    assert "<@" not in sent
    assert "&lt;!channel&gt;" in sent


def test_slack_never_halves_an_entity() -> None:
    text = payloads.slack(message(replace(PLAIN, sentence="x" * 2996 + "&&&&")))["blocks"][1]["text"]["text"]
    assert len(text) <= 3000
    assert text.endswith("x…")


def test_slack_repeats_no_fact_of_the_sentence() -> None:
    facts = {"causes": "redis", "paused_s": 60, "cause": "redis", "sample": "1 x redis: lost", "containers": "a, b"}
    blocks = payloads.slack(message(replace(PLAIN, facts=facts)))["blocks"]
    (fields,) = (block["fields"] for block in blocks if "fields" in block)
    assert [field["text"] for field in fields] == ["containers: a, b", "cause: redis", "sample: 1 x redis: lost"]


def test_slack_links_to_runbook_and_page() -> None:
    foot = payloads.slack(message())["blocks"][-1]["elements"][0]["text"]
    assert "<https://wiki/runbooks.md#paused|runbook>" in foot
    assert "<https://page|status page>" in foot


def test_slack_says_that_it_is_over() -> None:
    sent = payloads.slack(message(over()))
    assert sent["text"].startswith("Recovered: shop.web")


# -- PagerDuty -----------------------------------------------------------------------------------------------------


def test_pagerduty_incident_can_be_resolved_by_any_sidecar() -> None:
    began = payloads.pagerduty(message(), receiver.ROUTING_KEY)
    ended = payloads.pagerduty(message(over(), CONTEXT._replace(instance="b2")), receiver.ROUTING_KEY)
    assert (began["event_action"], ended["event_action"]) == ("trigger", "resolve")
    assert began["dedup_key"] == ended["dedup_key"]
    assert ended.keys() == {"routing_key", "dedup_key", "event_action"}


@pytest.mark.parametrize(
    "other",
    [
        message(context=CONTEXT._replace(service="other")),
        message(context=CONTEXT._replace(namespace="other")),
        message(context=CONTEXT._replace(mode="shadow")),
        message(replace(PLAIN, topic="redis", word="redis_unknown")),
        message(replace(PLAIN, instance="a")),
    ],
    ids=["service", "namespace", "shadow", "topic", "instance"],
)
def test_other_things_have_other_keys(other: Message) -> None:
    assert other.key != message().key


def test_shadow_mode_says_so() -> None:
    shadow = message(context=CONTEXT._replace(mode="shadow"))
    assert shadow.sentence == "Shadow mode: Culls for redis are paused."
    assert shadow.key == "health-arbiter/prod/shop.web/shadow/paused"


def test_every_word_has_a_runbook_and_a_name_as_an_alert() -> None:
    words = {word for levels in LEVELS.values() for word, _ in levels}
    assert all(map(reasons.runbook, words))
    assert words == payloads.ALERTS.keys()


def test_alerts_are_named_as_those_of_prometheus_are() -> None:
    rules = (Path(__file__).parents[2] / "deploy/prometheus/alerts.yml").read_text()
    ours = set(payloads.ALERTS.values()) - {"ArbiterHeld", "ArbiterTest"}
    assert ours <= set(re.findall(r"alert: (\w+)", rules))


# -- Alertmanager --------------------------------------------------------------------------------------------------


def test_alertmanager_gets_no_end_of_a_higher_level() -> None:
    # One of the fleet repeats what it saw before the others saw that most suspects share the cause.
    assert [one["labels"]["alertname"] for one in payloads.alertmanager(message(PLAIN), 240)] == ["ArbiterCullsPaused"]


def test_alertmanager_gets_the_end_of_the_lower_levels() -> None:
    closed = replace(PLAIN, word="paused_shared", severity=Severity.CRITICAL)
    alerts = payloads.alertmanager(message(closed), 240)
    ends = {alert["labels"]["severity"]: alert["endsAt"] for alert in alerts}
    assert ends == {"warning": "2023-11-14T22:14:20.500Z", "critical": "2023-11-14T22:18:20.500Z"}
    assert {alert["labels"]["alertname"] for alert in alerts} == {"ArbiterCullsPaused", "ArbiterCullsPausedForMost"}


def test_alertmanager_gets_the_end_of_all_levels_when_it_is_over() -> None:
    ends = {alert["endsAt"] for alert in payloads.alertmanager(message(over()), 240)}
    assert ends == {"2023-11-14T22:14:20.500Z"}
