"""The moves that lead to the planned end of a life, and back from the way there.

- only a lease leads to draining here, and a lease never to a cull;
- a lease that comes too late, or to nothing, is given back, and so is one that we may have without knowing: whoever
  asked for one and will not use it says so;
- culls come first: who is sick leaves for ``culling``, and is no longer retired.
"""

from __future__ import annotations

from dataclasses import replace

from sidecar.core.explain import reasons
from sidecar.core.life import culling
from sidecar.core.life.container import Container, enter, out_of_balance
from sidecar.core.life.culling import Step, again, suspect
from sidecar.core.life.events import AskLease, ClearWindow, CullOrdered, Judged, Leased, Remember, Resign, Revived
from sidecar.core.life.lifetime import RESPITE, Life, is_due
from sidecar.core.types import Denied, Granted, Latch, Policy, State


def live(container: Container, event: Judged, now: float, policy: Policy) -> Step:
    """Suspect the app if it is sick; retire it if it is due, and has a word to hold its lease by."""
    after, effects = suspect(container, event, now, policy)
    if after.state is State.SUSPECT:
        return after, (*unused(container), *effects)
    if after.identity.holder and is_due(life(after), event.load, now, policy):
        return _retire(after, now, policy)
    if after.state is State.UP:
        return replace(after, due=None), ()
    return replace(enter(after, State.UP, now), unknowns=0), unused(container)


def order(container: Container, event: CullOrdered, now: float, policy: Policy) -> Step:
    """Be culled because a person says so, not retired."""
    after, effects = culling.order(container, event, now, policy)
    return after, (*unused(container), *effects)


def life(container: Container) -> Life:
    """What decides when this life is due."""
    return Life(container.born, container.identity.part, container.respite_until)


def unused(container: Container) -> tuple[Resign, ...]:
    """Who leaves this state without a lease may have one all the same: an answer that was lost may have granted it.

    An answer that is on its way is waited for.
    """
    if container.state is not State.RETIRING or container.leasing:
        return ()
    return (Resign(container.identity.holder),)


def _retire(container: Container, now: float, policy: Policy) -> Step:
    """Ask for the lease, unless the last request for it is still on its way; in shadow mode only say so."""
    if not policy.enforce:
        return replace(container, would_retire=True), ()
    if container.leasing:
        return container, ()
    if container.state is State.UP:
        container = replace(enter(container, State.RETIRING, now, due=now), unknowns=0)
    if container.due is not None and now < container.due:
        return container, ()
    return replace(container, leasing=True, due=None), (AskLease(container.identity.holder),)


def leased(container: Container, event: Leased, now: float, policy: Policy) -> Step:
    """Drain under the lease that was asked for; without one ask again."""
    if not _is_answer(container, event):
        return late(container, event, now, policy)
    container = replace(container, leasing=False, lease_answer=event.answer)
    if not isinstance(event.answer, Granted):
        return again(container, event.answer, now, event.jitter, policy), ()
    left_s = policy.retire_timeout_s if event.answer.left_s is None else event.answer.left_s
    left_s = min(left_s, policy.retire_timeout_s) - event.took_s  # the bucket may have answered at once
    if left_s <= policy.drain_s:  # granted long ago, to one who did not hear of it: there is no time to be replaced in
        return replace(container, due=now + policy.check_interval_s), (Resign(event.holder),)
    reason = reasons.retired(now - container.born, policy.lifetime_s)
    container = replace(
        container,
        latch=Latch("", event.at, reason, lease=event.holder, spent_s=policy.retire_timeout_s - left_s),
        lease_ends=now + left_s,
        unknowns=0,
        answer=None,
    )
    return out_of_balance(container, now, policy), (Remember(),)


def late(container: Container, event: Leased, _now: float, _policy: Policy) -> Step:
    """Give back a lease that nobody here wants any more, and may have been granted; not the one that we are under."""
    if _is_answer(container, event):
        container = replace(container, leasing=False, lease_answer=event.answer)
    if isinstance(event.answer, Denied) or event.holder == container.lease:
        return container, ()
    return container, (Resign(event.holder),)


def _is_answer(container: Container, event: Leased) -> bool:
    return container.leasing and event.holder == container.identity.holder


def rest(container: Container, event: Judged, now: float, policy: Policy) -> Step:
    """Be down: a culled container for good, a retired one until its lease is over and nobody has replaced it."""
    container = replace(container, verdict=event.verdict)
    if container.lease_ends is None or now < container.lease_ends:
        return container, ()
    return _return(container, now, policy)


def revive(container: Container, event: Revived, now: float, policy: Policy) -> Step:
    """Be up again because a person says so, as another life: the token of the last is not that of the next."""
    container = replace(
        container, incarnation=event.incarnation, identity=event.identity, asked=False, answer=None, order=None
    )
    return _return(container, now, policy)


def _return(container: Container, now: float, policy: Policy) -> Step:
    """Be up again with an empty window; who came back from a retirement is left in peace for a while."""
    lease = container.lease
    resign = (Resign(lease),) if lease else ()
    respite_until = now + policy.lifetime_s * RESPITE if lease else container.respite_until
    container = replace(
        enter(container, State.UP, now),
        latch=None,
        lease_ends=None,
        respite_until=respite_until,
        verdict=None,
        bad_checks=0,
        unknowns=0,
    )
    return container, (ClearWindow(heart=False), *resign, Remember())
