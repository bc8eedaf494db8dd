"""The moves to a planned restart because of age, and back from the way there.

- Only a lease leads to draining here, and a lease never leads to a cull.
- The container gives back every unused lease that it has or may have.
- Culls come first: a sick container stops retiring, and ``culling`` decides.
"""

from __future__ import annotations

from sidecar.core.explain import reasons
from sidecar.core.life import culling
from sidecar.core.life.container import Container, Step, enter, out_of_balance
from sidecar.core.life.events import (
    ClearWindow,
    CullOrdered,
    Judged,
    LeaseAnswered,
    ReleaseLease,
    RequestLease,
    ReviveOrdered,
    SaveMemory,
)
from sidecar.core.life.lifetime import RESPITE, Lifespan, is_due
from sidecar.core.types import Denied, Granted, Latch, Policy, State
from sidecar.core.values import replace


def judge_alive(container: Container, event: Judged, now: float, policy: Policy) -> Step:
    """Suspect the app if it is sick; retire it if that is due and it has a holder for its lease."""
    after, effects = culling.suspect(container, event, now, policy)
    if after.state is State.SUSPECT:
        return after, (*unused(container), *effects)
    if after.identity.holder and is_due(lifespan(after), event.load, now, policy):
        return _retire(after, now, policy)
    if after.state is State.UP:
        return replace(after, due=None), ()
    return replace(enter(after, State.UP, now), unknowns=0), unused(container)


def order(container: Container, event: CullOrdered, now: float, policy: Policy) -> Step:
    """Claim for a person's order, and stop retiring."""
    after, effects = culling.order(container, event, now, policy)
    return after, (*unused(container), *effects)


def lifespan(container: Container) -> Lifespan:
    """What decides when the retirement of this container is due."""
    return Lifespan(container.born, container.identity.part, container.respite_until)


def unused(container: Container) -> tuple[ReleaseLease, ...]:
    """Give back the lease that a lost answer may have granted, when the container stops retiring.

    While a request is outstanding its answer decides.
    """
    if container.state is not State.RETIRING or container.leasing:
        return ()
    return (ReleaseLease(container.identity.holder),)


def _retire(container: Container, now: float, policy: Policy) -> Step:
    """Ask for the lease, unless a request for it is outstanding; in shadow mode only note that it is due."""
    if not policy.enforce:
        return replace(container, would_retire=True), ()
    if container.leasing:
        return container, ()
    if container.state is State.UP:
        container = replace(enter(container, State.RETIRING, now, due=now), unknowns=0)
    if container.due is not None and now < container.due:
        return container, ()
    return replace(container, leasing=True, due=None), (RequestLease(container.identity.holder),)


def leased(container: Container, event: LeaseAnswered, now: float, policy: Policy) -> Step:
    """Drain under the lease; without one ask again."""
    if not _is_answer(container, event):
        return late(container, event, now, policy)
    container = replace(container, leasing=False, lease_answer=event.answer)
    if not isinstance(event.answer, Granted):
        return culling.again(container, event.answer, now, event.jitter, policy), ()
    left_s = policy.retire_timeout_s if event.answer.left_s is None else event.answer.left_s
    left_s = min(left_s, policy.retire_timeout_s) - event.took_s  # the store may have answered at once
    if left_s <= policy.drain_s:  # granted long ago, by a lost answer: too little time is left for a replacement
        return replace(container, due=now + policy.check_interval_s), (ReleaseLease(event.holder),)
    reason = reasons.retired(now - container.born, policy.lifetime_s)
    container = replace(
        container,
        latch=Latch("", event.at, reason, lease=event.holder, spent_s=policy.retire_timeout_s - left_s),
        lease_ends=now + left_s,
        unknowns=0,
        answer=None,
    )
    return out_of_balance(container, now, policy), (SaveMemory(),)


def late(container: Container, event: LeaseAnswered, _now: float, _policy: Policy) -> Step:
    """Give back a lease that may have been granted and is no longer needed, unless it is in use."""
    if _is_answer(container, event):
        container = replace(container, leasing=False, lease_answer=event.answer)
    if isinstance(event.answer, Denied) or event.holder == container.lease:
        return container, ()
    return container, (ReleaseLease(event.holder),)


def _is_answer(container: Container, event: LeaseAnswered) -> bool:
    return container.leasing and event.holder == container.identity.holder


def rest(container: Container, event: Judged, now: float, policy: Policy) -> Step:
    """Stay down: after a cull for good, after a retirement until the lease ends without a replacement."""
    container = replace(container, verdict=event.verdict)
    if container.lease_ends is None or now < container.lease_ends:
        return container, ()
    return _return(container, now, policy)


def revive(container: Container, event: ReviveOrdered, now: float, policy: Policy) -> Step:
    """Go up by a person's order, under a new id, because a token is for one incarnation."""
    container = replace(
        container, incarnation=event.incarnation, identity=event.identity, asked=False, answer=None, order=None
    )
    return _return(container, now, policy)


def _return(container: Container, now: float, policy: Policy) -> Step:
    """Go up with an empty window. After a retirement the next one waits for ``RESPITE`` of the lifetime."""
    lease = container.lease
    released = (ReleaseLease(lease),) if lease else ()
    respite_until = now + policy.lifetime_s * RESPITE if lease else container.respite_until
    container = replace(
        enter(container, State.UP, now),
        latch=None,
        lease_ends=None,
        respite_until=respite_until,
        verdict=None,
        unknowns=0,
    )
    return container, (ClearWindow(heart=False), *released, SaveMemory())
