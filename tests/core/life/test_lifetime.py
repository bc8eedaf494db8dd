"""When the retirement of a container is due, and which may wait."""

from __future__ import annotations

from dataclasses import replace
from math import inf

import pytest

from sidecar.core.app_reports import Load
from sidecar.core.claims import RandomIdentity
from sidecar.core.life.container import Container
from sidecar.core.life.retiring import due_at, is_due
from sidecar.core.types import Policy, State

HOURS = Policy(lifetime_s=21_600.0)
PATIENT = replace(HOURS, lifetime_max_s=36_000.0, busy_load=0.5)
BUSY, IDLE = Load(0.8, 5.0), Load(0.5, 5.0)


def lifespan(born: float, part: float = 0.5, respite_until: float = -inf) -> Container:
    """A container that began at ``born``, ``part`` of the way through the jitter."""
    identity = RandomIdentity("holder", part)
    return Container(State.UP, born, "web/a", born=born, identity=identity, respite_until=respite_until)


MIDDLE = lifespan(1_000.0)


@pytest.mark.parametrize(
    ("policy", "life", "due"),
    [
        (Policy(), MIDDLE, None),
        (HOURS, lifespan(1_000.0, 0.0), 20_440.0),
        (HOURS, lifespan(1_000.0, 0.5), 22_600.0),
        (HOURS, lifespan(1_000.0, 1.0), 24_760.0),
        (HOURS, lifespan(1_000.0, 0.5, 30_000.0), 30_000.0),
        (HOURS, lifespan(1_000.0, 0.5, 2_000.0), 22_600.0),
        (HOURS, lifespan(-50_000.0), -28_400.0),
    ],
    ids=[
        "never without a lifetime",
        "the earliest",
        "the middle",
        "the latest",
        "not in its respite",
        "a respite that is over",
        "born long before the clock began",
    ],
)
def test_life_is_due_at_its_own_age(policy: Policy, life: Container, due: float | None) -> None:
    assert due_at(life, policy) == (due if due is None else pytest.approx(due))


@pytest.mark.parametrize(
    ("policy", "now", "load", "expected"),
    [
        (HOURS, 22_599.9, None, False),
        (HOURS, 22_600.0, None, True),
        (HOURS, 22_600.0, BUSY, True),
        (PATIENT, 22_600.0, None, True),
        (PATIENT, 22_600.0, IDLE, True),
        (PATIENT, 22_600.0, BUSY, False),
        (PATIENT, 22_600.0, Load(0.8, 60.0), False),
        (PATIENT, 22_600.0, Load(0.8, 60.1), True),
        (PATIENT, 36_999.9, BUSY, False),
        (PATIENT, 37_000.0, BUSY, True),
        (PATIENT, 10_000.0, IDLE, False),
        (Policy(), 1e9, None, False),
    ],
    ids=[
        "too young",
        "old enough",
        "nobody waits without a maximum",
        "a load that nobody told is none",
        "just at the mark is idle",
        "busy waits",
        "word of a minute ago counts",
        "older word does not",
        "busy waits to the last",
        "and no longer",
        "idle but young",
        "without a lifetime nobody goes",
    ],
)
def test_busy_waits_and_idle_goes(policy: Policy, now: float, load: Load | None, expected: object) -> None:
    assert is_due(MIDDLE, load, now, policy) is expected
