"""Containers in each state, with the events and answers of the tests, and the states that the table allows."""

from __future__ import annotations

from typing import get_args

from sidecar.core.app_reports import Load
from sidecar.core.claims import (
    NO_IDENTITY,
    Answer,
    Claim,
    Denied,
    Fleet,
    Granted,
    LeaseRequest,
    RandomIdentity,
    Unknown,
)
from sidecar.core.life import transitions
from sidecar.core.life.container import Container, start
from sidecar.core.life.events import (
    Answered,
    BeatAnswered,
    CullOrdered,
    Effect,
    GiveBack,
    Judged,
    ReviveOrdered,
    Trigger,
)
from sidecar.core.life.transitions import TRANSITIONS
from sidecar.core.types import Latch, Policy, Reason, State, Verdict

STARTING, UP, SUSPECT, RETIRING = State.STARTING, State.UP, State.SUSPECT, State.RETIRING
DRAINING, DOWN, STOPPING = State.DRAINING, State.DOWN, State.STOPPING

POLICY = Policy(check_interval_s=10.0, grace_s=0.0, settle_s=3.0, drain_s=10.0)
APP = "web/alloc"
WHY = "5 server errors"
FINE = Judged(Verdict())
SICK = Judged(Verdict((Reason("errors", 5, 5, WHY),), cause="redis"))
GRANTED, REPLAYED = Granted(1, 10), Granted(1, 10, replayed=True)
DENIED, UNKNOWN = Denied("window", 10, 10, 200.0), Unknown("timeout")
LATCH = Latch(f"{APP}/one", 1_000.0, WHY)
ORDERED = CullOrdered("ann", "it leaks")
REVIVED = ReviveOrdered("ann", "it was me", "revived-1", RandomIdentity("lease-2"))

AGING = POLICY._replace(lifetime_s=100.0, retire_timeout_s=60.0)
"""Retired at 100 s, and up again 60 s later if it is not restarted."""

IDENTITY = RandomIdentity("lease-1")
LEASE = Latch("", 1_000.0, "retired", lease="lease-1")
BUSY = FINE._replace(load=Load(1.0, 0.0))


def begun(policy: Policy = POLICY, app_start: str | None = "one") -> Container:
    return start(APP, 0.0, policy, app_start=app_start, identity=IDENTITY if policy.lifetime_s else NO_IDENTITY)


def step(container: Container, trigger: Trigger, now: float, policy: Policy) -> tuple[Container, tuple[Effect, ...]]:
    """One step, without its events."""
    container, effects, _ = transitions.step(container, trigger, now, policy)
    return container, effects


def asking(policy: Policy = POLICY, app_start: str | None = "one") -> Container:
    """A container with an outstanding claim, at the second when it has settled."""
    container, _ = step_and_beat(begun(policy, app_start), SICK, 0.0, policy)
    container, _ = step(container, SICK, policy.settle_s, policy)
    assert container.asking
    return container


def heard(container: Container, jitter: float = 0.0) -> BeatAnswered:
    """The answer to a beat of this container."""
    return BeatAnswered(container.presence, container.life, Fleet(3), jitter)


def step_and_beat(
    container: Container, event: Trigger, now: float, policy: Policy, jitter: float = 0.0
) -> tuple[Container, tuple[Effect, ...]]:
    """One step; if the container is a suspect then, its beat is answered at once."""
    container, effects = step(container, event, now, policy)
    if container.state is not SUSPECT:
        return container, effects
    container, more = step(container, heard(container, jitter), now, policy)
    return container, (*effects, *more)


def retiring(policy: Policy = AGING) -> Container:
    """A container that has asked for its lease, at the second when it was due."""
    container, _ = step(begun(policy), FINE, 0.0, policy)
    container, effects = step(container, FINE, 100.0, policy)
    assert (container.state, effects) == (RETIRING, (lease(),))
    return container


def retired(policy: Policy = AGING) -> Container:
    """A container that got its lease at the second when it was due."""
    return step(retiring(policy), leased(GRANTED), 100.0, policy)[0]


def claim(container: Container) -> Claim:
    """The claim that this container makes."""
    return Claim(container.claim_id, "alloc", container.life, container.cause, container.identity.holder)


def lease(holder: str = "lease-1", incarnation: str = "one") -> LeaseRequest:
    return LeaseRequest(holder, "alloc", incarnation, AGING.retire_slots, AGING.retire_timeout_s)


def leased(answer: Answer, holder: str = "lease-1", jitter: float = 0.0, took_s: float = 0.0) -> Answered:
    return Answered(lease(holder), answer, 1_000.0, jitter, took_s)


def answered(container: Container, answer: Answer, jitter: float = 0.0) -> Answered:
    return Answered(container.outstanding or claim(container), answer, 1_000.0, jitter)


def asks(effects: tuple[Effect, ...]) -> list[str]:
    return [effect.claim_id for effect in effects if isinstance(effect, Claim)]


def lease_wishes(effects: tuple[Effect, ...]) -> list[LeaseRequest | GiveBack]:
    return [effect for effect in effects if isinstance(effect, (LeaseRequest, GiveBack))]


TRIGGERS = get_args(Trigger)


def reachable(state: State, event: type[Trigger]) -> set[State]:
    """The states that the table allows after this event, the same state included."""
    transition = TRANSITIONS.get((state, event))
    return {state, *(transition.to if transition else ())}
