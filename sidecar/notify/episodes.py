"""Occasions to tell a person something: what the fleet is like now -> at most one message a spell, and one at its end.

Each topic is read from ``Seen`` as a signal with a level. A spell begins when the level leaves 0, is told again only
when it goes higher than was told, and is over once the level has been 0 for ``quiet_s``. What is not known neither
prolongs a spell nor ends it.

Every sidecar of a fleet sees the same spell, by some beats earlier or later, and comes to the same ``claim`` word: the
first of them to claim it tells. A claim lasts as long as the quiet does (``claim_s``). That is why it needs no time in
it, and nobody has to release it: between two spells of a topic there is more time than a claim lasts, and between
those who see one spell there is less. What is there already when a sidecar first looks, or looks again after as long
as a claim lasts, was told by others: it is taken over in silence.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from math import inf
from typing import Final

from sidecar.core.types import Fleet
from sidecar.notify import rules
from sidecar.notify.rules import LEVELS, Seen, Severity, Signal

QUIET_S: Final = 60.0
_CLAIMS_S: Final = {"budget": 150.0, "not_honoured": 600.0}
"""Topics whose claims last longer. Who asks for the tokens in use does so once a minute, and hears late of them. When
nobody is replaced any more, one of those concerned says so, and the next one not before this is over.
"""

_OWN_TOPICS: Final = frozenset({"not_honoured", "redis"})


@dataclass(frozen=True, slots=True)
class Occasion:
    """Something that a person should hear of, or (``is_over``) need not worry about any more.

    ``since`` is on the clock of ``look``. ``instance`` is set if it is of one container only. Who wants to send it
    claims ``claim`` for ``claim_s`` seconds; of what ``is_own`` the end is for those alone who told of its beginning.
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
        """The same word in every sidecar that sees this spell."""
        scope = self.instance if self.topic == "hold" else ""
        return f"message:{self.topic}:{'over' if self.is_over else self.level}:{scope}".rstrip(":")

    @property
    def is_since_the_spells(self) -> bool:
        """Whether ``since`` is when the spell began; another who told of that may have seen it some beats earlier."""
        return self.is_own or (self.level == 1 and not self.is_over)

    @property
    def is_own(self) -> bool:
        """Whether each sidecar finds it out by itself, so that nobody else can have told it."""
        return self.topic in _OWN_TOPICS


@dataclass(slots=True)
class _Spell:
    told: int
    occasion: Occasion
    quiet_since: float | None = None


class Occasions:
    """The spells that one sidecar sees. ``honour_s``: see ``topics``.

    ``quiet_s`` is how long a topic is quiet before its spell is over. It has to be longer than sidecars may differ in
    when they see one, hence at least three beats.
    """

    def __init__(self, instance: str, *, quiet_s: float = QUIET_S, honour_s: float) -> None:
        self._instance = instance
        self._quiet_s = quiet_s
        self._honour_s = honour_s
        self._spells: dict[str, _Spell] = {}
        self._known_at: dict[str, float] = {}
        self._clear_at: float | None = None
        self._looked_at = 0.0

    @property
    def ongoing(self) -> list[Occasion]:
        """What is known to last, each as it is now and not as it was when it was told."""
        return [spell.occasion for topic, spell in self._spells.items() if self._known_at[topic] == self._looked_at]

    @property
    def own(self) -> dict[str, float]:
        """Since when lasts what each sidecar finds out by itself, by topic; of what was just quiet also for a while."""
        return {topic: spell.occasion.since for topic, spell in self._spells.items() if topic in _OWN_TOPICS}

    def go_on(self, topic: str, since: float) -> None:
        """Take ``topic`` for told: it has lasted since then, and its end is still to be told."""
        if topic not in _OWN_TOPICS:
            raise ValueError(f"not for one sidecar alone: {topic}")
        word, severity = LEVELS[topic][0]
        instance = self._instance if topic == "not_honoured" else ""
        self._spells[topic] = _Spell(1, Occasion(topic, word, severity, "", since, instance=instance))

    def look(self, now: float, seen: Seen) -> list[Occasion]:
        """Tell what has become worth telling; ``now`` in seconds of a clock that does not jump."""
        if isinstance(seen.answer, Fleet) or self._clear_at is None:
            self._clear_at = now
        self._looked_at = now
        signals = {name: read(seen) for name, read in rules.FLEET_TOPICS.items()}
        signals["not_honoured"] = rules.not_honoured(seen, self._instance, self._honour_s)
        signals["redis"] = rules.redis(seen, now - self._clear_at)
        told = [self._take(topic, signal, now, seen) for topic, signal in signals.items()]
        return [occasion for occasion in told if occasion is not None]

    def _take(self, topic: str, signal: Signal | None, now: float, seen: Seen) -> Occasion | None:
        spell = self._spells.get(topic)
        if signal is None:
            if spell is not None:
                spell.quiet_since = None
            return None
        is_news = topic in _OWN_TOPICS or now - self._known_at.get(topic, -inf) < self._quiet_s
        self._known_at[topic] = now
        if not signal.level:
            at_once = topic == "not_honoured" and seen.is_leaving
            return self._quieten(topic, spell, signal, now, at_once=at_once) if spell else None
        if spell is None:
            spell = self._spells[topic] = _Spell(0, self._occasion(topic, signal, now, self._whose(topic, seen)))
        is_louder = is_news and signal.level > spell.told
        spell.quiet_since = None
        spell.occasion = self._occasion(topic, signal, spell.occasion.since, spell.occasion.instance)
        spell.told = max(spell.told, signal.level) if is_news else signal.level
        return spell.occasion if is_louder else None

    def _quieten(self, topic: str, spell: _Spell, signal: Signal, now: float, *, at_once: bool) -> Occasion | None:
        if spell.quiet_since is None:
            spell.quiet_since = now
        if now - spell.quiet_since < self._quiet_s and not at_once:
            return None
        del self._spells[topic]
        return replace(
            spell.occasion, is_over=True, sentence=signal.sentence, facts=signal.facts, claim_s=self._quiet_s
        )

    def _whose(self, topic: str, seen: Seen) -> str:
        if topic == "hold" and isinstance(seen.answer, Fleet) and seen.answer.hold:
            return seen.answer.hold.instance
        return self._instance if topic == "not_honoured" else ""

    def _occasion(self, topic: str, signal: Signal, since: float, instance: str) -> Occasion:
        word, severity = LEVELS[topic][signal.rank]
        claim_s = max(self._quiet_s, _CLAIMS_S.get(topic, 0.0))
        return Occasion(
            topic,
            word,
            severity,
            signal.sentence,
            since,
            facts=signal.facts,
            instance=instance,
            level=signal.level,
            claim_s=claim_s,
        )
