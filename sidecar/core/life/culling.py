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
from sidecar.core.life.container_state import Order, Standing, enter, is_drained, out_of_balance
from sidecar.core.life.delays import denied_delay, spread, unknown_delay
from sidecar.core.life.events import (
    Answered,
    Ask,
    BeatAnswered,
    BeatUnanswered,
    CullOrdered,
    Effect,
    Forget,
    Judged,
    Remember,
    ReturnToken,
)
from sidecar.core.types import Answer, Denied, Granted, Judgement, Latch, Policy, Presence, State, Unknown

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
    """Suspect the app once the evidence has spoken at ``confirm`` checks in a row; the fleet has to hear of it next."""
    bad_checks = 0 if event.verdict.judgement is Judgement.FINE else standing.bad_checks + event.is_check
    standing = replace(standing, verdict=event.verdict, bad_checks=bad_checks)
    if event.verdict.judgement is Judgement.FINE or bad_checks < policy.confirm > 1:
        return standing, ()
    return replace(enter(standing, State.SUSPECT, now), unknowns=0), ()


def heard(standing: Standing, event: BeatAnswered, now: float, policy: Policy) -> Step:
    """Settle once the fleet has heard that this life is suspect; without a settle time claim at once."""
    is_told = event.presence is Presence.SUSPECT and event.life == standing.life and not standing.would_down
    if not is_told or standing.is_heard:
        return standing, ()
    standing = replace(standing, is_heard=True)
    if standing.asking or standing.order is not None:
        return standing, ()
    settle_s = spread(policy.settle_s, event.jitter, standing.verdict)
    due = max(now + settle_s, now + event.wait_s, standing.born + policy.min_age_s)
    if now < due:
        return replace(standing, due=due), ()
    return _claim(standing, now)


def unheard(standing: Standing, _event: BeatUnanswered, _now: float, _policy: Policy) -> Step:
    """Claim no more until the fleet is heard again. What a person ordered waits for its own reasons only."""
    due = standing.due if standing.order is not None else None
    return replace(standing, is_heard=False, due=due), ()


def pursue(standing: Standing, event: Judged, now: float, _policy: Policy) -> Step:
    """Claim when it has settled, as long as the evidence or a person speaks; without either go back up."""
    standing = replace(standing, verdict=event.verdict)
    if standing.asking:
        return standing, ()
    if event.verdict.judgement is Judgement.FINE and standing.order is None:
        return _recover(standing, now), unused(standing)
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


def unused(standing: Standing) -> tuple[ReturnToken, ...]:
    """What leaving the suspects gives back: a claim without a clear answer may have been granted all the same.

    An answer that is on its way is waited for.
    """
    if standing.state is not State.SUSPECT or standing.asking or not standing.unclear:
        return ()
    return (ReturnToken(standing.claim_id),)


def late(standing: Standing, event: Answered, _now: float, _policy: Policy) -> Step:
    """Give back a token that is not wanted here any more, and may have been granted; not the one that is in use."""
    in_use = standing.latch.claim_id if standing.latch else standing.claim_id if standing.would_down else ""
    if isinstance(event.answer, Denied) or event.claim_id == in_use:
        return standing, ()
    return standing, (ReturnToken(event.claim_id),)


def answered(standing: Standing, event: Answered, now: float, policy: Policy) -> Step:
    """Act on a reply. One to another claim than the outstanding one says nothing about us.

    A refused container asks again at the next check, as the seed article does: what refused it may be lifted
    before ``retry_after_s`` by a person. If that is over sooner it asks sooner.
    """
    if not standing.asking or event.claim_id != standing.claim_id:
        return late(standing, event, now, policy)
    is_refused = standing.refused or isinstance(event.answer, Denied)
    unclear = _is_unclear(standing, event.answer)
    standing = replace(standing, asking=False, answer=event.answer, refused=is_refused, unclear=unclear)
    if not isinstance(event.answer, Granted):
        return _refused(standing, event.answer, now, event.jitter, policy)
    standing = replace(standing, unknowns=0)
    if standing.order is None and (standing.verdict is None or standing.verdict.judgement is Judgement.FINE):
        return _recover(standing, now), (ReturnToken(event.claim_id),)
    return _cull(standing, event, now, policy)


def _is_unclear(standing: Standing, answer: Answer) -> bool:
    """Whether the claim may have been granted. A hold refuses before anybody looks whether it has been."""
    if isinstance(answer, Denied):
        return standing.unclear and answer.hold is not None
    return not isinstance(answer, Granted)


def _refused(standing: Standing, answer: Answer, now: float, jitter: float, policy: Policy) -> Step:
    order, standing = standing.order, replace(standing, order=None)
    if order is None or order.back is State.SUSPECT:
        standing = again(standing, answer, now, jitter, policy)
        return (standing if standing.is_heard else replace(standing, due=None)), ()
    is_unclear = not isinstance(answer, Denied)
    due = now if order.back is State.RETIRING else order.due
    back = replace(enter(standing, order.back, now, due=due), unknowns=0)
    return back, (ReturnToken(standing.claim_id),) if is_unclear else ()


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
    reason = reasons.verdict(standing.verdict)
    if standing.order is not None:
        reason = f"{reasons.ORDERED}; {reason}" if reason else reasons.ORDERED
    standing = replace(standing, latch=Latch(event.claim_id, event.at, reason))
    return out_of_balance(standing, now, policy), (Remember(),)


def drain(standing: Standing, event: Judged, now: float, policy: Policy) -> Step:
    """Go down when the drain is over, or as soon as nothing is left to wait for."""
    standing = replace(standing, verdict=event.verdict)
    if standing.due is not None and now < standing.due and not is_drained(standing, event.idle_at, policy):
        return standing, ()
    return enter(standing, State.DOWN, now, due=standing.lease_ends), ()
