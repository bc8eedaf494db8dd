"""Claims and beats in a word, and terms under which nothing but the window limits."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Final

from sidecar.budget import Budget
from sidecar.core.terms import Share, Terms
from sidecar.core.words import US_PER_S, Answer, Beat, Claim, Denied, Granted, Lease, Presence, Unknown

S: Final = US_PER_S
"""Microseconds."""

WINDOW_ONLY: Final = Terms(
    min_healthy=Share(0), never_last=False, brake=0, useless_after=0, lost_is_empty=False, spacing_us=0
)
"""The article's numbers, without any gate of the fleet."""


def claim(name: str, kind: str = "redis", life: str = "1") -> Claim:
    """The claim of the container with this name, in this life of it."""
    return Claim(name if life == "1" else f"{name}/{life}", name, life, kind)


def beat(name: str, presence: Presence = Presence.WELL, **changes: Any) -> Beat:
    """A sign of its life."""
    return Beat(name, changes.pop("life", "1"), presence, **changes)


def bare(answer: Answer) -> Answer:
    """The answer without the numbers of the fleet."""
    if isinstance(answer, Denied):
        return Denied(answer.reason, answer.used, answer.capacity, answer.retry_after_s)
    if isinstance(answer, Granted):
        return Granted(answer.used, answer.capacity, answer.replayed)
    return answer


def lease(name: str, holder: str = "", slots: str = "1", life: str = "1", timeout_s: float = 300) -> Lease:
    """Its request to go for its age, under a word of its own unless told another."""
    return Lease(holder or f"{name}'s", name, life, slots, timeout_s)


async def ask(budget: Budget, name: str) -> Answer:
    """What the container with this name is told, without the numbers of the fleet."""
    return bare(await budget.claim(claim(name)))


async def warm(budget: Budget) -> Unknown | None:
    """None when a beat was answered, after which a claim costs one round trip."""
    answer = await budget.beat(beat("somebody else"))
    return answer if isinstance(answer, Unknown) else None


def without_time(answer: Answer) -> Answer:
    """The answer without how long a lease lasts: on a real server that is never twice the same."""
    return replace(answer, left_s=None) if isinstance(answer, Granted) else answer
