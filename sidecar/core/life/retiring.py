"""The moves to a planned restart because of age, and back from the way there.

- Only a lease leads to draining here, and a lease never leads to a cull.
- The container gives back every unused lease that it has or may have.
- Culls come first: a sick container stops retiring, and ``culling`` decides.
"""

from __future__ import annotations

from typing import Final

from sidecar.core.app_reports import Load
from sidecar.core.claims import Granted, LeaseRequest
from sidecar.core.explain import reasons
from sidecar.core.life import culling, grant_request
from sidecar.core.life.container import Container, Step, enter
from sidecar.core.life.culling import honour_s
from sidecar.core.life.events import (
    Answered,
    ClearWindow,
    GiveBack,
    Judged,
    Moved,
    NotHonoured,
    Retired,
    RetirementAnswered,
    Revived,
    ReviveOrdered,
    SaveIncarnation,
    WouldRetire,
)
from sidecar.core.types import LIFETIME_JITTER, Latch, Policy, State

LOAD_KEPT_S: Final = 60.0
"""How long the last reported load counts. An app that has reported none for longer counts as idle."""

BUSY_FACTOR: Final = 2
"""A busy app is retired at this multiple of its lifetime at the latest."""

RESPITE: Final = 1 / 4
"""After a retirement without a replacement the next one waits for this part of the lifetime."""


def due_at(container: Container, policy: Policy) -> float | None:
    """When the retirement is due, unless the app is busy then; None: never."""
    if policy.lifetime_s <= 0:
        return None
    return max(container.born + policy.lifetime_s * _factor(container.identity.part), container.respite_until)


def is_due(container: Container, load: Load | None, now: float, policy: Policy) -> bool:
    """Whether to retire the container now: it is old enough, and idle or too old to wait for that."""
    due = due_at(container, policy)
    if due is None or now < due:
        return False
    waits_until = container.born + BUSY_FACTOR * policy.lifetime_s * _factor(container.identity.part)
    return now >= waits_until or not is_busy(load, policy)


def is_busy(load: Load | None, policy: Policy) -> bool:
    """Whether the app reported a load above ``busy_load`` within the last minute; without a limit it is never busy."""
    return load is not None and load.age_s <= LOAD_KEPT_S and load.value > policy.busy_load > 0


def _factor(part: float) -> float:
    return 1 + LIFETIME_JITTER * (2 * part - 1)


def judge_alive(container: Container, trigger: Judged, now: float, policy: Policy) -> Step:
    """Suspect the app if it is sick; retire it if that is due and it has a holder for its lease."""
    after, effects, events = culling.suspect(container, trigger, now, policy)
    if after.state is State.SUSPECT:
        return Step(after, (*grant_request.unused(container), *effects), events)
    if after.identity.holder and is_due(after, trigger.load, now, policy):
        return _retire(after, now, policy)
    if after.state is State.UP:
        return Step(after)
    moved = Moved(was=after.state, state=State.UP)
    return Step(enter(after, State.UP, now), grant_request.unused(container), (moved,))


def _retire(container: Container, now: float, policy: Policy) -> Step:
    """Ask for the lease, unless a request for it is outstanding; in shadow mode only note that it is due."""
    if not policy.enforce:
        return Step(container._replace(would_retire=True), events=() if container.would_retire else (WouldRetire(),))
    if container.outstanding is not None:
        return Step(container)
    events: tuple[Moved, ...] = ()
    if container.state is State.UP:
        events = (Moved(was=container.state, state=State.RETIRING),)
        container = enter(container, State.RETIRING, now)._replace(answer=None, lease_answer=None)
    if container.ask_at is not None and now < container.ask_at:
        return Step(container, events=events)
    holder, slots = container.identity.holder, policy.retire_slots
    lease = LeaseRequest(holder, container.instance, container.life, slots, policy.retire_timeout_s)
    return Step(grant_request.ask(container, lease), (lease,), events)


def leased(container: Container, trigger: Answered, now: float, policy: Policy) -> Step:
    """Drain under the lease; without one ask again."""
    if trigger.request != container.outstanding:
        return grant_request.late(container, trigger, now, policy)
    answered = RetirementAnswered(trigger.answer)
    container = grant_request.take_answer(container, trigger.answer, now)._replace(lease_answer=trigger.answer)
    if not isinstance(trigger.answer, Granted):
        return Step(grant_request.again(container, trigger.answer, now, trigger.jitter, policy), events=(answered,))
    holder, left_s = container.identity.holder, policy.retire_timeout_s
    if trigger.answer.left_s is not None:
        left_s = min(left_s, trigger.answer.left_s)
    left_s -= trigger.took_s  # the store may have answered at once
    if left_s <= policy.drain_s:  # granted long ago, by a lost answer: too little time is left for a replacement
        return Step(container._replace(ask_at=now + policy.check_interval_s), (GiveBack(holder),), (answered,))
    reason = reasons.retired(now - container.born, policy.lifetime_s)
    latch = Latch("", trigger.at, reason, lease=holder, spent_s=policy.retire_timeout_s - left_s)
    after = grant_request.out_of_balance(container._replace(answer=None), latch, now, policy, lease_ends=now + left_s)
    retired = Retired(was=container.state, state=after.state, why=reason)
    return Step(after, (SaveIncarnation(),), (answered, retired))


def rest(container: Container, _trigger: Judged, now: float, policy: Policy) -> Step:
    """Stay down: after a cull for good, after a retirement until the lease ends without a replacement."""
    if container.lease_ends is None:
        return _overdue(container, now, policy)
    return Step(container) if now < container.lease_ends else _return(container, now, policy)


def _overdue(container: Container, now: float, policy: Policy) -> Step:
    """Say once that a culled container is still there."""
    out_s = container.out_s(now)
    if container.is_overdue or container.latch is None or out_s < honour_s(policy.drain_s):
        return Step(container)
    return Step(container._replace(is_overdue=True), events=(NotHonoured(container.latch.claim_id, out_s),))


def revive(container: Container, trigger: ReviveOrdered, now: float, policy: Policy) -> Step:
    """Go up by a person's order, under a new id, because a token is for one incarnation."""
    container = container._replace(
        incarnation=trigger.incarnation, identity=trigger.identity, asked=False, answer=None, order=None
    )
    return _return(container, now, policy, trigger)


def _return(container: Container, now: float, policy: Policy, order: ReviveOrdered | None = None) -> Step:
    """Go up with an empty window. After a retirement the next one waits for ``RESPITE`` of the lifetime."""
    lease = container.lease
    released = (GiveBack(lease),) if lease else ()
    respite_until = now + policy.lifetime_s * RESPITE if lease else container.respite_until
    revived = Revived(
        was=container.state,
        state=State.UP,
        out_s=container.out_s(now),
        order=order,
    )
    container = enter(container, State.UP, now)._replace(
        latch=None,
        out_since=None,
        is_overdue=False,
        lease_ends=None,
        respite_until=respite_until,
        verdict=None,
    )
    return Step(container, (ClearWindow(heart=False), *released, SaveIncarnation()), (revived,))
