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

from sidecar.core.explain import reasons
from sidecar.core.life.container import Container, CullOrder, Step, enter, is_drained, out_of_balance
from sidecar.core.life.delays import denied_delay, spread, unknown_delay
from sidecar.core.life.events import (
    BeatAnswered,
    BeatUnanswered,
    ClaimAnswered,
    ClaimToken,
    ClearWindow,
    CullOrdered,
    Judged,
    ReturnToken,
    SaveMemory,
)
from sidecar.core.types import Answer, Denied, Granted, Judgement, Latch, Policy, Presence, State, Unknown
from sidecar.core.values import replace

LEASE_WAIT_S: Final = 0.25
"""Interval at which a container that wants to claim checks for the answer to its request for a lease."""

OLD_WAIT_S: Final = 1.0
"""Interval at which a suspect with old errors checks for another one."""

OLD_ERRORS: Final = Denied("old_errors", 0, 0, OLD_WAIT_S)
"""What a suspect with old errors says of its claim; the fleet was not asked."""


def begin(container: Container, event: Judged, now: float, policy: Policy) -> Step:
    """Judge a starting app after its grace; errors in the grace do not count."""
    container = replace(container, verdict=event.verdict)
    if container.due is not None and now < container.due:
        return container, ()
    container = enter(container, State.UP, now)
    if policy.grace_s > 0:
        return replace(container, verdict=None), (ClearWindow(heart=False),)
    return suspect(container, event, now, policy)


def suspect(container: Container, event: Judged, now: float, _policy: Policy) -> Step:
    """Suspect the app; then a beat has to announce it."""
    container = replace(container, verdict=event.verdict)
    if event.verdict.judgement is Judgement.FINE:
        return container, ()
    return replace(enter(container, State.SUSPECT, now), unknowns=0), ()


def announced(container: Container, event: BeatAnswered, now: float, policy: Policy) -> Step:
    """Plan the claim once the fleet knows of this suspect; answers to other beats change nothing."""
    is_about_it = event.presence is Presence.SUSPECT and event.life == container.life and not container.would_down
    if not is_about_it or container.is_announced:
        return container, ()
    container = replace(container, is_announced=True)
    if container.asking or container.order is not None:
        return container, ()
    settle_s = spread(policy.settle_s, event.jitter, container.verdict)
    due = max(now + settle_s, now + event.wait_s)
    if now < due:
        return replace(container, due=due), ()
    return _claim(container, now)


def unannounced(container: Container, _event: BeatUnanswered, _now: float, _policy: Policy) -> Step:
    """Stop claiming until the store answers a beat again, unless a person ordered the cull."""
    due = container.due if container.order is not None else None
    return replace(container, is_announced=False, due=due), ()


def pursue(container: Container, event: Judged, now: float, _policy: Policy) -> Step:
    """Claim when it is due while the verdict is excessive or there is an order; else go back up."""
    container = replace(container, verdict=event.verdict)
    if container.asking:
        return container, ()
    if event.verdict.judgement is Judgement.FINE and container.order is None:
        return _recover(container, now), unused(container)
    if container.due is None or now < container.due:
        return container, ()
    return _claim(container, now)


def order(container: Container, event: CullOrdered, now: float, _policy: Policy) -> Step:
    """Claim at once for an order; an outstanding claim counts for the order, too."""
    if container.order is not None or container.would_down:
        return container, ()
    container = replace(container, order=CullOrder(event.author, event.reason, container.state, container.due))
    if container.state is not State.SUSPECT:
        container = replace(enter(container, State.SUSPECT, now), unknowns=0)
    return (container, ()) if container.asking else _claim(container, now)


def _claim(container: Container, now: float) -> Step:
    if container.leasing:
        return replace(container, due=now + LEASE_WAIT_S), ()
    if container.order is None and container.verdict is not None and container.verdict.is_old:
        return replace(container, due=now + OLD_WAIT_S, answer=OLD_ERRORS), ()
    first = () if container.asked else (SaveMemory(),)
    return replace(container, asked=True, asking=True, due=None), (*first, ClaimToken(container.claim_id))


def _recover(container: Container, now: float) -> Container:
    return replace(enter(container, State.UP, now), unknowns=0, would_down=False)


def unused(container: Container) -> tuple[ReturnToken, ...]:
    """Give back the token that an unclear answer may have granted, when the container is no longer suspect.

    While a claim is outstanding its answer decides.
    """
    if container.state is not State.SUSPECT or container.asking or not container.unclear:
        return ()
    return (ReturnToken(container.claim_id),)


def late(container: Container, event: ClaimAnswered, _now: float, _policy: Policy) -> Step:
    """Give back a token that may have been granted and is no longer needed, unless it is in use."""
    in_use = container.latch.claim_id if container.latch else container.claim_id if container.would_down else ""
    if isinstance(event.answer, Denied) or event.claim_id == in_use:
        return container, ()
    return container, (ReturnToken(event.claim_id),)


def answered(container: Container, event: ClaimAnswered, now: float, policy: Policy) -> Step:
    """Act on the answer to the outstanding claim; the answer to any other claim comes too late."""
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
    """Whether the claim may have been granted. A refusal for a hold comes before the store checks that."""
    if isinstance(answer, Denied):
        return container.unclear and answer.hold is not None
    return not isinstance(answer, Granted)


def _refused(container: Container, answer: Answer, now: float, jitter: float, policy: Policy) -> Step:
    order, container = container.order, replace(container, order=None)
    if order is None or order.back is State.SUSPECT:
        container = again(container, answer, now, jitter, policy)
        return (container if container.is_announced else replace(container, due=None)), ()
    is_unclear = not isinstance(answer, Denied)
    due = now if order.back is State.RETIRING else order.due
    back = replace(enter(container, order.back, now, due=due), unknowns=0)
    return back, (ReturnToken(container.claim_id),) if is_unclear else ()


def again(container: Container, answer: Answer, now: float, jitter: float, policy: Policy) -> Container:
    """Plan the next request after one that was not granted.

    After a refusal it comes at the next check, as in the seed article, because a person may lift the refusal early; or
    after ``retry_after_s`` if that is sooner.
    """
    if isinstance(answer, Unknown):
        delay = unknown_delay(container.unknowns)
        container = replace(container, unknowns=container.unknowns + 1)
    else:
        delay = denied_delay(answer, policy) if isinstance(answer, Denied) else policy.check_interval_s
        container = replace(container, unknowns=0)
    return replace(container, due=now + spread(delay, jitter, container.verdict))


def _cull(container: Container, event: ClaimAnswered, now: float, policy: Policy) -> Step:
    """Drain under the token, and remember it; in shadow mode only count the cull."""
    if not policy.enforce:
        would = container.would_culls + 1
        return replace(container, would_culls=would, would_down=True, order=None, due=None), ()
    reason = reasons.verdict(container.verdict)
    if container.order is not None:
        reason = f"{reasons.ORDERED}; {reason}" if reason else reasons.ORDERED
    container = replace(container, latch=Latch(event.claim_id, event.at, reason))
    return out_of_balance(container, now, policy), (SaveMemory(),)


def drain(container: Container, event: Judged, now: float, policy: Policy) -> Step:
    """Go down when the drain is over, or as soon as the app is idle."""
    container = replace(container, verdict=event.verdict)
    if container.due is not None and now < container.due and not is_drained(container, event.idle_at, policy):
        return container, ()
    return enter(container, State.DOWN, now, due=container.lease_ends), ()
