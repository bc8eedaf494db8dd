"""The request of a container for a grant: a token, or the lease of a retirement. One is outstanding at most.

- The answer to any other request than the outstanding one comes too late.
- What was or may have been granted, and is not used, is given back. While a request is outstanding its answer decides.
- After an answer that grants nothing the next request waits; jitter is an argument.
"""

from __future__ import annotations

from typing import Final

from sidecar.core.claims import Answer, Claim, Denied, Granted, GrantRequest, Unknown, request_id
from sidecar.core.life.container import Container, Step, enter
from sidecar.core.life.events import Answered, Event, GiveBack, RetirementAnswered, TokenAnswered
from sidecar.core.types import CLAIM_JITTER, Latch, Policy, State, Verdict

UNKNOWN_FIRST_S: Final = 1.0
UNKNOWN_CAP_S: Final = 30.0

DENIED_LEAST_S: Final = 1.0
"""Least time between a refusal and the next request."""


def ask(container: Container, request: GrantRequest) -> Container:
    """The container that waits for the answer to this request."""
    return container._replace(outstanding=request)


def take_answer(container: Container, answer: Answer, now: float) -> Container:
    """The container once its outstanding request is answered."""
    return container._replace(outstanding=None, ask_at=None, answered_at=now, unclear=_unclear(container, answer))


def _unclear(container: Container, answer: Answer) -> GrantRequest | None:
    """The request if it may have been granted. A refusal for a hold comes before the store checks that."""
    if isinstance(answer, Denied):
        return container.unclear if answer.hold is not None else None
    return None if isinstance(answer, Granted) else container.outstanding


def late(container: Container, trigger: Answered, _now: float, _policy: Policy) -> Step:
    """Give back what may have been granted and is no longer needed, unless it is in use."""
    holder, answer = request_id(trigger.request), trigger.answer
    event: Event = RetirementAnswered(answer)
    if isinstance(trigger.request, Claim):
        event = TokenAnswered(holder, answer, trigger.took_s, is_late=True)
    is_kept = isinstance(answer, Denied) or holder == _in_use(container)
    if trigger.request == container.outstanding:
        container = container._replace(outstanding=None)
    return Step(container, () if is_kept else (GiveBack(holder),), (event,))


def _in_use(container: Container) -> str:
    """The id under which the container is out of balance, or would be in shadow mode."""
    if container.latch is not None:
        return container.latch.lease or container.latch.claim_id
    return container.claim_id if container.would_down else ""


def unused(container: Container) -> tuple[GiveBack, ...]:
    """Give back what an unclear answer may have granted, when the container stops asking for it."""
    if container.unclear is None or container.outstanding is not None:
        return ()
    return (GiveBack(request_id(container.unclear)),)


def out_of_balance(
    container: Container, latch: Latch, now: float, policy: Policy, lease_ends: float | None = None
) -> Container:
    """The container after the grant of a token or a lease: draining, or down if the drain takes no time."""
    container = enter(container, State.DRAINING if policy.drain_s > 0 else State.DOWN, now)
    return container._replace(latch=latch, out_since=now, drain_ends=now + policy.drain_s, lease_ends=lease_ends)


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
    return container._replace(unknowns=unknowns, ask_at=now + spread(delay, jitter, container.verdict))


def unknown_delay(unknowns: int) -> float:
    """Seconds to wait after the ``unknowns + 1``-th unclear answer in a row, before jitter."""
    return float(min(UNKNOWN_CAP_S, UNKNOWN_FIRST_S * 2 ** min(unknowns, 10)))


def spread(delay: float, jitter: float, verdict: Verdict | None) -> float:
    """Lengthen a delay by a random part that grows with health, so that the sickest container mostly asks first."""
    return delay * (1 + CLAIM_JITTER * jitter * _health(verdict))


def _health(verdict: Verdict | None) -> float:
    """The limit divided by the worst value: 1 at the limit, near 0 far beyond it."""
    reasons = verdict.reasons if verdict else ()
    return min((reason.limit / reason.value for reason in reasons if reason.value > reason.limit > 0), default=1.0)
