"""The messages: which events make one, and its fields, of which the text is what people read.

What a sidecar finds in its first answer is no news: the others have sent the message.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from math import ceil
from shlex import quote
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from sidecar.core.claims import Denied, Fleet, Presence
from sidecar.core.explain import reasons
from sidecar.core.fleet.fleet_events import BeatRecord, CausePaused, FleetEvent, HoldBegan
from sidecar.core.fleet.members import Member
from sidecar.core.life.events import Event, NotHonoured, TokenAnswered
from sidecar.core.life.snapshot import Record
from sidecar.core.types import Entry

if TYPE_CHECKING:
    from sidecar.config.settings import IdentityConfig

WORDS: Final = {
    "budget_empty": "critical",
    "paused": "warning",
    "paused_shared": "critical",
    "not_honoured": "critical",
    "action_failed": "critical",
    "redis_unknown": "critical",
    "hold": "info",
    "test": "info",
}
"""The machine words of the messages, and how urgent each is."""

MOST_NAMES: Final = 5
LONGEST_TEXT: Final = 3000
"""Characters; Slack cuts longer ones."""

_ESCAPES: Final = str.maketrans({"&": "&amp;", "<": "&lt;", ">": "&gt;", "@": "@\u200b"})
"""For Slack a name in angle brackets, and for Mattermost one behind ``@``, would notify a channel."""


class Alert(NamedTuple):
    """What people should know of."""

    topic: str  # what it is about; further words behind a colon tell alerts of one topic apart
    word: str
    sentence: str
    instance: str = ""  # the container, if it is about one
    cause: str = ""
    claim: str = ""  # what the fleet's sender claims; empty: no other sidecar sends it


# -- which events are alerts ------------------------------------------------------------------------------------------


def of_beat(record: BeatRecord) -> Iterator[Alert]:
    """The alerts of an answer to a beat."""
    if record.is_first or not isinstance(record.answer, Fleet):
        return
    for event in record.events:
        if write := _OF_FLEET.get(type(event)):
            yield write(event, record.answer)


def of_step(record: Record) -> Iterator[Alert]:
    """The alerts of a step. If no container is replaced any more, one message of the fleet has to do."""
    for event in record.events:
        if (write := _OF_STEP.get(type(event))) and (alert := write(event, record)):
            yield alert


def of_action(entry: Entry, instance: str) -> Alert:
    """The alert of an action that should have had the container restarted, and failed."""
    sentence = (
        f"The action {entry.reason} of {instance} failed: {' '.join(entry.detail.split())}. The "
        "container stays out of service until it is restarted."
    )
    return Alert("action", "action_failed", sentence, instance)


def redis_away(error: str, away_s: float) -> Alert:
    """The alert of a Redis that has not answered for ``away_s``, for this ``error``."""
    minutes, why = f"{away_s / 60:.0f} min", reasons.failure(error)
    return Alert("redis", "redis_unknown", f"No answer from Redis for {minutes}, no container can be culled: {why}.")


def _not_honoured(event: NotHonoured, record: Record) -> Alert:
    name = record.container.instance
    sentence = f"{name} was culled {event.out_s / 60:.0f} min ago and is still there: it has not been replaced."
    return Alert("not_honoured", "not_honoured", sentence, name, claim="not_honoured")


def _budget_empty(event: TokenAnswered, _: Record) -> Alert | None:
    answer = event.answer
    if not isinstance(answer, Denied) or answer.reason != "window" or event.is_late or event.is_repeated:
        return None
    said = reasons.answer(answer)
    suspects = "" if answer.cause else f"; {answer.suspect} of {answer.alive} containers are suspect"
    sentence = f"{said[0].upper()}{said[1:]}{suspects}. An engineer has to look."
    return Alert("budget", "budget_empty", sentence, claim="budget")


def _paused(event: CausePaused, fleet: Fleet) -> Alert:
    trial, is_shared = event.trial, event.trial.cause == fleet.cause
    shared = f" {_most(fleet)} have it." if is_shared else ""
    sentence = (
        f"Culls for {trial.cause} did not help: they are paused for {reasons.span(ceil(trial.paused_s))}.{shared} "
        "An engineer has to look."
    )
    word, topic = "paused_shared" if is_shared else "paused", f"paused:{trial.cause}"
    return Alert(topic, word, sentence, cause=trial.cause, claim=f"{topic}:{trial.failures}")


def _most(fleet: Fleet) -> str:
    whose = reasons.most(fleet.suspect, fleet.alive)
    return f"{whose[0].upper()}{whose[1:]}"


def _hold(event: HoldBegan, _: Fleet) -> Alert:
    hold = event.hold
    claim = f"hold:{hold.instance}:{hold.until:.0f}"
    return Alert("hold", "hold", f"No culls: {reasons.hold(hold)}.", hold.instance, claim=claim)


_OF_FLEET: Final[Mapping[type[FleetEvent], Callable[[Any, Fleet], Alert]]] = {
    CausePaused: _paused,
    HoldBegan: _hold,
}

_OF_STEP: Final[Mapping[type[Event], Callable[[Any, Record], Alert | None]]] = {
    NotHonoured: _not_honoured,
    TokenAnswered: _budget_empty,
}


# -- the fields of a message -------------------------------------------------------------------------------------------


def concerned(alert: Alert, members: Iterable[Member]) -> tuple[list[str], str]:
    """The containers that are out for the alert's cause, suspects first, and its cause, else that of most suspects."""
    out = [member for member in members if member.presence in (Presence.SUSPECT, Presence.DOWN)]
    if alert.instance or alert.cause:
        out = [each for each in out if each.instance == alert.instance or (each.kind and each.kind == alert.cause)]
    out.sort(key=lambda member: member.presence is Presence.DOWN)
    causes = [member.kind for member in out if member.kind and member.presence is Presence.SUSPECT]
    causes = causes or [member.kind for member in out if member.kind] or [""]
    return [member.instance for member in out], alert.cause or Counter(causes).most_common(1)[0][0]


def fields_of(
    alert: Alert,
    own: IdentityConfig,
    runbook_url: str,
    at: float,
    *,
    containers: Sequence[str] = (),
    cause: str = "",
    sample: str = "",
) -> dict[str, str]:
    """The fields of a message, which a template may name; ``at`` in Unix seconds."""
    subject = alert.instance if alert.topic != "hold" else ""
    anchor = reasons.runbook(alert.word)
    is_shadow = own.mode == "shadow"
    incident = ("health-arbiter", own.namespace, own.service, is_shadow * "shadow", subject, alert.topic)
    fields = {
        "severity": WORDS[alert.word],
        "word": alert.word,
        "sentence": f"{'Shadow mode: ' if is_shadow else ''}{alert.sentence}",
        "service": own.service,
        "namespace": own.namespace,
        "instance": alert.instance,
        "sender": own.instance,
        "mode": own.mode,
        "at": datetime.fromtimestamp(at, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z"),
        "key": "/".join(filter(None, incident)),
        "runbook": f"{runbook_url}#{anchor}" if anchor and runbook_url else "",
        "containers": reasons.names(containers, MOST_NAMES),
        "cause": cause,
        "sample": sample,
        "command": _command(alert, subject or next(iter(containers), "")),
    }
    return {**fields, "text": _text(fields)}


def _command(alert: Alert, container: str) -> str:
    """The command to type first."""
    if alert.word in ("redis_unknown", "test"):
        return "health-arbiter doctor"
    return f"health-arbiter why {quote(container)}" if container else "health-arbiter fleet"


def _text(fields: Mapping[str, str]) -> str:
    """Return all that a reader needs, as one paragraph that no receiver takes for markup."""
    containers, cause = fields["containers"], fields["cause"]
    parts = [
        f"{fields['severity'].capitalize()}: {fields['service']}: {fields['sentence']}",
        f"Containers: {containers}{f' ({cause})' if cause else ''}." if containers else "",
        f"Sample: {fields['sample']}." if fields["sample"] else "",
        f"Type: {fields['command']}",
        f"Runbook: {fields['runbook']}" if fields["runbook"] else "",
    ]
    return " ".join(filter(None, parts))[:LONGEST_TEXT].translate(_ESCAPES)
