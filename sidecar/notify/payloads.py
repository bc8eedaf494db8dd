"""The payload of each receiver, as its documentation defines it, made from a message.

- PagerDuty, "Send an Alert Event" of the Events API v2: ``dedup_key`` up to 255 characters, ``summary`` up to 1024,
  four severities; a ``resolve`` needs the key alone.
- Slack, incoming webhooks and Block Kit: ``text`` is what notifications show, a section holds 3000 characters and 10
  fields of 2000, a header 150; ``&``, ``<`` and ``>`` are written as entities.
- Alertmanager, API v2: an array of alerts, identified by their labels; the sender repeats them while they last.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from sidecar.config import webhook_template
from sidecar.notify.episodes import Notification
from sidecar.notify.message import Message, rfc3339
from sidecar.notify.rules import LEVELS, Severity

MAX_SUMMARY: Final = 1024
MAX_SOURCE: Final = 255
MAX_SECTION: Final = 3000
MAX_FIELD: Final = 2000
MAX_HEADER: Final = 150
DETAILS: Final = ("containers", "cause", "sample")
"""The facts that a sender looks up, in the order in which Slack shows them."""

ALERTS: Final = {
    "budget_50": "ArbiterBudgetHalf",
    "budget_80": "ArbiterBudgetLow",
    "budget_empty": "ArbiterBudgetEmpty",
    "paused": "ArbiterCullsPaused",
    "paused_shared": "ArbiterCullsPausedForMost",
    "not_honoured": "ArbiterNotHonoured",
    "action_failed": "ArbiterActionFailed",
    "redis_unknown": "ArbiterRedisUnreachable",
    "hold": "ArbiterHeld",
    "test": "ArbiterTest",
}
"""The names of deploy/prometheus/alerts.yml, so that routes and silences match the alerts of both senders."""


def cut(text: str, most: int) -> str:
    """Cut a text to ``most`` characters."""
    return text if len(text) <= most else f"{text[: most - 1]}…"


# -- webhook -----------------------------------------------------------------------------------------------------------


def webhook(message: Message) -> dict[str, Any]:
    """Return all fields of a message, flat except for the facts."""
    return {**_flat(message), "facts": message.facts}


def templated(template: str, message: Message) -> str:
    """Fill in the operator's template."""
    facts = ", ".join(f"{name}: {value}" for name, value in message.facts.items())
    return webhook_template.filled(template, {**_flat(message), "facts": facts})


def _flat(message: Message) -> dict[str, str]:
    notification, context = message.notification, message.context
    return {
        "status": message.status,
        "severity": notification.severity.value,
        "topic": notification.topic,
        "word": notification.word,
        "sentence": message.sentence,
        "service": context.service,
        "namespace": context.namespace,
        "instance": notification.instance,
        "sender": context.instance,
        "mode": context.mode,
        "began": rfc3339(message.began) if notification.has_exact_start else "",
        "at": rfc3339(message.at),
        "key": message.key,
        "runbook": message.runbook,
        "page": context.page,
    }


# -- Slack -------------------------------------------------------------------------------------------------------------


def slack(message: Message) -> dict[str, Any]:
    """Return the blocks, and the text for notifications and screen readers."""
    notification, context = message.notification, message.context
    mark = "Recovered" if notification.is_over else notification.severity.value.capitalize()
    blocks: list[dict[str, Any]] = [
        {"type": "header", "text": {"type": "plain_text", "text": cut(f"{mark}: {context.service}", MAX_HEADER)}},
        {"type": "section", "text": {"type": "mrkdwn", "text": _mrkdwn(message.news, MAX_SECTION)}},
    ]
    # The sentence has all other facts.
    fields = [_mrkdwn(f"{name}: {message.facts[name]}", MAX_FIELD) for name in DETAILS if name in message.facts]
    if fields:
        blocks.append({"type": "section", "fields": [{"type": "mrkdwn", "text": text} for text in fields]})
    if message.command:
        run = f"Run `{_mrkdwn(message.command.replace('`', ''), MAX_FIELD)}`"
        blocks.append({"type": "section", "text": {"type": "mrkdwn", "text": run}})
    return {
        "text": _mrkdwn(f"{mark}: {context.service}: {message.news}{message.where}", MAX_SECTION),
        "blocks": [*blocks, {"type": "context", "elements": [{"type": "mrkdwn", "text": _foot(message)}]}],
    }


def _foot(message: Message) -> str:
    links = [("runbook", message.runbook), ("status page", message.context.page)]
    shown = [f"<{_escaped(url).replace('|', '%7C')}|{text}>" for text, url in links if url]
    place = _mrkdwn(f"{message.context.namespace}/{message.context.service}, {rfc3339(message.at)}", MAX_FIELD // 2)
    return " · ".join([place, *shown])


def _mrkdwn(text: str, most: int) -> str:
    """Escape, and cut without splitting an entity."""
    escaped = _escaped(text)
    if len(escaped) <= most:
        return escaped
    head = escaped[: most - 1]
    start = head.rfind("&")
    return f"{head[:start] if start >= 0 and ';' not in head[start:] else head}…"


def _escaped(text: str) -> str:
    return text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")


# -- PagerDuty ---------------------------------------------------------------------------------------------------------


def pagerduty(message: Message, routing_key: str) -> dict[str, Any]:
    """Return an alert event: ``trigger``, or ``resolve`` with the same key."""
    event = {"routing_key": routing_key, "dedup_key": message.key}
    if message.notification.is_over:
        return {**event, "event_action": "resolve"}
    notification, context = message.notification, message.context
    links = [("Runbook", message.runbook), ("Status page", context.page)]
    return {
        **event,
        "event_action": "trigger",
        "client": "health-arbiter",
        "links": [{"href": url, "text": text} for text, url in links if url],
        "payload": {
            "summary": cut(f"{context.service}: {message.sentence}{message.where}", MAX_SUMMARY),
            "source": cut(notification.instance or f"{context.namespace}/{context.service}", MAX_SOURCE),
            "severity": notification.severity.value,
            "timestamp": rfc3339(message.began if notification.has_exact_start else message.at),
            "component": context.service,
            "group": context.namespace,
            "class": notification.word,
            "custom_details": {**message.facts, "mode": context.mode, "sent_by": context.instance},
        },
    }


# -- Alertmanager ------------------------------------------------------------------------------------------------------


def alertmanager(message: Message, lasts_s: float) -> list[dict[str, Any]]:
    """Return the alert, and the end of those of lower severity: to Alertmanager each severity is an alert of its own.

    The alert ends by itself after ``lasts_s`` seconds unless it is sent again. Alertmanager keeps the earliest start.
    An alert of higher severity ends by itself, because this sender may not know of it yet.
    """
    notification = message.notification
    alerts = []
    for word, severity in _up_to(notification):
        is_firing = word == notification.word and not notification.is_over
        alert = {
            "labels": _labels(message, word, severity),
            "annotations": _annotations(message),
            "startsAt": rfc3339(message.began),
            "endsAt": rfc3339(message.at + lasts_s if is_firing else max(message.at, message.began)),
        }
        alerts.append(alert | ({"generatorURL": message.context.page} if message.context.page else {}))
    return alerts


def _up_to(notification: Notification) -> Sequence[tuple[str, Severity]]:
    """Return the levels of the topic up to the present one; all of them at the end of an episode."""
    levels = LEVELS[notification.topic]
    own = [word for word, _ in levels].index(notification.word)
    return levels if notification.is_over else levels[: own + 1]


def _labels(message: Message, word: str, severity: Severity) -> Mapping[str, str]:
    labels = {
        "alertname": ALERTS[word],
        "service": message.context.service,
        "namespace": message.context.namespace,
        "severity": severity.value,
        "word": word,
        "mode": message.context.mode,
    }
    return labels | ({"instance": message.notification.instance} if message.notification.instance else {})


def _annotations(message: Message) -> Mapping[str, str]:
    facts = ", ".join(f"{name}: {value}" for name, value in message.facts.items())
    annotations = {
        "summary": f"{message.context.service}: {message.sentence}",
        "description": facts,
        "runbook_url": message.runbook,
    }
    return {name: text for name, text in annotations.items() if text}
