"""The topics of messages, and how each reads what is seen: a level, a sentence for a person, and the facts behind it.

``occasions`` makes spells of them. None stands for what is not known.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from math import ceil
from types import MappingProxyType
from typing import Final

from sidecar.core.explain import reasons
from sidecar.core.types import Fleet, Unknown

AWAY_S: Final = 300.0
HALF: Final = 0.5
MOST: Final = 0.8
SHARED: Final = 100
"""Added to the level of a paused cause that most suspects share: more than the causes that a fleet tries at once."""


class Severity(StrEnum):
    """How much it matters, in the words of PagerDuty."""

    INFO = "info"
    WARNING = "warning"
    ERROR = "error"
    CRITICAL = "critical"


LEVELS: Final[Mapping[str, tuple[tuple[str, Severity], ...]]] = MappingProxyType(
    {
        "budget": (
            ("budget_50", Severity.INFO),
            ("budget_80", Severity.WARNING),
            ("budget_empty", Severity.CRITICAL),
        ),
        "paused": (("paused", Severity.WARNING), ("paused_shared", Severity.CRITICAL)),
        "not_honoured": (("not_honoured", Severity.CRITICAL),),
        "redis": (("redis_unknown", Severity.CRITICAL),),
        "hold": (("hold", Severity.INFO),),
        "test": (("test", Severity.WARNING),),
    }
)
"""The words of each topic from quiet to loud, and how much each matters: as in deploy/prometheus/alerts.yml."""


@dataclass(frozen=True, slots=True)
class Signal:
    """What one topic reads now. ``level`` 0 is quiet; ``rank`` is which of the words of ``LEVELS`` it is."""

    level: int
    sentence: str
    facts: Mapping[str, object] = field(default_factory=dict)
    rank: int = 0


@dataclass(frozen=True, slots=True)
class Seen:
    """What is known at an instant.

    ``answer``: to the last beat, None before it. ``used`` of ``capacity`` tokens, None if unknown; ``refused``: a
    claim was, for want of tokens. ``kept_s``: for how long the own container has been down while its app still
    reports, None if it is not. ``is_leaving``: it, or its sidecar, is about to end.
    """

    answer: Fleet | Unknown | None = None
    used: int | None = None
    capacity: int = 0
    refused: bool = False
    kept_s: float | None = None
    is_leaving: bool = False


def _budget(seen: Seen) -> Signal | None:
    """Read the tokens. One alone is a cull, and quiet, however small the budget, until another is refused."""
    used, capacity = seen.used, seen.capacity
    if used is None or capacity < 1:
        return None
    facts: dict[str, object] = {"used": used, "capacity": capacity}
    is_empty = used >= capacity and (used > 1 or seen.refused)
    level = 3 if is_empty else (used > 1) * ((used >= HALF * capacity) + (used >= MOST * capacity))
    tokens = f"{used} of {capacity} tokens of the budget are in use"
    if not level:
        return Signal(0, f"The budget has room again: {tokens}.", facts)
    rest = (
        "no container is culled any more, an engineer has to look"
        if is_empty
        else f"{capacity - used} more may be culled"
    )
    return Signal(level, f"{tokens}: {rest}.", facts, level - 1)


def _paused(seen: Seen) -> Signal | None:
    """Read the causes whose culls are paused; each further one is louder, and one that most suspects share the most."""
    fleet = seen.answer
    if not isinstance(fleet, Fleet):
        return None
    if not fleet.paused:
        return Signal(0, "Culls are allowed again for every cause.")
    causes, longest_s = ", ".join(fleet.paused), max(trial.paused_s for trial in fleet.trials)
    is_shared = fleet.cause in fleet.paused
    many = f" Most of the {fleet.suspect} suspects of {fleet.alive} containers share one cause: {fleet.cause}."
    sentence = (
        f"Culls for {causes} did not help: they are paused for {reasons.span(ceil(longest_s))}."
        f"{many if is_shared else ''} An engineer has to look."
    )
    facts = {"causes": causes, "paused_s": ceil(longest_s), "alive": fleet.alive, "suspect": fleet.suspect}
    if is_shared:
        return Signal(SHARED + len(fleet.paused), sentence, {**facts, "cause": fleet.cause}, 1)
    return Signal(len(fleet.paused), sentence, facts)


def _hold(seen: Seen) -> Signal | None:
    if not isinstance(seen.answer, Fleet):
        return None
    hold = seen.answer.hold
    if hold is None:
        return Signal(0, "The hold has ended, culls are allowed again.")
    facts = {"author": hold.author, "reason": hold.reason, "until": hold.until, "held": hold.instance or "service"}
    return Signal(1, f"No culls: {reasons.hold(hold)}.", facts)


FLEET_TOPICS: Final[Mapping[str, Callable[[Seen], Signal | None]]] = MappingProxyType(
    {"budget": _budget, "paused": _paused, "hold": _hold}
)
"""What the whole fleet sees."""


def not_honoured(seen: Seen, instance: str, honour_s: float) -> Signal:
    """Read how long the own container has been kept after its cull."""
    kept_s = seen.kept_s
    if kept_s is None or kept_s <= honour_s or seen.is_leaving:
        return Signal(0, f"{instance} is no longer there after its cull.")
    sentence = f"{instance} was culled {kept_s / 60:.0f} min ago and its app is still there: it has not been replaced."
    return Signal(1, sentence, {"instance": instance, "down_s": round(kept_s)})


def redis(seen: Seen, away_s: float) -> Signal | None:
    """Read for how long no beat was answered."""
    if isinstance(seen.answer, Fleet):
        return Signal(0, "Redis answers again.")
    if not isinstance(seen.answer, Unknown) or away_s < AWAY_S:
        return None
    why = reasons.UNKNOWN.get(seen.answer.error, seen.answer.error)
    sentence = f"No answer from Redis for {away_s / 60:.0f} min, no container can be culled: {why}."
    return Signal(1, sentence, {"away_s": round(away_s), "error": seen.answer.error})
