"""Stories: at this second this happens and leads there, with or without a claim."""

from __future__ import annotations

from dataclasses import replace

import pytest

from harness.containers import (
    DENIED,
    DOWN,
    DRAINING,
    FINE,
    GRANTED,
    POLICY,
    SICK,
    STARTING,
    SUSPECT,
    UNKNOWN,
    UP,
    answered,
    asks,
    begun,
    step_and_beat,
)
from sidecar.core.life.container import Container
from sidecar.core.life.triggers import ClaimToken, Judged, Trigger
from sidecar.core.types import Answer, Policy, State

Row = tuple[float, Trigger | Answer, State | type[ClaimToken]]
"""Second, what happens, and the state it leads to; ``ClaimToken``: suspect, and a claim goes out."""


def check_story(rows: list[Row], policy: Policy) -> Container:
    """Every row leads where it says; where all of them lead to. The fleet hears of every suspect at once."""
    container = begun(policy)
    for now, happened, expected in rows:
        event = answered(container, happened) if isinstance(happened, Answer) else happened
        container, effects = step_and_beat(container, event, now, policy)
        state = SUSPECT if expected is ClaimToken else expected
        assert (container.state, bool(asks(effects))) == (state, expected is ClaimToken), f"at {now} s"
    return container


def idle(at: float) -> Judged:
    """A look at an app that said at this second that nothing was in flight."""
    return replace(SICK, idle_at=at)


SETTLED: list[Row] = [(0, FINE, UP), (5, SICK, SUSPECT), (8, SICK, ClaimToken)]
"""Up, sick at 5 s, asked at 8 s."""

WARM_UP = replace(POLICY, grace_s=30.0)
IMPATIENT = replace(POLICY, settle_s=0.0)
SHADOW = replace(POLICY, enforce=False)


@pytest.mark.parametrize(
    ("policy", "rows"),
    [
        (WARM_UP, [(0, SICK, STARTING), (29.999, SICK, STARTING), (30, FINE, UP)]),
        (WARM_UP, [(1_000, FINE, UP), (1_001, SICK, SUSPECT)]),
    ],
    ids=["nothing counts in the grace", "first look comes late"],
)
def test_starting_app_is_left_alone_until_its_grace_is_over(policy: Policy, rows: list[Row]) -> None:
    check_story(rows, policy)


@pytest.mark.parametrize(
    ("policy", "rows"),
    [
        (POLICY, [(9, GRANTED, DRAINING), (18.999, SICK, DRAINING), (19, SICK, DOWN)]),
        (POLICY, [(9, GRANTED, DRAINING), (500, FINE, DOWN), (9_999, FINE, DOWN)]),
        (POLICY, [(9, GRANTED, DRAINING), (10, DENIED, DRAINING), (10, UNKNOWN, DRAINING)]),
        (POLICY, [(9, GRANTED, DRAINING), (11.999, idle(11.999), DRAINING), (12, idle(12), DOWN)]),
        (POLICY, [(9, GRANTED, DRAINING), (15, idle(8), DRAINING), (18, idle(11.999), DRAINING), (19, SICK, DOWN)]),
        (replace(POLICY, drain_s=2.0), [(9, GRANTED, DRAINING), (10, idle(10), DRAINING), (11, idle(11), DOWN)]),
    ],
    ids=[
        "down after the drain",
        "down until somebody acts",
        "late replies change nothing",
        "idle ends the drain once every balancer has let go",
        "idle before that may have been between two requests",
        "a drain shorter than that has its own end",
    ],
)
def test_granted_container_drains_and_goes_down(policy: Policy, rows: list[Row]) -> None:
    check_story([*SETTLED, *rows], policy)


# -- gone without a name for the next life --------------------------------------------------------------------
