"""The moves that lead to a cull, and back from the way there.

- only ``Granted`` while the evidence still speaks, or a person ordered it, leads to draining;
- claims never overtake beats: before the first one the fleet has to have heard that this life is suspect, and the
  settle time has to have passed since, in which the others are heard as well. After a beat without an answer both
  begin anew, and the others are given the time to beat. A person who orders a cull need not wait for that;
- a token that was granted, or may have been, and is not used is given back;
- at most one request is outstanding: who waits for a lease claims no token before that is answered;
- an order asks once, and leads back to where it found the container unless it is granted.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from sidecar.core.explain import reasons
from sidecar.core.life.container import Container, Order, enter, is_drained, out_of_balance
from sidecar.core.life.delays import denied_delay, spread, unknown_delay
from sidecar.core.life.events import (
    Answered,
    Ask,
    BeatAnswered,
    BeatUnanswered,
    ClearWindow,
    CullOrdered,
    Effect,
    Judged,
    Remember,
    ReturnToken,
)
from sidecar.core.types import Answer, Denied, Granted, Judgement, Latch, Policy, Presence, State, Unknown

Step = tuple[Container, tuple[Effect, ...]]

LEASE_WAIT_S: Final = 0.25
"""How often who wants to claim looks whether its request for a lease has been answered."""


def begin(container: Container, event: Judged, now: float, policy: Policy) -> Step:
    """Judge a starting app only once its grace is over, and not by what it did in it."""
    container = replace(container, verdict=event.verdict)
    if container.due is not None and now < container.due:
        return container, ()
    container = enter(container, State.UP, now)
    if policy.grace_s > 0:
        return replace(container, verdict=None), (ClearWindow(heart=False),)
    return suspect(container, event, now, policy)


def suspect(container: Container, event: Judged, now: float, policy: Policy) -> Step:
    """Suspect the app once the evidence has spoken at ``confirm`` checks in a row; the fleet has to hear of it next."""
    bad_checks = 0 if event.verdict.judgement is Judgement.FINE else container.bad_checks + event.is_check
    container = replace(container, verdict=event.verdict, bad_checks=bad_checks)
    if event.verdict.judgement is Judgement.FINE or bad_checks < policy.confirm > 1:
        return container, ()
    return replace(enter(container, State.SUSPECT, now), unknowns=0), ()


def heard(container: Container, event: BeatAnswered, now: float, policy: Policy) -> Step:
    """Settle once the fleet has heard that this life is suspect; without a settle time claim at once."""
    is_told = event.presence is Presence.SUSPECT and event.life == container.life and not container.would_down
    if not is_told or container.is_heard:
        return container, ()
    container = replace(container, is_heard=True)
    if container.asking or container.order is not None:
        return container, ()
    settle_s = spread(policy.settle_s, event.jitter, container.verdict)
    due = max(now + settle_s, now + event.wait_s, container.born + policy.min_age_s)
    if now < due:
        return replace(container, due=due), ()
    return _claim(container, now)


def unheard(container: Container, _event: BeatUnanswered, _now: float, _policy: Policy) -> Step:
    """Claim no more until the fleet is heard again. What a person ordered waits for its own reasons only."""
    due = container.due if container.order is not None else None
    return replace(container, is_heard=False, due=due), ()


def pursue(container: Container, event: Judged, now: float, _policy: Policy) -> Step:
    """Claim when it has settled, as long as the evidence or a person speaks; without either go back up."""
    container = replace(container, verdict=event.verdict)
    if container.asking:
        return container, ()
    if event.verdict.judgement is Judgement.FINE and container.order is None:
        return _recover(container, now), unused(container)
    if container.due is None or now < container.due:
        return container, ()
    return _claim(container, now)


def order(container: Container, event: CullOrdered, now: float, _policy: Policy) -> Step:
    """Claim at once what a person wants. A claim that is on its way will do; who would be down already is left."""
    if container.order is not None or container.would_down:
        return container, ()
    wanted = Order(event.author, event.reason, container.state, container.due)
    container = replace(container, order=wanted)
    if container.state is not State.SUSPECT:
        container = replace(enter(container, State.SUSPECT, now), unknowns=0)
    return (container, ()) if container.asking else _claim(container, now)


def _claim(container: Container, now: float) -> Step:
    if container.leasing:
        return replace(container, due=now + LEASE_WAIT_S), ()
    first = () if container.asked else (Remember(),)
    return replace(container, asked=True, asking=True, due=None), (*first, Ask(container.claim_id))


def _recover(container: Container, now: float) -> Container:
    return replace(enter(container, State.UP, now), bad_checks=0, unknowns=0, would_down=False)


def unused(container: Container) -> tuple[ReturnToken, ...]:
    """What leaving the suspects gives back: a claim without a clear answer may have been granted all the same.

    An answer that is on its way is waited for.
    """
    if container.state is not State.SUSPECT or container.asking or not container.unclear:
        return ()
    return (ReturnToken(container.claim_id),)


def late(container: Container, event: Answered, _now: float, _policy: Policy) -> Step:
    """Give back a token that is not wanted here any more, and may have been granted; not the one that is in use."""
    in_use = container.latch.claim_id if container.latch else container.claim_id if container.would_down else ""
    if isinstance(event.answer, Denied) or event.claim_id == in_use:
        return container, ()
    return container, (ReturnToken(event.claim_id),)


def answered(container: Container, event: Answered, now: float, policy: Policy) -> Step:
    """Act on a reply. One to another claim than the outstanding one says nothing about us.

    A refused container asks again at the next check, as the seed article does: what refused it may be lifted
    before ``retry_after_s`` by a person. If that is over sooner it asks sooner.
    """
    if not container.asking or event.claim_id != container.claim_id:
        return late(container, event, now, policy)
    is_refused = container.refused or isinstance(event.answer, Denied)
    unclear = _is_unclear(container, event.answer)
    container = replace(container, asking=False, answer=event.answer, refused=is_refused, unclear=unclear)
    if not isinstance(event.answer, Granted):
        return _refused(container, event.answer, now, event.jitter, policy)
    container = replace(container, unknowns=0)
    if container.order is None and (container.verdict is None or container.verdict.judgement is Judgement.FINE):
        return _recover(container, now), (ReturnToken(event.claim_id),)
    return _cull(container, event, now, policy)


def _is_unclear(container: Container, answer: Answer) -> bool:
    """Whether the claim may have been granted. A hold refuses before anybody looks whether it has been."""
    if isinstance(answer, Denied):
        return container.unclear and answer.hold is not None
    return not isinstance(answer, Granted)


def _refused(container: Container, answer: Answer, now: float, jitter: float, policy: Policy) -> Step:
    order, container = container.order, replace(container, order=None)
    if order is None or order.back is State.SUSPECT:
        container = again(container, answer, now, jitter, policy)
        return (container if container.is_heard else replace(container, due=None)), ()
    is_unclear = not isinstance(answer, Denied)
    due = now if order.back is State.RETIRING else order.due
    back = replace(enter(container, order.back, now, due=due), unknowns=0)
    return back, (ReturnToken(container.claim_id),) if is_unclear else ()


def again(container: Container, answer: Answer, now: float, jitter: float, policy: Policy) -> Container:
    """Standing of who was not granted what it asked for, and is to ask anew."""
    if isinstance(answer, Unknown):
        delay = unknown_delay(container.unknowns)
        container = replace(container, unknowns=container.unknowns + 1)
    else:
        delay = denied_delay(answer, policy) if isinstance(answer, Denied) else policy.check_interval_s
        container = replace(container, unknowns=0)
    return replace(container, due=now + spread(delay, jitter, container.verdict))


def _cull(container: Container, event: Answered, now: float, policy: Policy) -> Step:
    """Spend the token: drain and remember it; in shadow mode only say so."""
    if not policy.enforce:
        would = container.would_culls + 1
        return replace(container, would_culls=would, would_down=True, order=None, due=None), ()
    reason = reasons.verdict(container.verdict)
    if container.order is not None:
        reason = f"{reasons.ORDERED}; {reason}" if reason else reasons.ORDERED
    container = replace(container, latch=Latch(event.claim_id, event.at, reason))
    return out_of_balance(container, now, policy), (Remember(),)


def drain(container: Container, event: Judged, now: float, policy: Policy) -> Step:
    """Go down when the drain is over, or as soon as nothing is left to wait for."""
    container = replace(container, verdict=event.verdict)
    if container.due is not None and now < container.due and not is_drained(container, event.idle_at, policy):
        return container, ()
    return enter(container, State.DOWN, now, due=container.lease_ends), ()
