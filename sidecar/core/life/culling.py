"""The moves to a cull, and back from the way there.

- A claim needs two things first: a beat that announces the suspect, and then the settle time, in which other suspects
  are announced. A beat without an answer restarts both. A person's order needs neither.
- Only ``Granted`` leads to draining, and only while the verdict is excessive or a person ordered the cull.
- A claim waits for the answer to an outstanding request for a lease.
- Old errors do not claim: a suspect whose last error is old waits for another one, or recovers.
- An order makes one claim. If that is not granted, the container returns to its state before the order.
"""

from __future__ import annotations

from typing import Final

from sidecar.core.claims import MANUAL, Answer, Claim, Denied, Granted, Presence
from sidecar.core.explain import reasons
from sidecar.core.life import grant_request
from sidecar.core.life.container import Container, Step, enter
from sidecar.core.life.events import (
    Answered,
    BeatAnswered,
    BeatUnanswered,
    ClearWindow,
    Culled,
    CullOrder,
    CullOrdered,
    Event,
    GiveBack,
    Judged,
    Moved,
    OrderIgnored,
    OrderTaken,
    Recovered,
    SaveIncarnation,
    Suspected,
    TokenAnswered,
    WentDown,
    WouldCull,
)
from sidecar.core.types import Latch, Policy, State

DRAIN_MIN_S: Final = 3.0
"""A drain may end early from then on: HAProxy asks every 2 s, and needs to connect."""

HONOUR_S: Final = 300.0
HONOUR_DRAINS: Final = 3

OLD_WAIT_S: Final = 1.0
"""Interval at which a suspect with old errors checks for another one."""

OLD_ERRORS: Final = Denied("old_errors", 0, 0, OLD_WAIT_S)
"""What a suspect with old errors says of its claim; the fleet was not asked."""


def begin(container: Container, trigger: Judged, now: float, policy: Policy) -> Step:
    """Judge a starting app after its grace; errors in the grace do not count."""
    if now < container.grace_ends:
        return Step(container)
    if policy.grace_s <= 0 and not trigger.verdict.is_fine:
        return suspect(container, trigger, now, policy)
    moved = Moved(was=container.state, state=State.UP)
    container = enter(container, State.UP, now)
    if policy.grace_s <= 0:
        return Step(container, events=(moved,))
    return Step(container._replace(verdict=None), (ClearWindow(heart=False),), (moved,))


def suspect(container: Container, trigger: Judged, now: float, _policy: Policy) -> Step:
    """Suspect the app if it is sick; then a beat has to announce it."""
    if trigger.verdict.is_fine:
        return Step(container)
    suspected = Suspected(was=container.state, state=State.SUSPECT, verdict=trigger.verdict)
    container = enter(container, State.SUSPECT, now)._replace(cause=trigger.verdict.cause, answer=None)
    return Step(container, events=(suspected,))


def announced(container: Container, trigger: BeatAnswered, now: float, policy: Policy) -> Step:
    """Plan the claim once the fleet knows of this suspect; answers to other beats change nothing."""
    is_about_it = trigger.presence is Presence.SUSPECT and trigger.life == container.life and not container.would_down
    if not is_about_it or container.is_announced:
        return Step(container)
    container = container._replace(is_announced=True)
    if container.asking or container.order is not None:
        return Step(container)
    wait_s = max(grant_request.spread(policy.settle_s, trigger.jitter, container.verdict), trigger.wait_s)
    return Step(container._replace(ask_at=now + wait_s)) if wait_s > 0 else _claim(container, now)


def unannounced(container: Container, _trigger: BeatUnanswered, _now: float, _policy: Policy) -> Step:
    """Stop claiming until the store answers a beat again, unless a person ordered the cull."""
    ask_at = container.ask_at if container.order is not None else None
    return Step(container._replace(is_announced=False, ask_at=ask_at))


def pursue(container: Container, trigger: Judged, now: float, _policy: Policy) -> Step:
    """Claim when it is due while the verdict is excessive or there is an order; else go back up."""
    is_fine = trigger.verdict.is_fine
    if not (is_fine or container.order or container.would_down):
        # While the window is empty the last cause stays: the fleet would take another one for another suspect.
        container = container._replace(cause=trigger.verdict.cause)
    if container.asking:
        return Step(container)
    if is_fine and container.order is None:
        return _recover(container, now, grant_request.unused(container))
    if container.due is None or now < container.due:
        return Step(container)
    return _claim(container, now)


def order(container: Container, trigger: CullOrdered, now: float, _policy: Policy) -> Step:
    """Claim at once for an order, instead of a lease; an outstanding claim counts for the order, too."""
    if container.order is not None or container.would_down:
        return Step(container, events=(OrderIgnored(trigger),))
    lease = grant_request.unused(container) if container.state is State.RETIRING else ()
    events: tuple[Event, ...] = (OrderTaken(trigger),)
    container = container._replace(order=CullOrder(trigger.author, trigger.reason, back=container.state))
    if container.state is not State.SUSPECT:
        suspected = Suspected(was=container.state, state=State.SUSPECT, verdict=container.verdict, by_order=True)
        container, events = enter(container, State.SUSPECT, now), (*events, suspected)
    container = container._replace(cause=MANUAL)
    after, effects, more = Step(container) if container.asking else _claim(container, now)
    return Step(after, (*lease, *effects), (*events, *more))


def _claim(container: Container, now: float) -> Step:
    """Claim, as soon as the answer to an outstanding request for a lease has come; but not on old errors."""
    if container.outstanding is not None:
        return Step(container._replace(ask_at=now))
    if container.order is None and container.verdict is not None and container.verdict.is_old:
        return Step(container._replace(ask_at=now + OLD_WAIT_S, answer=OLD_ERRORS, answered_at=now))
    holder = container.identity.holder
    claim = Claim(container.claim_id, container.instance, container.life, container.cause, holder)
    first = () if container.asked else (SaveIncarnation(),)
    return Step(grant_request.ask(container, claim)._replace(asked=True), (*first, claim))


def _recover(container: Container, now: float, effects: tuple[GiveBack, ...]) -> Step:
    recovered = Recovered(
        was=container.state,
        state=State.UP,
        suspect_s=now - container.since,
        would_down_s=now - container.out_since if container.would_down and container.out_since is not None else None,
    )
    container = enter(container, State.UP, now)._replace(would_down=False, out_since=None)
    return Step(container, effects, (recovered,))


def answered(container: Container, trigger: Answered, now: float, policy: Policy) -> Step:
    """Act on the answer to the outstanding claim; any other answer comes too late."""
    if trigger.request != container.outstanding or not container.asking:
        return grant_request.late(container, trigger, now, policy)
    refused, reason = container.refused, trigger.answer.reason if isinstance(trigger.answer, Denied) else ""
    answer = TokenAnswered(
        container.claim_id, trigger.answer, trigger.took_s, is_repeated=reason in refused, order=container.order
    )
    refused = (*refused, reason) if reason and not answer.is_repeated else refused
    container = grant_request.take_answer(container, trigger.answer, now)
    container = container._replace(answer=trigger.answer, refused=refused)
    after, effects, events = _decided(container, trigger, now, policy)
    return Step(after, effects, (answer, *events))


def _decided(container: Container, trigger: Answered, now: float, policy: Policy) -> Step:
    if not isinstance(trigger.answer, Granted):
        return _refused(container, trigger.answer, now, trigger.jitter, policy)
    if container.order is None and (container.verdict is None or container.verdict.is_fine):
        return _recover(container, now, (GiveBack(container.claim_id),))
    return _cull(container, trigger, now, policy)


def _refused(container: Container, answer: Answer, now: float, jitter: float, policy: Policy) -> Step:
    order, container = container.order, container._replace(order=None)
    if order is not None and order.back is not State.SUSPECT:
        moved = Moved(was=container.state, state=order.back)
        back = enter(container, order.back, now)._replace(ask_at=now)  # a container that retires asks for its lease
        return Step(back, grant_request.unused(container), (moved,))
    if order is not None and container.verdict is not None:
        container = container._replace(cause=container.verdict.cause)
    container = grant_request.again(container, answer, now, jitter, policy)
    return Step(container if container.is_announced else container._replace(ask_at=None))


def _cull(container: Container, trigger: Answered, now: float, policy: Policy) -> Step:
    """Drain under the token, and remember it; in shadow mode only count the cull."""
    verdict, order = container.verdict, container.order
    if not policy.enforce:
        would = container._replace(would_culls=container.would_culls + 1, would_down=True, out_since=now, order=None)
        return Step(would, events=(WouldCull(verdict, order),))
    reason = reasons.verdict(verdict)
    if order is not None:
        reason = f"{reasons.ORDERED}; {reason}" if reason else reasons.ORDERED
    after = grant_request.out_of_balance(container, Latch(container.claim_id, trigger.at, reason), now, policy)
    culled = Culled(
        was=container.state,
        state=after.state,
        why=reason,
        verdict=verdict,
        order=order,
        suspect_s=now - container.since,
    )
    return Step(after, (SaveIncarnation(),), (culled,))


def drain(container: Container, trigger: Judged, now: float, _policy: Policy) -> Step:
    """Go down when the drain is over, or as soon as the app is idle."""
    if now < container.drain_ends and not is_drained(container, trigger.idle_at):
        return Step(container)
    return Step(enter(container, State.DOWN, now), events=(WentDown(was=container.state, state=State.DOWN),))


def is_drained(container: Container, idle_at: float | None) -> bool:
    """Whether a drain may end early: the app was idle after every balancer had noticed the drain.

    An app that is idle earlier may be between two requests.
    """
    if container.state is not State.DRAINING or idle_at is None:
        return False
    return idle_at >= container.since + DRAIN_MIN_S


def honour_s(drain_s: float) -> float:
    """Seconds after which a cull is not honoured, if the container is still there."""
    return max(HONOUR_S, HONOUR_DRAINS * drain_s)
