"""A message: an occasion with who tells it and when, and the words that all receivers share."""

from __future__ import annotations

import hashlib
from datetime import UTC, datetime
from typing import Final, NamedTuple

from sidecar.core.explain.runbooks import ANCHORS
from sidecar.notify.episodes import Occasion

KEY_MOST: Final = 255


class Context(NamedTuple):
    """What is the same in all messages of one sidecar. ``runbook`` and ``page`` are URLs, or ""."""

    service: str
    namespace: str
    instance: str
    mode: str = "enforce"
    runbook: str = ""
    page: str = ""


class Message(NamedTuple):
    """An occasion that is to be sent. ``began`` and ``at`` are Unix seconds."""

    occasion: Occasion
    context: Context
    began: float
    at: float

    @property
    def status(self) -> str:
        """``recovered`` or ``firing``."""
        return "recovered" if self.occasion.is_over else "firing"

    @property
    def news(self) -> str:
        """What a person reads beside the status."""
        return f"{'Shadow mode: ' if self.context.mode == 'shadow' else ''}{self.occasion.sentence}"

    @property
    def sentence(self) -> str:
        """What a person reads who sees nothing else."""
        return f"{'Recovered: ' if self.occasion.is_over else ''}{self.news}"

    @property
    def key(self) -> str:
        """The same for the beginning and the end of a spell, whoever of the fleet sends them; PagerDuty takes 255."""
        context = self.context
        shadow = "/shadow" if context.mode == "shadow" else ""
        of = f"/{self.occasion.instance}" if self.occasion.instance else ""
        key = f"health-arbiter/{context.namespace}/{context.service}{shadow}/{self.occasion.topic}{of}"
        if len(key) <= KEY_MOST:
            return key
        return f"health-arbiter/{hashlib.sha256(key.encode()).hexdigest()}"

    @property
    def runbook(self) -> str:
        """Where the runbook of this topic is, if the settings know."""
        anchor = ANCHORS.get(self.occasion.word)
        return f"{self.context.runbook}#{anchor}" if anchor and self.context.runbook else ""

    @property
    def facts(self) -> dict[str, object]:
        """What is known beyond the sentence, without what is empty."""
        facts = {name: value for name, value in self.occasion.facts.items() if value != ""}
        if isinstance(until := facts.get("until"), float):
            facts["until"] = rfc3339(until)
        return facts


def rfc3339(unix_s: float) -> str:
    """Write an instant for machines and people."""
    return datetime.fromtimestamp(unix_s, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
