"""The moves that lead to a cull, and back from the way there.

- only ``Granted`` while the evidence still speaks, or a person ordered it, leads to draining;
- at most one request is outstanding: who waits for a lease claims no token before that is answered;
- an order asks once, and leads back to where it found the container unless it is granted.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from sidecar.core import sentences
from sidecar.core.delays import denied_delay, spread, unknown_delay
from sidecar.core.events import Answered, Ask, CullOrdered, Effect, Forget, Judged, Remember
from sidecar.core.standing import Order, Standing, enter, is_drained, out_of_balance
from sidecar.core.words import Answer, Denied, Granted, Judgement, Latch, Policy, State, Unknown

Step = tuple[Standing, tuple[Effect, ...]]

LEASE_WAIT_S: Final = 0.25
"""How often who wants to claim looks whether its request for a lease has been answered."""


def begin(standing: Standing, event: Judged, now: float, policy: Policy) -> Step:
    """Judge a starting app only once its grace is over, and not by what it did in it."""
    standing = replace(standing, verdict=event.verdict)
    if standing.due is not None and now < standing.due:
        return standing, ()
    standing = enter(standing, State.UP, now)
    if policy.grace_s > 0:
        return replace(standing, verdict=None), (Forget(heart=False),)
    return suspect(standing, event, now, policy)


def suspect(standing: Standing, event: Judged, now: float, policy: Policy) -> Step:
    """Suspect the app once the evidence has spoken at ``confirm`` checks in a row, and settle."""
    bad_checks = 0 if event.verdict.judgement is Judgement.FINE else standing.bad_checks + event.is_check
    standing = replace(standing, verdict=event.verdict, bad_checks=bad_checks)
    if event.verdict.judgement is Judgement.FINE or bad_checks < policy.confirm > 1:
        return standing, ()
    settle_s = spread(policy.settle_s, event.jitter, standing.verdict)
    due = max(now + settle_s, standing.born + policy.min_age_s)
    standing = replace(enter(standing, State.SUSPECT, now, due=due), unknowns=0)
    return pursue(standing, event, now, policy)


def pursue(standing: Standing, event: Judged, now: float, _policy: Policy) -> Step:
    """Settle, then claim, as long as the evidence or a person speaks; without either go back up."""
    standing = replace(standing, verdict=event.verdict)
    if standing.asking:
        return standing, ()
    if event.verdict.judgement is Judgement.FINE and standing.order is None:
        return _recover(standing, now), ()
    if standing.due is None or now < standing.due:
        return standing, ()
    return _claim(standing, now)


def order(standing: Standing, event: CullOrdered, now: float, _policy: Policy) -> Step:
    """Claim at once what a person wants. A claim that is on its way will do; who would be down already is left."""
    if standing.order is not None or standing.would_down:
        return standing, ()
    wanted = Order(event.author, event.reason, standing.state, standing.due)
    standing = replace(standing, order=wanted)
    if standing.state is not State.SUSPECT:
        standing = replace(enter(standing, State.SUSPECT, now), unknowns=0)
    return (standing, ()) if standing.asking else _claim(standing, now)


def _claim(standing: Standing, now: float) -> Step:
    if standing.leasing:
        return replace(standing, due=now + LEASE_WAIT_S), ()
    first = () if standing.asked else (Remember(),)
    return replace(standing, asked=True, asking=True, due=None), (*first, Ask(standing.claim_id))


def _recover(standing: Standing, now: float) -> Standing:
    return replace(enter(standing, State.UP, now), bad_checks=0, unknowns=0, would_down=False)


def answered(standing: Standing, event: Answered, now: float, policy: Policy) -> Step:
    """Act on a reply. One to another claim than the outstanding one says nothing about us.

    A refused container asks again at the next check, as the seed article does: what refused it may be lifted
    before ``retry_after_s`` by a person. If that is over sooner it asks sooner.
    """
    if not standing.asking or event.claim_id != standing.claim_id:
        return standing, ()
    standing = replace(standing, asking=False, answer=event.answer)
    if not isinstance(event.answer, Granted):
        return _refused(standing, event.answer, now, event.jitter, policy), ()
    standing = replace(standing, unknowns=0)
    if standing.order is None and (standing.verdict is None or standing.verdict.judgement is Judgement.FINE):
        return _recover(standing, now), ()
    return _cull(standing, event, now, policy)


def _refused(standing: Standing, answer: Answer, now: float, jitter: float, policy: Policy) -> Standing:
    order, standing = standing.order, replace(standing, order=None)
    if order is not None and order.back is not State.SUSPECT:
        due = now if order.back is State.RETIRING else order.due
        return replace(enter(standing, order.back, now, due=due), unknowns=0)
    return again(standing, answer, now, jitter, policy)


def again(standing: Standing, answer: Answer, now: float, jitter: float, policy: Policy) -> Standing:
    """Standing of who was not granted what it asked for, and is to ask anew."""
    if isinstance(answer, Unknown):
        delay = unknown_delay(standing.unknowns)
        standing = replace(standing, unknowns=standing.unknowns + 1)
    else:
        delay = denied_delay(answer, policy) if isinstance(answer, Denied) else policy.check_interval_s
        standing = replace(standing, unknowns=0)
    return replace(standing, due=now + spread(delay, jitter, standing.verdict))


def _cull(standing: Standing, event: Answered, now: float, policy: Policy) -> Step:
    """Spend the token: drain and remember it; in shadow mode only say so."""
    if not policy.enforce:
        would = standing.would_culls + 1
        return replace(standing, would_culls=would, would_down=True, order=None, due=None), ()
    reason = sentences.verdict(standing.verdict)
    if standing.order is not None:
        reason = f"{sentences.ORDERED}; {reason}" if reason else sentences.ORDERED
    standing = replace(standing, latch=Latch(event.claim_id, event.at, reason))
    return out_of_balance(standing, now, policy), (Remember(),)


def drain(standing: Standing, event: Judged, now: float, policy: Policy) -> Step:
    """Go down when the drain is over, or as soon as nothing is left to wait for."""
    standing = replace(standing, verdict=event.verdict)
    if standing.due is not None and now < standing.due and not is_drained(standing, event.idle_at, policy):
        return standing, ()
    return enter(standing, State.DOWN, now, due=standing.lease_ends), ()
