"""A message: the fields that a template may name, and the text that people read."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime
from shlex import quote
from typing import TYPE_CHECKING, Final

from sidecar.core.claims import Presence
from sidecar.core.explain import reasons
from sidecar.core.fleet.members import Member
from sidecar.notify.alerts import WORDS, Alert

if TYPE_CHECKING:
    from sidecar.config.settings import IdentityConfig, NotifyConfig

MOST_NAMES: Final = 5
LONGEST_TEXT: Final = 3000
"""Characters; Slack cuts longer ones."""

_ESCAPES: Final = str.maketrans({"&": "&amp;", "<": "&lt;", ">": "&gt;", "@": "@\u200b"})
"""For Slack a name in angle brackets, and for Mattermost one behind ``@``, would notify a channel."""


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
    links: NotifyConfig,
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
        "runbook": f"{links.runbook_url}#{anchor}" if anchor and links.runbook_url else "",
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
