"""All transitions of a container: ``step(container, trigger, now, policy) -> (container, effects, events)``.

The state moves here and nowhere else. ``TRANSITIONS`` names, for each state and trigger, the function that makes the
move and every other state that it may lead to; a trigger that is not listed for a state leaves the container as it is.

- Time and jitter are arguments. What has to be done is returned as effects, and what has happened as events.
- Only ``Granted`` leads to draining: a token while the verdict is still excessive, or a lease. ``Denied`` and
  ``Unknown`` never do.
- No claim is made before a beat has announced to the fleet that the container is suspect.
- At most one request is outstanding (``grant_request``). An incarnation uses one claim id and one holder.
- The container gives back every unused token or lease that it has or may have.
- A culled container stays down until the app is another incarnation, or a person revives it.

The moves to a cull are in ``culling``, those to a retirement in ``retiring``, those between incarnations below.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final, NamedTuple

from sidecar.core.life import culling, grant_request, retiring
from sidecar.core.life.container import Container, Step, enter, start
from sidecar.core.life.events import (
    Answered,
    AppRestarted,
    BeatAnswered,
    BeatUnanswered,
    Checked,
    ClearWindow,
    CullOrdered,
    GiveBack,
    Judged,
    Moved,
    OrderIgnored,
    Restarted,
    ReviveOrdered,
    SaveIncarnation,
    StopRequested,
    Trigger,
)
from sidecar.core.types import Policy, State

Move = Callable[..., Step]
"""``(container, trigger, now, policy) -> step``; each move takes the triggers that the table pairs it with."""


class Transition(NamedTuple):
    """A move, and the other states that it may lead to, each with the reason that the diagram shows."""

    move: Move
    to: Mapping[State, str] = {}


def step(container: Container, trigger: Trigger, now: float, policy: Policy) -> Step:
    """Return the container after the trigger, the effects that follow, and the events: what has happened."""
    transition = TRANSITIONS.get((container.state, type(trigger)))
    if transition is None:
        ignored = (OrderIgnored(trigger),) if isinstance(trigger, (CullOrdered, ReviveOrdered)) else ()
        return Step(container, events=ignored)
    if not isinstance(trigger, Judged):
        return transition.move(container, trigger, now, policy)
    after, effects, events = transition.move(container._replace(verdict=trigger.verdict), trigger, now, policy)
    return Step(after, effects, (Checked(trigger.verdict), *events))


def _stay(container: Container, _trigger: Judged, _now: float, _policy: Policy) -> Step:
    """Only be judged: readers still see the verdict, and the check is counted."""
    return Step(container)


def _name_or_restart(container: Container, trigger: AppRestarted, now: float, policy: Policy) -> Step:
    """Take the first id that is reported as that of the current incarnation; any other id is another incarnation.

    A container that has asked for a token or a lease keeps the id of its request: the fleet would take another id for
    the replacement.
    """
    if container.app_start is not None:
        return _restart(container, trigger, now, policy)
    has_asked = container.asked or container.state is State.RETIRING
    incarnation = container.incarnation if has_asked else trigger.app_start
    container = container._replace(app_start=trigger.app_start, incarnation=incarnation)
    if container.state is State.SUSPECT and not has_asked:  # the fleet knows it by another id
        container = container._replace(is_announced=False, ask_at=None if container.order is None else container.ask_at)
    return Step(container, (SaveIncarnation(),))


def _restart(container: Container, trigger: AppRestarted, now: float, policy: Policy) -> Step:
    """Begin another incarnation without latch, window and claim of the last.

    If a container is out of balance, even the first id is that of a new incarnation. The fleet frees the lease of the
    old one once the new one is well. The container gives back a token that it may have.
    """
    fresh = start(container.app, now, policy, app_start=trigger.app_start, identity=trigger.identity)
    is_unclear = container.state is State.SUSPECT and (container.asking or container.unclear is not None)
    returned = (GiveBack(container.claim_id),) if is_unclear else ()
    restarted = Restarted(
        was=container.state,
        state=fresh.state,
        app_start=trigger.app_start,
        out_s=container.out_s(now) if container.latch else None,
    )
    return Step(fresh, (ClearWindow(), *returned, SaveIncarnation()), (restarted,))


def _stop(container: Container, _trigger: StopRequested, now: float, _policy: Policy) -> Step:
    """Leave the balancer. The answer to the scheduler stays: the end of the sidecar must not restart the app."""
    stopping = enter(container, State.STOPPING, now)._replace(stopped_down=not container.nomad_up)
    moved = Moved(was=container.state, state=State.STOPPING)
    return Step(stopping, grant_request.unused(container), (moved,))


_ORDERED: Final = {State.SUSPECT: "a person orders a cull"}
_RESTARTED: Final = {State.STARTING: "the app restarts"}
_REVIVED: Final = {State.UP: "a person revives it"}
_SICK: Final = "too many errors"

TRANSITIONS: Final[Mapping[tuple[State, type[Trigger]], Transition]] = {
    **{(state, Answered): Transition(grant_request.late) for state in State},
    **{
        (state, StopRequested): Transition(_stop, {State.STOPPING: "the sidecar stops"})
        for state in State
        if state is not State.STOPPING
    },
    # starting
    (State.STARTING, Judged): Transition(
        culling.begin, {State.UP: "the grace is over", State.SUSPECT: f"{_SICK}, without a grace"}
    ),
    (State.STARTING, AppRestarted): Transition(_name_or_restart),
    (State.STARTING, CullOrdered): Transition(culling.order, _ORDERED),
    # up
    (State.UP, Judged): Transition(
        retiring.judge_alive, {State.SUSPECT: _SICK, State.RETIRING: "its retirement is due"}
    ),
    (State.UP, AppRestarted): Transition(_name_or_restart, _RESTARTED),
    (State.UP, CullOrdered): Transition(culling.order, _ORDERED),
    # suspect
    (State.SUSPECT, Judged): Transition(culling.pursue, {State.UP: "it recovers"}),
    (State.SUSPECT, BeatAnswered): Transition(culling.announced),
    (State.SUSPECT, BeatUnanswered): Transition(culling.unannounced),
    (State.SUSPECT, Answered): Transition(
        culling.answered,
        {
            State.DRAINING: "a token is granted",
            State.DOWN: "a token is granted, without a drain",
            State.UP: "the ordered cull is refused",
            State.STARTING: "the ordered cull is refused",
            State.RETIRING: "the ordered cull is refused",
        },
    ),
    (State.SUSPECT, AppRestarted): Transition(_name_or_restart, _RESTARTED),
    (State.SUSPECT, CullOrdered): Transition(culling.order),
    # retiring
    (State.RETIRING, Judged): Transition(
        retiring.judge_alive, {State.UP: "its retirement is no longer due", State.SUSPECT: _SICK}
    ),
    (State.RETIRING, Answered): Transition(
        retiring.leased,
        {State.DRAINING: "a lease is granted", State.DOWN: "a lease is granted, without a drain"},
    ),
    (State.RETIRING, AppRestarted): Transition(_name_or_restart, _RESTARTED),
    (State.RETIRING, CullOrdered): Transition(culling.order, _ORDERED),
    # draining
    (State.DRAINING, Judged): Transition(culling.drain, {State.DOWN: "the drain is over"}),
    (State.DRAINING, AppRestarted): Transition(_restart, _RESTARTED),
    (State.DRAINING, ReviveOrdered): Transition(retiring.revive, _REVIVED),
    # down
    (State.DOWN, Judged): Transition(retiring.rest, {State.UP: "its lease ends before it is replaced"}),
    (State.DOWN, AppRestarted): Transition(_restart, _RESTARTED),
    (State.DOWN, ReviveOrdered): Transition(retiring.revive, _REVIVED),
    # stopping
    (State.STOPPING, Judged): Transition(_stay),
}
