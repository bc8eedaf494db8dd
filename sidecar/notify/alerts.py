"""Decides when an alert begins, from the answers to beats and the steps of the own container.

An alert begins when its condition is first seen, and has ended once it was not seen for ``quiet_s`` seconds. While a
condition is unknown, because Redis is away, nothing begins and nothing ends. A condition of the fleet that a sidecar
finds at its first look is no news: the others have sent the message.
"""

from __future__ import annotations

from collections.abc import Iterator
from enum import StrEnum
from math import ceil, inf
from typing import Final, NamedTuple

from sidecar.core.explain import reasons
from sidecar.core.life.snapshot import Record
from sidecar.core.types import Entry, Evidence, Fleet, State, Unknown

REDIS_AWAY_S: Final = 300.0
REPORTED_S: Final = 60.0
"""An app that was not heard for longer may be gone."""

NOT_HONOURED_CLAIM_S: Final = 600.0
"""If no container is replaced any more, only one sidecar says so in this time."""


class Severity(StrEnum):
    """How urgent a message is, from low to high."""

    INFO = "info"
    WARNING = "warning"
    CRITICAL = "critical"


WORDS: Final = {
    "budget_empty": Severity.CRITICAL,
    "paused": Severity.WARNING,
    "paused_shared": Severity.CRITICAL,
    "not_honoured": Severity.CRITICAL,
    "action_failed": Severity.CRITICAL,
    "redis_unknown": Severity.CRITICAL,
    "hold": Severity.INFO,
    "test": Severity.INFO,
}
"""The machine words of the messages."""

_OF_FLEET: Final = frozenset({"budget", "paused", "hold"})
_OF_OWN: Final = frozenset({"not_honoured", "action"})


class Alert(NamedTuple):
    """A condition that people should know of.

    ``topic``: what it is about; further words behind a colon tell alerts of one topic apart. ``instance``: the
    container, if it is about one. ``claim_s``: so long no other sidecar sends the same; 0: no other sidecar sees it.
    """

    topic: str
    word: str
    sentence: str
    instance: str = ""
    cause: str = ""
    claim_s: float = 0.0

    @property
    def severity(self) -> Severity:
        """How urgent it is."""
        return WORDS[self.word]


class Alerts:
    """The alerts that the sidecar of ``instance`` sees; all times are monotonic seconds.

    ``quiet_s``: longer than the time by which sidecars differ, so at least three beats. ``honour_s``: so long a culled
    container may stay. ``scrapes``: a scrape also shows that the app is there.
    """

    def __init__(self, instance: str, *, quiet_s: float, honour_s: float, scrapes: bool) -> None:
        self._instance = instance
        self._quiet_s = quiet_s
        self._honour_s = honour_s
        self._scrapes = scrapes
        self._answer: Fleet | Unknown | None = None
        self.answered_at = -inf
        """When Redis last answered a beat."""
        self._down_since: float | None = None
        self._is_down = True  # as far as is known: a sidecar may find its container down, and ask for the action
        self._reported_at = -inf
        self._failed_action: Entry | None = None
        self._ongoing: dict[str, float] = {}
        self._fleet_known_at = -inf

    # -- observers ----------------------------------------------------------------------------------------------------

    def beaten(self, answer: Fleet | Unknown, now: float) -> None:
        """Keep the answer to a beat."""
        self._answer = answer
        if isinstance(answer, Fleet):
            self.answered_at = now

    def step(self, record: Record, now: float) -> None:
        """Keep what a step of the controller shows of the own container."""
        after = record.container
        is_culled = after.state is State.DOWN and after.latch is not None and not after.latch.lease
        self._down_since = after.since if is_culled else None
        self._is_down = after.state is State.DOWN
        if not self._is_down:
            self._failed_action = None
            self._ongoing.pop("action", None)  # the next one is another, however soon it comes
        if self._is_reporting(record.evidence):
            self._reported_at = now

    def acted(self, entry: Entry) -> None:
        """Keep that the action failed which should have the own container restarted; it may be up all the same."""
        self._failed_action = entry if entry.what == "action_failed" and self._is_down else None

    def _is_reporting(self, evidence: Evidence) -> bool:
        age_s = evidence.heartbeat_age_s
        has_news = evidence.errors or evidence.requests or evidence.levels or (age_s is not None and age_s < REPORTED_S)
        return bool(has_news) or (self._scrapes and not evidence.missed_scrapes)

    # -- alerts ----------------------------------------------------------------------------------------------------

    def due(self, now: float) -> list[Alert]:
        """Return the alerts that have begun."""
        present = {one.topic: one for one in self._present(now)}
        is_news = now - self._fleet_known_at < self._quiet_s
        due = [one for topic, one in present.items() if topic not in self._ongoing]
        for topic, seen_at in list(self._ongoing.items()):
            if not self._is_known(topic):
                self._ongoing[topic] = now
            elif now - seen_at >= self._quiet_s or topic in _OF_OWN - present.keys():
                del self._ongoing[topic]
        self._ongoing |= dict.fromkeys(present, now)
        if isinstance(self._answer, Fleet):
            self._fleet_known_at = now
        return [one for one in due if is_news or one.topic.partition(":")[0] not in _OF_FLEET]

    def _is_known(self, topic: str) -> bool:
        """Whether the present observations tell if this condition stands."""
        if topic in _OF_OWN:
            return True
        if not isinstance(self._answer, Fleet):
            return False
        name, _, cause = topic.partition(":")
        has_failed = any(one.cause == cause and one.failures for one in self._answer.trials)
        # A pause may be over, and the trouble not: the next cull shows whether restarts help now.
        return name != "paused" or not (has_failed and self._answer.suspect)

    def _present(self, now: float) -> Iterator[Alert]:
        if isinstance(self._answer, Fleet):
            yield from self._of_fleet(self._answer)
        elif self._answer is not None and REDIS_AWAY_S <= now - self.answered_at < inf:
            why = reasons.failure(self._answer.error)
            minutes = f"{(now - self.answered_at) / 60:.0f} min"
            sentence = f"No answer from Redis for {minutes}, no container can be culled: {why}."
            yield Alert("redis", "redis_unknown", sentence)
        is_there = now - self._reported_at < REPORTED_S
        if is_there and self._down_since is not None and now - self._down_since > self._honour_s:
            minutes = f"{(now - self._down_since) / 60:.0f} min"
            sentence = (
                f"{self._instance} was culled {minutes} ago and its app is still there: it has not been replaced."
            )
            yield Alert("not_honoured", "not_honoured", sentence, self._instance, claim_s=NOT_HONOURED_CLAIM_S)
        if failed := self._failed_action:
            sentence = (
                f"The action {failed.reason} of {self._instance} failed: {' '.join(failed.detail.split())}. The "
                "container is out of service, and only the failing check (503) is left to restart it."
            )
            yield Alert("action", "action_failed", sentence, self._instance)

    def _of_fleet(self, fleet: Fleet) -> Iterator[Alert]:
        if 0 < fleet.capacity <= fleet.used and fleet.suspect:
            sentence = (
                f"All {fleet.capacity} tokens of the budget are in use, and {fleet.suspect} of {fleet.alive} "
                "containers are suspect: no container is culled any more, an engineer has to look."
            )
            yield Alert("budget", "budget_empty", sentence, claim_s=self._quiet_s)
        for trial in fleet.trials:
            if trial.paused_s > 0:
                is_shared = trial.cause == fleet.cause
                shared = (
                    f" Most of the {fleet.suspect} suspects of {fleet.alive} containers have it." if is_shared else ""
                )
                sentence = (
                    f"Culls for {trial.cause} did not help: they are paused for {reasons.span(ceil(trial.paused_s))}."
                    f"{shared} An engineer has to look."
                )
                word = "paused_shared" if is_shared else "paused"
                yield Alert(f"paused:{trial.cause}", word, sentence, cause=trial.cause, claim_s=self._quiet_s)
        if hold := fleet.hold:
            sentence = f"No culls: {reasons.hold(hold)}."
            yield Alert("hold", "hold", sentence, hold.instance, claim_s=self._quiet_s)
