"""The state of a container: what beats and people are told of it, and how it goes on after a restart."""

from __future__ import annotations

import pytest

from harness.containers import (
    APP,
    DOWN,
    DRAINING,
    FINE,
    LATCH,
    POLICY,
    RETIRING,
    STARTING,
    STOPPING,
    SUSPECT,
    UP,
    begun,
    step,
)
from sidecar.core.claims import Presence
from sidecar.core.life.container import resume
from sidecar.core.life.events import CullOrder
from sidecar.core.types import State

WOULD_BE_DOWN = {"would_culls": 2, "would_down": True}


@pytest.mark.parametrize(
    ("state", "changes", "presence", "life"),
    [
        (STARTING, {}, Presence.STARTING, "one"),
        (UP, {}, Presence.WELL, "one"),
        (SUSPECT, {}, Presence.SUSPECT, "one"),
        (RETIRING, {}, Presence.WELL, "one"),
        (SUSPECT, {"order": CullOrder("ann", "it leaks", STARTING)}, Presence.STARTING, "one"),
        (SUSPECT, {"order": CullOrder("ann", "it leaks", UP)}, Presence.WELL, "one"),
        (SUSPECT, {"order": CullOrder("ann", "it leaks", RETIRING)}, Presence.WELL, "one"),
        (SUSPECT, {"order": CullOrder("ann", "it leaks", SUSPECT)}, Presence.SUSPECT, "one"),
        (DRAINING, {}, Presence.DOWN, "one"),
        (DOWN, {}, Presence.DOWN, "one"),
        (STOPPING, {}, Presence.GONE, "one"),
        (SUSPECT, WOULD_BE_DOWN, Presence.DOWN, "one#2"),
        (STOPPING, WOULD_BE_DOWN, Presence.GONE, "one#2"),
        (SUSPECT, {"would_culls": 2}, Presence.SUSPECT, "one#3"),
        (SUSPECT, {"would_culls": 1}, Presence.SUSPECT, "one#2"),
        (SUSPECT, {"would_culls": 1, "would_down": True}, Presence.DOWN, "one"),
    ],
)
def test_each_state_has_its_presence_in_the_fleet(
    state: State, changes: dict[str, object], presence: Presence, life: str
) -> None:
    container = begun()._replace(state=state, **changes)  # type: ignore[arg-type]  # a table
    assert (container.presence, container.life) == (presence, life)
    assert (container.instance, container.claim_id) == ("alloc", f"{APP}/{life}")


@pytest.mark.parametrize(
    ("drain_s", "drained_for_s", "state", "due"),
    [
        (10, 0, DRAINING, 110),
        (10, 9.5, DRAINING, 100.5),
        (10, 10, DOWN, None),
        (10, 10**9, DOWN, None),
        (0, 0, DOWN, None),
    ],
)
def test_latched_sidecar_comes_back_in_the_rest_of_its_drain(
    drain_s: float, drained_for_s: float, state: State, due: float | None
) -> None:
    policy = POLICY._replace(drain_s=drain_s)
    container = resume(begun(policy), LATCH, 100.0, drained_for_s, policy)
    assert (container.state, container.due, container.latch) == (state, due, LATCH)
    assert step(container, FINE, 110.0, policy)[0].state is DOWN
