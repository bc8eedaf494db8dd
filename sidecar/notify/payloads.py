"""What each receiver wants to be sent, as its own documentation has it. Pure: an occasion in, plain values out.

- PagerDuty, "Send an Alert Event" of the Events API v2: ``dedup_key`` up to 255 characters, ``summary`` up to 1024,
  four severities; a ``resolve`` needs the key alone.
- Slack, incoming webhooks and Block Kit: ``text`` is what notifications show, a section holds 3000 characters and 10
  fields of 2000, a header 150; ``&``, ``<`` and ``>`` are written as entities.
- Alertmanager, API v2: an array of alerts that are told apart by their labels; who sends repeats while they last.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from string import Template
from typing import Any, Final

from sidecar.notify.episodes import Occasion
from sidecar.notify.message import Context, Message, rfc3339
from sidecar.notify.rules import LEVELS, Severity

SUMMARY_MOST: Final = 1024
SOURCE_MOST: Final = 255
SECTION_MOST: Final = 3000
FIELD_MOST: Final = 2000
FIELDS_MOST: Final = 10
HEADER_MOST: Final = 150

ALERTS: Final = {
    "budget_50": "ArbiterBudgetHalf",
    "budget_80": "ArbiterBudgetLow",
    "budget_empty": "ArbiterBudgetEmpty",
    "paused": "ArbiterCullsPaused",
    "paused_shared": "ArbiterCullsPausedForMost",
    "not_honoured": "ArbiterNotHonoured",
    "redis_unknown": "ArbiterRedisUnreachable",
    "hold": "ArbiterHeld",
    "test": "ArbiterTest",
}
"""What Alertmanager knows an occasion as: the names of deploy/prometheus/alerts.yml, so that routes and silences are
of both.
"""

_HOSTILE: Final = 'a "quote", a \\ and a\nline'


def cut(text: str, most: int) -> str:
    """At most so many characters of a text."""
    return text if len(text) <= most else f"{text[: most - 1]}…"


# -- webhook -----------------------------------------------------------------------------------------------------------


def webhook(message: Message) -> dict[str, Any]:
    """Give everything that is known, flat but for the facts."""
    return {**_flat(message), "facts": message.facts}


def templated(template: str, message: Message) -> str:
    """Fill in a template. Every value is escaped as within a JSON string, so that text stays text."""
    facts = ", ".join(f"{name}: {value}" for name, value in message.facts.items())
    values = {**_flat(message), "facts": facts}
    return Template(template).substitute({name: json.dumps(value)[1:-1] for name, value in values.items()})


def template_problem(template: str) -> str:
    """Say why a template is of no use, or "" if it makes JSON whatever stands in a message."""
    context = Context(_HOSTILE, _HOSTILE, _HOSTILE, "enforce", _HOSTILE, _HOSTILE)
    occasion = Occasion("test", "test", Severity.WARNING, _HOSTILE, 0.0, {"author": _HOSTILE}, _HOSTILE)
    message = Message(occasion, context, 0.0, 0.0)
    try:
        json.loads(templated(template, message))
    except KeyError as unknown:
        return f"knows no field {unknown}, only {', '.join(sorted([*_flat(message), 'facts']))}"
    except ValueError as error:
        return f"is no JSON once it is filled in, fields belong within quotes: {error}"
    return ""


def _flat(message: Message) -> dict[str, str]:
    occasion, context = message.occasion, message.context
    return {
        "status": message.status,
        "severity": occasion.severity.value,
        "topic": occasion.topic,
        "word": occasion.word,
        "sentence": message.sentence,
        "service": context.service,
        "namespace": context.namespace,
        "instance": occasion.instance,
        "sender": context.instance,
        "mode": context.mode,
        "began": rfc3339(message.began) if occasion.is_since_the_spells else "",
        "at": rfc3339(message.at),
        "key": message.key,
        "runbook": message.runbook,
        "page": context.page,
    }


# -- Slack -------------------------------------------------------------------------------------------------------------


def slack(message: Message) -> dict[str, Any]:
    """Build what an incoming webhook takes: blocks, and the text that notifications and screen readers have."""
    occasion, context = message.occasion, message.context
    mark = "Recovered" if occasion.is_over else occasion.severity.value.capitalize()
    blocks: list[dict[str, Any]] = [
        {"type": "header", "text": {"type": "plain_text", "text": cut(f"{mark}: {context.service}", HEADER_MOST)}},
        {"type": "section", "text": {"type": "mrkdwn", "text": _mrkdwn(message.news, SECTION_MOST)}},
    ]
    fields = [_mrkdwn(f"{name}: {value}", FIELD_MOST) for name, value in message.facts.items()]
    if fields:
        shown = [{"type": "mrkdwn", "text": text} for text in fields[:FIELDS_MOST]]
        blocks.append({"type": "section", "fields": shown})
    return {
        "text": _mrkdwn(f"{mark}: {context.service}: {message.news}", SECTION_MOST),
        "blocks": [*blocks, {"type": "context", "elements": [{"type": "mrkdwn", "text": _foot(message)}]}],
    }


def _foot(message: Message) -> str:
    links = [("runbook", message.runbook), ("status page", message.context.page)]
    shown = [f"<{_escaped(url).replace('|', '%7C')}|{text}>" for text, url in links if url]
    place = _mrkdwn(f"{message.context.namespace}/{message.context.service}, {rfc3339(message.at)}", FIELD_MOST // 2)
    return " · ".join([place, *shown])


def _mrkdwn(text: str, most: int) -> str:
    """Escape, and cut so that no entity is halved."""
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
    """Build an alert event: ``trigger``, or ``resolve`` under the same key."""
    event = {"routing_key": routing_key, "dedup_key": message.key}
    if message.occasion.is_over:
        return {**event, "event_action": "resolve"}
    occasion, context = message.occasion, message.context
    links = [("Runbook", message.runbook), ("Status page", context.page)]
    return {
        **event,
        "event_action": "trigger",
        "client": "health-arbiter",
        "links": [{"href": url, "text": text} for text, url in links if url],
        "payload": {
            "summary": cut(f"{context.service}: {message.sentence}", SUMMARY_MOST),
            "source": cut(occasion.instance or f"{context.namespace}/{context.service}", SOURCE_MOST),
            "severity": occasion.severity.value,
            "timestamp": rfc3339(message.began if occasion.is_since_the_spells else message.at),
            "component": context.service,
            "group": context.namespace,
            "class": occasion.word,
            "custom_details": {**message.facts, "mode": context.mode, "sent_by": context.instance},
        },
    }


# -- Alertmanager ------------------------------------------------------------------------------------------------------


def alertmanager(message: Message, lasts_s: float) -> list[dict[str, Any]]:
    """Build the alert, and the end of the quieter ones: another severity is another alert to Alertmanager.

    It ends by itself after ``lasts_s`` seconds unless it is sent again. Of several beginnings it keeps the first. A
    louder one is left to end by itself: who sends this may not have heard of it yet, or has tried for a while to send.
    """
    occasion = message.occasion
    alerts = []
    for word, severity in _up_to(occasion):
        is_firing = word == occasion.word and not occasion.is_over
        alert = {
            "labels": _labels(message, word, severity),
            "annotations": _annotations(message),
            "startsAt": rfc3339(message.began),
            "endsAt": rfc3339(message.at + lasts_s if is_firing else max(message.at, message.began)),
        }
        alerts.append(alert | ({"generatorURL": message.context.page} if message.context.page else {}))
    return alerts


def _up_to(occasion: Occasion) -> Sequence[tuple[str, Severity]]:
    """The topic's levels up to the occasion's own; all of them when it is over."""
    levels = LEVELS[occasion.topic]
    own = [word for word, _ in levels].index(occasion.word)
    return levels if occasion.is_over else levels[: own + 1]


def _labels(message: Message, word: str, severity: Severity) -> Mapping[str, str]:
    labels = {
        "alertname": ALERTS[word],
        "service": message.context.service,
        "namespace": message.context.namespace,
        "severity": severity.value,
        "occasion": word,
        "mode": message.context.mode,
    }
    return labels | ({"instance": message.occasion.instance} if message.occasion.instance else {})


def _annotations(message: Message) -> Mapping[str, str]:
    facts = ", ".join(f"{name}: {value}" for name, value in message.facts.items())
    annotations = {
        "summary": f"{message.context.service}: {message.sentence}",
        "description": facts,
        "runbook_url": message.runbook,
    }
    return {name: text for name, text in annotations.items() if text}
