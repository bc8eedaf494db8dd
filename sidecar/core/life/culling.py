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

from sidecar.core.claims import MANUAL, Answer, Denied, Granted, Presence, Unknown
from sidecar.core.explain import reasons
from sidecar.core.life.container import Container, Step, enter, is_drained, not_needed, out_of_balance, unused
from sidecar.core.life.events import (
    BeatAnswered,
    BeatUnanswered,
    ClaimAnswered,
    ClaimToken,
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
    SaveMemory,
    Suspected,
    TokenAnswered,
    WentDown,
    WouldCull,
)
from sidecar.core.types import CLAIM_JITTER, Latch, Policy, State, Verdict

UNKNOWN_FIRST_S: Final = 1.0
UNKNOWN_CAP_S: Final = 30.0
HONOUR_S: Final = 300.0
HONOUR_DRAINS: Final = 3

LEASE_WAIT_S: Final = 0.25
"""Interval at which a container that wants to claim checks for the answer to its request for a lease."""

DENIED_LEAST_S: Final = 1.0
"""Least time between a refusal and the next claim."""

OLD_WAIT_S: Final = 1.0
"""Interval at which a suspect with old errors checks for another one."""

OLD_ERRORS: Final = Denied("old_errors", 0, 0, OLD_WAIT_S)
"""What a suspect with old errors says of its claim; the fleet was not asked."""


def begin(container: Container, trigger: Judged, now: float, policy: Policy) -> Step:
    """Judge a starting app after its grace; errors in the grace do not count."""
    if container.due is not None and now < container.due:
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
    settle_s = spread(policy.settle_s, trigger.jitter, container.verdict)
    due = max(now + settle_s, now + trigger.wait_s)
    if now < due:
        return Step(container._replace(due=due))
    return _claim(container, now)


def unannounced(container: Container, _trigger: BeatUnanswered, _now: float, _policy: Policy) -> Step:
    """Stop claiming until the store answers a beat again, unless a person ordered the cull."""
    due = container.due if container.order is not None else None
    return Step(container._replace(is_announced=False, due=due))


def pursue(container: Container, trigger: Judged, now: float, _policy: Policy) -> Step:
    """Claim when it is due while the verdict is excessive or there is an order; else go back up."""
    is_fine = trigger.verdict.is_fine
    if not (is_fine or container.order or container.would_down):
        # While the window is empty the last cause stays: the fleet would take another one for another suspect.
        container = container._replace(cause=trigger.verdict.cause)
    if container.asking:
        return Step(container)
    if is_fine and container.order is None:
        return _recover(container, now, unused(container))
    if container.due is None or now < container.due:
        return Step(container)
    return _claim(container, now)


def order(container: Container, trigger: CullOrdered, now: float, _policy: Policy) -> Step:
    """Claim at once for an order, instead of a lease; an outstanding claim counts for the order, too."""
    if container.order is not None or container.would_down:
        return Step(container, events=(OrderIgnored(trigger),))
    lease = unused(container) if container.state is State.RETIRING else ()
    events: tuple[Event, ...] = (OrderTaken(trigger),)
    container = container._replace(order=CullOrder(trigger.author, trigger.reason, container.state, container.due))
    if container.state is not State.SUSPECT:
        suspected = Suspected(was=container.state, state=State.SUSPECT, verdict=container.verdict, by_order=True)
        container, events = enter(container, State.SUSPECT, now), (*events, suspected)
    container = container._replace(cause=MANUAL)
    after, effects, more = Step(container) if container.asking else _claim(container, now)
    return Step(after, (*lease, *effects), (*events, *more))


def _claim(container: Container, now: float) -> Step:
    if container.leasing:
        return Step(container._replace(due=now + LEASE_WAIT_S))
    if container.order is None and container.verdict is not None and container.verdict.is_old:
        return Step(container._replace(due=now + OLD_WAIT_S, answer=OLD_ERRORS, answered_at=now))
    first = () if container.asked else (SaveMemory(),)
    return Step(container._replace(asked=True, asking=True, due=None), (*first, ClaimToken(container.claim_id)))


def _recover(container: Container, now: float, effects: tuple[GiveBack, ...]) -> Step:
    recovered = Recovered(
        was=container.state,
        state=State.UP,
        suspect_s=now - container.since,
        would_down_s=now - container.out_since if container.would_down and container.out_since is not None else None,
    )
    container = enter(container, State.UP, now)._replace(would_down=False, out_since=None)
    return Step(container, effects, (recovered,))


def late(container: Container, trigger: ClaimAnswered, _now: float, _policy: Policy) -> Step:
    """Give back a token that may have been granted and is no longer needed, unless it is in use."""
    events = (TokenAnswered(trigger.claim_id, trigger.answer, trigger.took_s, is_late=True),)
    in_use = container.latch.claim_id if container.latch else container.claim_id if container.would_down else ""
    return Step(container, not_needed(trigger.answer, trigger.claim_id, in_use), events)


def answered(container: Container, trigger: ClaimAnswered, now: float, policy: Policy) -> Step:
    """Act on the answer to the outstanding claim; the answer to any other claim comes too late."""
    if not container.asking or trigger.claim_id != container.claim_id:
        return late(container, trigger, now, policy)
    refused, reason = container.refused, trigger.answer.reason if isinstance(trigger.answer, Denied) else ""
    answer = TokenAnswered(
        trigger.claim_id, trigger.answer, trigger.took_s, is_repeated=reason in refused, order=container.order
    )
    refused = (*refused, reason) if reason and not answer.is_repeated else refused
    unclear = _is_unclear(container, trigger.answer)
    container = container._replace(asking=False, answer=trigger.answer, answered_at=now)
    container = container._replace(refused=refused, unclear=unclear)
    after, effects, events = _decided(container, trigger, now, policy)
    return Step(after, effects, (answer, *events))


def _decided(container: Container, trigger: ClaimAnswered, now: float, policy: Policy) -> Step:
    if not isinstance(trigger.answer, Granted):
        return _refused(container, trigger.answer, now, trigger.jitter, policy)
    if container.order is None and (container.verdict is None or container.verdict.is_fine):
        return _recover(container, now, (GiveBack(trigger.claim_id),))
    return _cull(container, trigger, now, policy)


def _is_unclear(container: Container, answer: Answer) -> bool:
    """Whether the claim may have been granted. A refusal for a hold comes before the store checks that."""
    if isinstance(answer, Denied):
        return container.unclear and answer.hold is not None
    return not isinstance(answer, Granted)


def _refused(container: Container, answer: Answer, now: float, jitter: float, policy: Policy) -> Step:
    order, container = container.order, container._replace(order=None)
    if order is None or order.back is State.SUSPECT:
        container = container._replace(
            cause=container.verdict.cause if order and container.verdict else container.cause
        )
        container = again(container, answer, now, jitter, policy)
        return Step(container if container.is_announced else container._replace(due=None))
    due = now if order.back is State.RETIRING else order.due
    moved = Moved(was=container.state, state=order.back)
    back = enter(container, order.back, now, due=due)
    return Step(back, not_needed(answer, container.claim_id, in_use=""), (moved,))


def again(container: Container, answer: Answer, now: float, jitter: float, policy: Policy) -> Container:
    """Plan the next request after one that was not granted.

    After a refusal it comes at the next check, as in the seed article, because a person may lift the refusal early; or
    after ``retry_after_s`` if that is sooner.
    """
    unknowns, delay = 0, policy.check_interval_s
    if isinstance(answer, Unknown):
        unknowns, delay = container.unknowns + 1, unknown_delay(container.unknowns)
    elif isinstance(answer, Denied):
        delay = min(delay, max(DENIED_LEAST_S, answer.retry_after_s))
    return container._replace(unknowns=unknowns, due=now + spread(delay, jitter, container.verdict))


def _cull(container: Container, trigger: ClaimAnswered, now: float, policy: Policy) -> Step:
    """Drain under the token, and remember it; in shadow mode only count the cull."""
    verdict, order = container.verdict, container.order
    container = container._replace(out_since=now)
    if not policy.enforce:
        would = container.would_culls + 1
        container = container._replace(would_culls=would, would_down=True, order=None, due=None)
        return Step(container, events=(WouldCull(verdict, order),))
    reason = reasons.verdict(verdict)
    if order is not None:
        reason = f"{reasons.ORDERED}; {reason}" if reason else reasons.ORDERED
    container = container._replace(latch=Latch(trigger.claim_id, trigger.at, reason))
    after = out_of_balance(container, now, policy)
    suspect_s = now - container.since
    culled = Culled(
        was=container.state, state=after.state, why=reason, verdict=verdict, order=order, suspect_s=suspect_s
    )
    return Step(after, (SaveMemory(),), (culled,))


def drain(container: Container, trigger: Judged, now: float, _policy: Policy) -> Step:
    """Go down when the drain is over, or as soon as the app is idle."""
    if container.due is not None and now < container.due and not is_drained(container, trigger.idle_at):
        return Step(container)
    down = WentDown(was=container.state, state=State.DOWN)
    return Step(enter(container, State.DOWN, now, due=container.lease_ends), events=(down,))


# -- delays; jitter is an argument -------------------------------------------------------------------------------


def honour_s(drain_s: float) -> float:
    """Seconds after which a cull is not honoured, if the container is still there."""
    return max(HONOUR_S, HONOUR_DRAINS * drain_s)


def unknown_delay(unknowns: int) -> float:
    """Seconds to wait after the ``unknowns + 1``-th unclear answer in a row, before jitter."""
    return float(min(UNKNOWN_CAP_S, UNKNOWN_FIRST_S * 2 ** min(unknowns, 10)))


def spread(delay: float, jitter: float, verdict: Verdict | None) -> float:
    """Lengthen a delay by a random part that grows with health, so that the sickest container mostly claims first."""
    return delay * (1 + CLAIM_JITTER * jitter * _health(verdict))


def _health(verdict: Verdict | None) -> float:
    """The limit divided by the worst value: 1 at the limit, near 0 far beyond it."""
    met = verdict.reasons if verdict else ()
    return min((reason.limit / reason.value for reason in met if reason.value > reason.limit > 0), default=1.0)
