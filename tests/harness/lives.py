"""Lives of an app as the arbiter's tests tell them: events, answers, standings, and where each pair may lead."""

from __future__ import annotations

from dataclasses import replace
from typing import get_args

from sidecar.core.arbiter import Answered, Ask, Effect, Event, Judged, Restarted, Standing, Stopped, start, step
from sidecar.core.words import Answer, Denied, Granted, Judgement, Latch, Policy, Reason, State, Unknown, Verdict

STARTING, UP, SUSPECT = State.STARTING, State.UP, State.SUSPECT
DRAINING, DOWN, STOPPING = State.DRAINING, State.DOWN, State.STOPPING

POLICY = Policy(check_interval_s=10.0, grace_s=0.0, settle_s=3.0, drain_s=10.0)
APP = "web/alloc"
WHY = "5 server errors"
FINE = Judged(Verdict(Judgement.FINE))
SICK = Judged(Verdict(Judgement.EXCESSIVE, (Reason("errors", 5, 5, WHY),)))
FINE_PING, SICK_PING = (replace(look, is_check=False) for look in (FINE, SICK))
GRANTED, REPLAYED = Granted(1, 10), Granted(1, 10, replayed=True)
DENIED, UNKNOWN = Denied("window", 10, 10, 200.0), Unknown("timeout")
LATCH = Latch(f"{APP}/one", 1_000.0, WHY)


def begun(policy: Policy = POLICY, app_start: str | None = "one") -> Standing:
    return start(APP, 0.0, policy, app_start=app_start)


def asking(policy: Policy = POLICY, app_start: str | None = "one") -> Standing:
    """Standing with a claim on its way, at the second when it settled."""
    standing, _ = step(begun(policy, app_start), SICK, 0.0, policy)
    standing, _ = step(standing, SICK, policy.settle_s, policy)
    assert standing.asking
    return standing


def answered(standing: Standing, answer: Answer, jitter: float = 0.0) -> Answered:
    return Answered(standing.claim_id, answer, 1_000.0, jitter)


def asks(effects: tuple[Effect, ...]) -> list[str]:
    return [effect.claim_id for effect in effects if isinstance(effect, Ask)]


EVENTS = get_args(Event)

LEGAL = {
    (STARTING, Judged): {STARTING, UP, SUSPECT},
    (STARTING, Answered): {STARTING},
    (STARTING, Restarted): {STARTING},
    (UP, Judged): {UP, SUSPECT},
    (UP, Answered): {UP},
    (UP, Restarted): {UP, STARTING},
    (SUSPECT, Judged): {SUSPECT, UP},
    (SUSPECT, Answered): {SUSPECT, UP, DRAINING, DOWN},
    (SUSPECT, Restarted): {SUSPECT, STARTING},
    (DRAINING, Judged): {DRAINING, DOWN},
    (DRAINING, Answered): {DRAINING},
    (DRAINING, Restarted): {STARTING},
    (DOWN, Judged): {DOWN},
    (DOWN, Answered): {DOWN},
    (DOWN, Restarted): {STARTING},
    **{(state, Stopped): {STOPPING} for state in State},
    **{(STOPPING, event): {STOPPING} for event in EVENTS},
}
"""Where a pair may lead."""
