"""The ways to run a fleet that are put side by side."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Final

from sidecar.core.terms import Share, Terms
from sidecar.core.words import Policy


@dataclass(frozen=True)
class Rules:
    """How every sidecar of the fleet judges and by which terms it asks.

    ``watches``: there are sidecars at all. ``beats``: they tell the bucket how they are. ``on_ping``: an error that
    crosses the limit is judged at once. ``jitter``: part of an interval by which a check comes earlier or later.
    ``weighs``: they tell the balancer how well requests go, and it listens.
    """

    name: str
    policy: Policy = field(default_factory=Policy)
    terms: Terms = field(default_factory=Terms)
    watches: bool = True
    beats: bool = True
    on_ping: bool = True
    jitter: float = 0.1
    weighs: bool = False


NOBODY: Final = Rules("no culling", watches=False, beats=False)
WEIGHTS: Final = replace(NOBODY, name="weights", weighs=True)
OURS: Final = Rules("ours")
OURS_WEIGHTS: Final = replace(OURS, name="ours + weights", weighs=True)
EARN: Final = Rules("ours, EARN=on", terms=replace(OURS.terms, earn_max=0))
EARN_WEIGHTS: Final = replace(EARN, name="ours + weights, EARN=on", weighs=True)
ARTICLE: Final = Rules(
    "article",
    Policy(error_ratio=0, settle_s=0, drain_s=0),
    Terms(
        strategy="fixed",
        min_healthy=Share(0),
        never_last=False,
        brake=0,
        useless_after=0,
        lost_is_empty=False,
    ),
    beats=False,
    on_ping=False,
    jitter=0,
)
LIFETIME_S: Final = 6 * 3600.0
REPLACE_S: Final = 60.0
"""``ARBITER_REPLACE_TIME`` as shipped: what replacing one takes as a rule."""


def aging(
    slots: str, lifetime_s: float = LIFETIME_S, *, patience_s: float = 0.0, terms: Terms = OURS.terms, name: str = ""
) -> Rules:
    """Ours with a lifetime and so many ``slots``: ``1``, or ``50p`` for 5 %. The busy have ``patience_s``."""
    policy = replace(OURS.policy, lifetime_s=lifetime_s, lifetime_max_s=patience_s, retire_slots=slots)
    return Rules(name or f"{slots} slots", policy, terms)


def renewal_s(policy: Policy, containers: int) -> float:
    """Seconds that retiring so many takes when all are due: n * d / k."""
    return containers * REPLACE_S / Share.read(policy.retire_slots).at_most(containers)


ALL: Final = (NOBODY, WEIGHTS, ARTICLE, OURS, OURS_WEIGHTS, EARN, EARN_WEIGHTS)
