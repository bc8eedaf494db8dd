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
from sidecar.core.life.container_state import Standing, enter, out_of_balance
from sidecar.core.life.culling import Step, again, suspect
from sidecar.core.life.events import AskLease, CullOrdered, Forget, Judged, Leased, Remember, Resign, Revived
from sidecar.core.life.lifetime import RESPITE, Life, is_due
from sidecar.core.types import Denied, Granted, Latch, Policy, State


def live(standing: Standing, event: Judged, now: float, policy: Policy) -> Step:
    """Suspect the app if it is sick; retire it if it is due, and has a word to hold its lease by."""
    after, effects = suspect(standing, event, now, policy)
    if after.state is State.SUSPECT:
        return after, (*unused(standing), *effects)
    if after.lot.holder and is_due(life(after), event.load, now, policy):
        return _retire(after, now, policy)
    if after.state is State.UP:
        return replace(after, due=None), ()
    return replace(enter(after, State.UP, now), unknowns=0), unused(standing)


def order(standing: Standing, event: CullOrdered, now: float, policy: Policy) -> Step:
    """Be culled because a person says so, not retired."""
    after, effects = culling.order(standing, event, now, policy)
    return after, (*unused(standing), *effects)


def life(standing: Standing) -> Life:
    """What decides when this life is due."""
    return Life(standing.born, standing.lot.part, standing.respite_until)


def unused(standing: Standing) -> tuple[Resign, ...]:
    """Who leaves this state without a lease may have one all the same: an answer that was lost may have granted it.

    An answer that is on its way is waited for.
    """
    if standing.state is not State.RETIRING or standing.leasing:
        return ()
    return (Resign(standing.lot.holder),)


def _retire(standing: Standing, now: float, policy: Policy) -> Step:
    """Ask for the lease, unless the last request for it is still on its way; in shadow mode only say so."""
    if not policy.enforce:
        return replace(standing, would_retire=True), ()
    if standing.leasing:
        return standing, ()
    if standing.state is State.UP:
        standing = replace(enter(standing, State.RETIRING, now, due=now), unknowns=0)
    if standing.due is not None and now < standing.due:
        return standing, ()
    return replace(standing, leasing=True, due=None), (AskLease(standing.lot.holder),)


def leased(standing: Standing, event: Leased, now: float, policy: Policy) -> Step:
    """Drain under the lease that was asked for; without one ask again."""
    if not _is_answer(standing, event):
        return late(standing, event, now, policy)
    standing = replace(standing, leasing=False, lease_answer=event.answer)
    if not isinstance(event.answer, Granted):
        return again(standing, event.answer, now, event.jitter, policy), ()
    left_s = policy.retire_timeout_s if event.answer.left_s is None else event.answer.left_s
    left_s = min(left_s, policy.retire_timeout_s) - event.took_s  # the bucket may have answered at once
    if left_s <= policy.drain_s:  # granted long ago, to one who did not hear of it: there is no time to be replaced in
        return replace(standing, due=now + policy.check_interval_s), (Resign(event.holder),)
    reason = reasons.retired(now - standing.born, policy.lifetime_s)
    standing = replace(
        standing,
        latch=Latch("", event.at, reason, lease=event.holder, spent_s=policy.retire_timeout_s - left_s),
        lease_ends=now + left_s,
        unknowns=0,
        answer=None,
    )
    return out_of_balance(standing, now, policy), (Remember(),)


def late(standing: Standing, event: Leased, _now: float, _policy: Policy) -> Step:
    """Give back a lease that nobody here wants any more, and may have been granted; not the one that we are under."""
    if _is_answer(standing, event):
        standing = replace(standing, leasing=False, lease_answer=event.answer)
    if isinstance(event.answer, Denied) or event.holder == standing.lease:
        return standing, ()
    return standing, (Resign(event.holder),)


def _is_answer(standing: Standing, event: Leased) -> bool:
    return standing.leasing and event.holder == standing.lot.holder


def rest(standing: Standing, event: Judged, now: float, policy: Policy) -> Step:
    """Be down: a culled container for good, a retired one until its lease is over and nobody has replaced it."""
    standing = replace(standing, verdict=event.verdict)
    if standing.lease_ends is None or now < standing.lease_ends:
        return standing, ()
    return _return(standing, now, policy)


def revive(standing: Standing, event: Revived, now: float, policy: Policy) -> Step:
    """Be up again because a person says so, as another life: the token of the last is not that of the next."""
    standing = replace(standing, incarnation=event.incarnation, lot=event.lot, asked=False, answer=None, order=None)
    return _return(standing, now, policy)


def _return(standing: Standing, now: float, policy: Policy) -> Step:
    """Be up again with an empty window; who came back from a retirement is left in peace for a while."""
    lease = standing.lease
    resign = (Resign(lease),) if lease else ()
    respite_until = now + policy.lifetime_s * RESPITE if lease else standing.respite_until
    standing = replace(
        enter(standing, State.UP, now),
        latch=None,
        lease_ends=None,
        respite_until=respite_until,
        verdict=None,
        bad_checks=0,
        unknowns=0,
    )
    return standing, (Forget(heart=False), *resign, Remember())
