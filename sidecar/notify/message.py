"""A message: a notification with its sender and time, and the texts that all receivers share."""

from __future__ import annotations

import hashlib
from datetime import UTC, datetime
from typing import Final, NamedTuple

from sidecar.core.explain import reasons
from sidecar.notify.episodes import Notification

MAX_KEY: Final = 255


class Context(NamedTuple):
    """The fields that all messages of one sidecar share. ``runbook`` and ``page`` are URLs, or ""."""

    service: str
    namespace: str
    instance: str
    mode: str = "enforce"
    runbook: str = ""
    page: str = ""


class Message(NamedTuple):
    """A notification that is to be sent. ``began`` and ``at`` are Unix seconds."""

    notification: Notification
    context: Context
    began: float
    at: float

    @property
    def status(self) -> str:
        """``recovered`` or ``firing``."""
        return "recovered" if self.notification.is_over else "firing"

    @property
    def news(self) -> str:
        """The text for a reader who also sees the status."""
        return f"{'Shadow mode: ' if self.context.mode == 'shadow' else ''}{self.notification.sentence}"

    @property
    def sentence(self) -> str:
        """The text for a reader who sees nothing else."""
        return f"{'Recovered: ' if self.notification.is_over else ''}{self.news}"

    @property
    def where(self) -> str:
        """The containers and their cause, as a sentence that follows the news; empty if they are not known."""
        names, cause = self.notification.facts.get("containers"), self.notification.facts.get("cause")
        return f" Containers: {names}{f' ({cause})' if cause else ''}." if names else ""

    @property
    def command(self) -> str:
        """The command to type first, or empty."""
        return str(self.notification.facts.get("command", ""))

    @property
    def key(self) -> str:
        """The id of the episode, the same in every sidecar from beginning to end. PagerDuty takes 255 characters."""
        context = self.context
        shadow = "/shadow" if context.mode == "shadow" else ""
        of = f"/{self.notification.instance}" if self.notification.instance else ""
        key = f"health-arbiter/{context.namespace}/{context.service}{shadow}/{self.notification.topic}{of}"
        if len(key) <= MAX_KEY:
            return key
        return f"health-arbiter/{hashlib.sha256(key.encode()).hexdigest()}"

    @property
    def runbook(self) -> str:
        """The URL of the runbook's section; "" if the settings name no runbook."""
        anchor = reasons.runbook(self.notification.word)
        return f"{self.context.runbook}#{anchor}" if anchor and self.context.runbook else ""

    @property
    def facts(self) -> dict[str, object]:
        """The facts that are not empty, with instants as text."""
        facts = {name: value for name, value in self.notification.facts.items() if value != ""}
        if isinstance(until := facts.get("until"), float):
            facts["until"] = rfc3339(until)
        return facts


def rfc3339(unix_s: float) -> str:
    """Write an instant in the format of RFC 3339, in UTC."""
    return datetime.fromtimestamp(unix_s, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
