"""Decides when a condition of the fleet needs a message: when it begins, when it gets worse, and when it is over.

``rules`` reads the level of each topic from an ``Observation``. An *episode* of a topic begins when its level leaves 0.
It causes another notification only at a higher level, and ends once the level has been 0 for ``quiet_s``. An unknown
level neither prolongs nor ends an episode.

All sidecars of a fleet see the same episode, some beats apart, and derive the same ``claim`` for its notification. The
first sidecar to claim it sends it. A claim lasts for ``claim_s``, at least ``quiet_s``: two episodes of a topic are
further apart than that, and the sidecars that see one episode are closer. So the claim contains no time, and no sidecar
releases it. If a sidecar finds a condition at its first look, or at its first look after such a time, it sends nothing:
another sidecar has sent it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from math import inf
from typing import Final

from sidecar.core.types import Fleet
from sidecar.notify import rules
from sidecar.notify.rules import LEVELS, Observation, RuleResult, Severity

QUIET_S: Final = 60.0
_CLAIMS_S: Final = {"budget": 150.0, "not_honoured": 600.0}
"""Topics whose claims last longer. ``budget``: the leader counts the tokens in use only once a minute.
``not_honoured``: if no container is replaced any more, only one sidecar reports it in this time."""

_LOCAL_TOPICS: Final = frozenset({"not_honoured", "action", "redis"})
_OWN_TOPICS: Final = frozenset({"not_honoured", "action"})
"""Topics about the sidecar's own container."""


@dataclass(frozen=True, slots=True)
class Notification:
    """A condition that people should know of, or its end (``is_over``).

    ``since`` is on the clock of ``look``. ``instance`` is set if the condition concerns one container only. The sender
    claims ``claim`` for ``claim_s`` seconds.
    """

    topic: str
    word: str
    severity: Severity
    sentence: str
    since: float
    facts: Mapping[str, object] = field(default_factory=dict)
    instance: str = ""
    is_over: bool = False
    level: int = 1
    claim_s: float = QUIET_S

    @property
    def claim(self) -> str:
        """The key of the claim, the same in every sidecar that sees this episode."""
        scope = self.instance if self.topic == "hold" else ""
        return f"message:{self.topic}:{'over' if self.is_over else self.level}:{scope}".rstrip(":")

    @property
    def earlier_claims(self) -> list[str]:
        """The claims of the levels of this episode that come before it: a receiver gets them first or never."""
        if self.is_local:
            return []
        last, shared = self.level - (not self.is_over), rules.SHARED_LEVEL
        levels = [*range(1, last + 1)]
        if self.level > shared:
            levels = [*range(1, self.level - shared + 1), *range(shared + 1, last + 1)]
        return [replace(self, level=level, is_over=False).claim for level in levels]

    @property
    def has_exact_start(self) -> bool:
        """Whether ``since`` is the start of the episode; another sender may have seen it some beats earlier."""
        return self.is_local or (self.level == 1 and not self.is_over)

    @property
    def is_local(self) -> bool:
        """Whether each sidecar observes it by itself. Then the sidecar that sent the beginning also sends the end."""
        return self.topic in _LOCAL_TOPICS


@dataclass(slots=True)
class _Episode:
    notified_level: int
    notification: Notification
    quiet_since: float | None = None


class Episodes:
    """The episodes that the sidecar of ``instance`` sees. ``honour_s``: see ``rules.not_honoured``.

    ``quiet_s``: how long a topic is quiet before its episode is over. It must exceed the time by which sidecars differ,
    so at least three beats.
    """

    def __init__(self, instance: str, *, quiet_s: float = QUIET_S, honour_s: float) -> None:
        self._instance = instance
        self._quiet_s = quiet_s
        self._honour_s = honour_s
        self._episodes: dict[str, _Episode] = {}
        self._known_at: dict[str, float] = {}
        self._redis_answered_at: float | None = None
        self._looked_at = 0.0

    @property
    def ongoing(self) -> list[Notification]:
        """The conditions that last, each as it is now; without those of unknown level."""
        known = (topic for topic in self._episodes if self._known_at[topic] == self._looked_at)
        return [self._episodes[topic].notification for topic in known]

    def is_current(self, notification: Notification) -> bool:
        """Whether this is still the last thing to be said of its topic, by what this sidecar sees."""
        episode = self._episodes.get(notification.topic)
        if episode is None or notification.is_over:
            return episode is None and notification.is_over
        return episode.notified_level <= notification.level

    def look(self, now: float, observation: Observation) -> list[Notification]:
        """Return the notifications that have become due; ``now`` in monotonic seconds."""
        if isinstance(observation.answer, Fleet) or self._redis_answered_at is None:
            self._redis_answered_at = now
        self._looked_at = now
        results = {name: rule(observation) for name, rule in rules.FLEET_RULES.items()}
        results["not_honoured"] = rules.not_honoured(observation, self._instance, self._honour_s)
        results["action"] = rules.action(observation, self._instance)
        results["redis"] = rules.redis(observation, now - self._redis_answered_at)
        due = [self._update(topic, result, now, observation) for topic, result in results.items()]
        return [notification for notification in due if notification is not None]

    def _update(
        self, topic: str, result: RuleResult | None, now: float, observation: Observation
    ) -> Notification | None:
        episode = self._episodes.get(topic)
        if result is None:
            if episode is not None:
                episode.quiet_since = None
            return None
        is_news = topic in _LOCAL_TOPICS or now - self._known_at.get(topic, -inf) < self._quiet_s
        self._known_at[topic] = now
        if not result.level:
            is_over = topic == "action" or (topic == "not_honoured" and observation.is_leaving)
            return self._end_if_quiet(topic, episode, result, now, is_over=is_over) if episode else None
        since, instance = now, self._instance_of(topic, observation)
        if episode is not None:
            since, instance = episode.notification.since, episode.notification.instance
        notification = self._notification(topic, result, since, instance)
        notified_level = episode.notified_level if episode else 0
        is_due = is_news and result.level > notified_level
        notified_level = max(notified_level, result.level) if is_news else result.level
        self._episodes[topic] = _Episode(notified_level, notification)
        return notification if is_due else None

    def _end_if_quiet(
        self, topic: str, episode: _Episode, result: RuleResult, now: float, *, is_over: bool
    ) -> Notification | None:
        if episode.quiet_since is None:
            episode.quiet_since = now
        if now - episode.quiet_since < self._quiet_s and not is_over:
            return None
        del self._episodes[topic]
        last = episode.notification
        return replace(
            last,
            is_over=True,
            sentence=result.sentence,
            facts=result.facts,
            level=episode.notified_level,
            claim_s=self._quiet_s,
        )

    def _instance_of(self, topic: str, observation: Observation) -> str:
        if topic == "hold" and isinstance(observation.answer, Fleet) and observation.answer.hold:
            return observation.answer.hold.instance
        return self._instance if topic in _OWN_TOPICS else ""

    def _notification(self, topic: str, result: RuleResult, since: float, instance: str) -> Notification:
        word, severity = LEVELS[topic][result.rank]
        return Notification(
            topic,
            word,
            severity,
            result.sentence,
            since,
            facts=result.facts,
            instance=instance,
            level=result.level,
            claim_s=max(self._quiet_s, _CLAIMS_S.get(topic, 0.0)),
        )
