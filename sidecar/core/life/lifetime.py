"""When the retirement of a container is due. Instants are seconds of one clock; ages and durations are seconds."""

from __future__ import annotations

from math import inf
from typing import Final, NamedTuple

from sidecar.core.types import Load, Policy

LOAD_KEPT_S: Final = 60.0
"""How long the last reported load counts. An app that has reported none for longer counts as idle."""

RESPITE: Final = 1 / 4
"""After a retirement without a replacement the next one waits for this part of the lifetime."""


class Lifespan(NamedTuple):
    """When an incarnation began, where in the jitter it ends (``part`` from 0 to 1), and the end of its respite."""

    born: float
    part: float = 0.5
    respite_until: float = -inf


def due_at(life: Lifespan, policy: Policy) -> float | None:
    """When the retirement is due, unless the app is busy then; None: never."""
    if policy.lifetime_s <= 0:
        return None
    return max(life.born + policy.lifetime_s * _factor(life.part, policy), life.respite_until)


def is_due(life: Lifespan, load: Load | None, now: float, policy: Policy) -> bool:
    """Whether to retire the container now: it is old enough, and idle or too old to wait for that."""
    due = due_at(life, policy)
    if due is None or now < due:
        return False
    return now >= life.born + policy.lifetime_max_s * _factor(life.part, policy) or not is_busy(load, policy)


def is_busy(load: Load | None, policy: Policy) -> bool:
    """Whether the app reported a load above ``busy_load`` within the last minute."""
    return load is not None and load.age_s <= LOAD_KEPT_S and load.value > policy.busy_load


def _factor(part: float, policy: Policy) -> float:
    return 1 + policy.lifetime_jitter * (2 * part - 1)
