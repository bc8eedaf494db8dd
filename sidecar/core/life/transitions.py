"""The only place where a state moves: ``step(standing, event, now, policy) -> (standing, effects)``.

Rules of the room:
- no clock, no randomness, no I/O: time and jitter arrive with the call, wishes leave as effects;
- every pair (state, event) stands in ``TRANSITIONS``; an event that means nothing in a state leaves it as it was;
- only ``Granted`` leads to draining: a token while the evidence still speaks, or a lease; ``Denied`` and ``Unknown``
  never do;
- no claim overtakes a beat: the fleet hears that a container is suspect before that claims a token;
- at most one request is outstanding (``asking``, ``leasing``), and an incarnation uses one claim id and one holder
  word however often it asks;
- a culled container stays down until the app is another incarnation, or a person says otherwise.

The moves to a cull are in ``culling``, those to a retirement in ``retiring``, and those from life to life here.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Final

from sidecar.core.life import culling, retiring
from sidecar.core.life.container import Container, enter, resume, start
from sidecar.core.life.culling import Step
from sidecar.core.life.events import (
    Answered,
    Ask,
    AskLease,
    BeatAnswered,
    BeatUnanswered,
    ClearWindow,
    CullOrdered,
    Effect,
    Event,
    Judged,
    Leased,
    Remember,
    Resign,
    Restarted,
    ReturnToken,
    Revived,
    Stopped,
)
from sidecar.core.types import Policy, State

__all__ = [
    "TRANSITIONS",
    "Answered",
    "Ask",
    "AskLease",
    "BeatAnswered",
    "BeatUnanswered",
    "ClearWindow",
    "Container",
    "CullOrdered",
    "Effect",
    "Event",
    "Judged",
    "Leased",
    "Move",
    "Remember",
    "Resign",
    "Restarted",
    "ReturnToken",
    "Revived",
    "Step",
    "Stopped",
    "resume",
    "start",
    "step",
]

Move = Callable[..., Step]
"""``(standing, event, now, policy)``; each move takes the one event that the table pairs it with."""


def step(container: Container, event: Event, now: float, policy: Policy) -> Step:
    """Answer one event: the standing after it, and the wishes that follow from it."""
    return TRANSITIONS[container.state, type(event)](container, event, now, policy)


def _stay(container: Container, _event: Event, _now: float, _policy: Policy) -> Step:
    return container, ()


def _watch(container: Container, event: Judged, _now: float, _policy: Policy) -> Step:
    return replace(container, verdict=event.verdict), ()


def _named(container: Container, event: Restarted, now: float, policy: Policy) -> Step:
    """Take the first name that we hear as the name of the life we have been watching.

    Who has asked the bucket for something goes on under the word that it asked with: to the fleet another word is
    another life, which has replaced the one that was granted it.
    """
    if container.app_start is not None or event.app_start is None:
        return _restart(container, event, now, policy)
    has_asked = container.asked or container.state is State.RETIRING
    incarnation = container.incarnation if has_asked else event.app_start
    container = replace(container, app_start=event.app_start, incarnation=incarnation)
    if container.state is State.SUSPECT and not has_asked:  # the fleet has heard of it under another word
        container = replace(container, is_heard=False, due=None if container.order is None else container.due)
    return container, (Remember(),)


def _restart(container: Container, event: Restarted, now: float, policy: Policy) -> Step:
    """Begin anew with another incarnation: no latch, no window, no claim of the old one.

    A culled app that had no name is replaced by one that has: a name that comes late comes from a new life. What
    held the lease of the old one is the fleet's to free, once the new one is well. A claim that has not been answered
    may have been granted: its token is given back.
    """
    fresh = start(container.app, now, policy, app_start=event.app_start, identity=event.identity)
    fresh = replace(fresh, incarnation=event.incarnation or fresh.incarnation)
    is_unclear = container.state is State.SUSPECT and (container.asking or container.unclear)
    unused = (ReturnToken(container.claim_id),) if is_unclear else ()
    return fresh, (ClearWindow(), *unused, Remember())


def _stop(container: Container, _event: Event, now: float, _policy: Policy) -> Step:
    """Leave the balance; what Nomad has been told stays told, and nothing else is."""
    stopping = replace(enter(container, State.STOPPING, now), nomad_told=not container.nomad_up)
    return stopping, (*retiring.unused(container), *culling.unused(container))


TRANSITIONS: Final[Mapping[tuple[State, type], Move]] = {
    (State.STARTING, Judged): culling.begin,
    (State.STARTING, Answered): culling.late,
    (State.STARTING, Leased): retiring.late,
    (State.STARTING, BeatAnswered): _stay,
    (State.STARTING, BeatUnanswered): _stay,
    (State.STARTING, Restarted): _named,
    (State.STARTING, CullOrdered): culling.order,
    (State.STARTING, Revived): _stay,
    (State.STARTING, Stopped): _stop,
    (State.UP, Judged): retiring.live,
    (State.UP, Answered): culling.late,
    (State.UP, Leased): retiring.late,
    (State.UP, BeatAnswered): _stay,
    (State.UP, BeatUnanswered): _stay,
    (State.UP, Restarted): _named,
    (State.UP, CullOrdered): culling.order,
    (State.UP, Revived): _stay,
    (State.UP, Stopped): _stop,
    (State.SUSPECT, Judged): culling.pursue,
    (State.SUSPECT, Answered): culling.answered,
    (State.SUSPECT, Leased): retiring.late,
    (State.SUSPECT, BeatAnswered): culling.heard,
    (State.SUSPECT, BeatUnanswered): culling.unheard,
    (State.SUSPECT, Restarted): _named,
    (State.SUSPECT, CullOrdered): culling.order,
    (State.SUSPECT, Revived): _stay,
    (State.SUSPECT, Stopped): _stop,
    (State.RETIRING, Judged): retiring.live,
    (State.RETIRING, Answered): culling.late,
    (State.RETIRING, Leased): retiring.leased,
    (State.RETIRING, BeatAnswered): _stay,
    (State.RETIRING, BeatUnanswered): _stay,
    (State.RETIRING, Restarted): _named,
    (State.RETIRING, CullOrdered): retiring.order,
    (State.RETIRING, Revived): _stay,
    (State.RETIRING, Stopped): _stop,
    (State.DRAINING, Judged): culling.drain,
    (State.DRAINING, Answered): culling.late,
    (State.DRAINING, Leased): retiring.late,
    (State.DRAINING, BeatAnswered): _stay,
    (State.DRAINING, BeatUnanswered): _stay,
    (State.DRAINING, Restarted): _restart,
    (State.DRAINING, CullOrdered): _stay,
    (State.DRAINING, Revived): retiring.revive,
    (State.DRAINING, Stopped): _stop,
    (State.DOWN, Judged): retiring.rest,
    (State.DOWN, Answered): culling.late,
    (State.DOWN, Leased): retiring.late,
    (State.DOWN, BeatAnswered): _stay,
    (State.DOWN, BeatUnanswered): _stay,
    (State.DOWN, Restarted): _restart,
    (State.DOWN, CullOrdered): _stay,
    (State.DOWN, Revived): retiring.revive,
    (State.DOWN, Stopped): _stop,
    (State.STOPPING, Judged): _watch,
    (State.STOPPING, Answered): culling.late,
    (State.STOPPING, Leased): retiring.late,
    (State.STOPPING, BeatAnswered): _stay,
    (State.STOPPING, BeatUnanswered): _stay,
    (State.STOPPING, Restarted): _stay,
    (State.STOPPING, CullOrdered): _stay,
    (State.STOPPING, Revived): _stay,
    (State.STOPPING, Stopped): _stay,
}
