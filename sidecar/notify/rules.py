"""The notification rules: each reads one topic from an observation, as a level, a sentence and the facts behind it.

``episodes`` turns the levels into notifications. None stands for an unknown level.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from math import ceil
from types import MappingProxyType
from typing import Final

from sidecar.core.explain import reasons
from sidecar.core.types import Entry, Fleet, Unknown

REDIS_AWAY_S: Final = 300.0
HALF: Final = 0.5
FOUR_FIFTHS: Final = 0.8
SHARED_LEVEL: Final = 100
"""Added to the level if most suspects share a paused cause: more than a fleet can have paused causes."""


class Severity(StrEnum):
    """The severities of PagerDuty, from low to high."""

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
        "action": (("action_failed", Severity.CRITICAL),),
        "redis": (("redis_unknown", Severity.CRITICAL),),
        "hold": (("hold", Severity.INFO),),
        "test": (("test", Severity.WARNING),),
    }
)
"""The machine words of each topic by rising severity, as in deploy/prometheus/alerts.yml."""


@dataclass(frozen=True, slots=True)
class RuleResult:
    """The present level of one topic, 0 for none. ``rank``: the index of its word in ``LEVELS``."""

    level: int
    sentence: str
    facts: Mapping[str, object] = field(default_factory=dict)
    rank: int = 0


@dataclass(frozen=True, slots=True)
class Observation:
    """What one sidecar knows at an instant.

    ``answer``: to the last beat, None before the first. ``used`` of ``capacity`` tokens, None if unknown; ``refused``:
    a claim was denied because no token was left. ``kept_s``: how long the own container has been down while its app
    still reports; None if it is not. ``is_leaving``: the own container is not waiting to be replaced any more.
    ``failed_action``: the ledger's entry about the action that failed to restart it; None once it is not down any more.
    """

    answer: Fleet | Unknown | None = None
    used: int | None = None
    capacity: int = 0
    refused: bool = False
    kept_s: float | None = None
    is_leaving: bool = False
    failed_action: Entry | None = None


def _budget(observation: Observation) -> RuleResult | None:
    """Read the tokens in use. One token is a single cull, and level 0 in any budget until another claim is denied."""
    used, capacity = observation.used, observation.capacity
    if used is None or capacity < 1:
        return None
    facts: dict[str, object] = {"used": used, "capacity": capacity}
    is_empty = used >= capacity and (used > 1 or observation.refused)
    level = 3 if is_empty else (used > 1) * ((used >= HALF * capacity) + (used >= FOUR_FIFTHS * capacity))
    tokens = f"{used} of {capacity} tokens of the budget are in use"
    if not level:
        return RuleResult(0, f"The budget has room again: {tokens}.", facts)
    rest = (
        "no container is culled any more, an engineer has to look"
        if is_empty
        else f"{capacity - used} more may be culled"
    )
    return RuleResult(level, f"{tokens}: {rest}.", facts, level - 1)


def _paused(observation: Observation) -> RuleResult | None:
    """Read the paused causes. The level rises with each, and by ``SHARED_LEVEL`` if most suspects share one."""
    fleet = observation.answer
    if not isinstance(fleet, Fleet):
        return None
    if not fleet.paused:
        has_failed = any(trial.failures for trial in fleet.trials)
        if has_failed and fleet.suspect:
            return None  # the pause is over, and the trouble is not: the next cull shows whether restarts help now
        how = "no container is suspect any more" if has_failed else "the last one helped, or the cause is forgotten"
        return RuleResult(0, f"Culls are allowed again for every cause: {how}.")
    causes, longest_s = ", ".join(fleet.paused), max(trial.paused_s for trial in fleet.trials)
    is_shared = fleet.cause in fleet.paused
    shared = f" Most of the {fleet.suspect} suspects of {fleet.alive} containers share one cause: {fleet.cause}."
    sentence = (
        f"Culls for {causes} did not help: they are paused for {reasons.span(ceil(longest_s))}."
        f"{shared if is_shared else ''} An engineer has to look."
    )
    facts = {"causes": causes, "paused_s": ceil(longest_s), "alive": fleet.alive, "suspect": fleet.suspect}
    if is_shared:
        return RuleResult(SHARED_LEVEL + len(fleet.paused), sentence, {**facts, "cause": fleet.cause}, 1)
    return RuleResult(len(fleet.paused), sentence, facts)


def _hold(observation: Observation) -> RuleResult | None:
    if not isinstance(observation.answer, Fleet):
        return None
    hold = observation.answer.hold
    if hold is None:
        return RuleResult(0, "The hold has ended, culls are allowed again.")
    facts = {"author": hold.author, "reason": hold.reason, "until": hold.until, "held": hold.instance or "service"}
    return RuleResult(1, f"No culls: {reasons.hold(hold)}.", facts)


FLEET_RULES: Final[Mapping[str, Callable[[Observation], RuleResult | None]]] = MappingProxyType(
    {"budget": _budget, "paused": _paused, "hold": _hold}
)
"""The rules whose observations are the same in the whole fleet."""


def not_honoured(observation: Observation, instance: str, honour_s: float) -> RuleResult:
    """Read how long the own container has stayed after its cull; ``honour_s`` seconds are normal."""
    kept_s = observation.kept_s
    if kept_s is None or kept_s <= honour_s or observation.is_leaving:
        return RuleResult(0, f"{instance} is no longer there after its cull.")
    sentence = f"{instance} was culled {kept_s / 60:.0f} min ago and its app is still there: it has not been replaced."
    return RuleResult(1, sentence, {"instance": instance, "down_s": round(kept_s)})


def action(observation: Observation, instance: str) -> RuleResult:
    """Read whether the action failed that should have the own container restarted."""
    failed = observation.failed_action
    if failed is None:
        return RuleResult(0, f"{instance} is no longer down: it was restarted, revived or stopped.")
    result = " ".join(failed.detail.split())
    sentence = (
        f"The action {failed.reason} of {instance} failed: {result}. The container is out of service, and the sidecar "
        "does not repeat the action: only the failing check (503) is left to restart it."
    )
    return RuleResult(1, sentence, {"instance": instance, "action": failed.reason, "result": result})


def redis(observation: Observation, away_s: float) -> RuleResult | None:
    """Read how long no beat has been answered."""
    if isinstance(observation.answer, Fleet):
        return RuleResult(0, "Redis answers again.")
    if not isinstance(observation.answer, Unknown) or away_s < REDIS_AWAY_S:
        return None
    why = reasons.failure(observation.answer.error)
    sentence = f"No answer from Redis for {away_s / 60:.0f} min, no container can be culled: {why}."
    return RuleResult(1, sentence, {"away_s": round(away_s), "error": observation.answer.error})
