"""The last decisions: one line each, counted when they repeat."""

from __future__ import annotations

from dataclasses import replace

import pytest

from harness.containers import heard
from sidecar.core.life import transitions
from sidecar.core.life.container import Container, start
from sidecar.core.life.events import Event, Retired, RetirementAnswered, Revived
from sidecar.core.life.snapshot import Record
from sidecar.core.life.triggers import AppRestarted, ClaimAnswered, Judged, StopRequested, Trigger
from sidecar.core.types import (
    Answer,
    Denied,
    Evidence,
    Granted,
    Judgement,
    Policy,
    Reason,
    State,
    Unknown,
    Verdict,
)
from sidecar.server.history import MOST, History

POLICY = Policy(error_limit=5, settle_s=1.0, drain_s=10.0)
BAD = Verdict(Judgement.EXCESSIVE, (Reason("errors", 7, 5, "7 server errors"),))
FINE = Verdict(Judgement.FINE)
STARTED = start("app/a", 0.0, POLICY)


class Life:
    """An arbiter whose every step is noticed; the wall clock says a thousand more than the other."""

    def __init__(self, policy: Policy = POLICY, container: Container = STARTED) -> None:
        self.now = 0.0
        self.policy = policy
        self.container = container
        self.history = History(lambda: 1000.0 + self.now)

    def step(self, event: Trigger, now: float) -> None:
        self.now = now
        self.container, _, events = transitions.step(self.container, event, now, self.policy)
        self.history.notice(Record(events, self.container, Evidence(60)))

    def judged(self, verdict: Verdict, now: float) -> None:
        self.step(Judged(verdict), now)
        if self.container.state is State.SUSPECT and not self.container.is_announced:
            self.step(heard(self.container), now)

    def answered(self, answer: Answer, now: float) -> None:
        self.step(ClaimAnswered(self.container.claim_id, answer, 1000.0 + now), now)

    @property
    def decisions(self) -> list[str]:
        return [decision.what for decision in reversed(self.history.newest())]


def test_cull_is_shown_step_by_step() -> None:
    life = Life()
    assert not life.history.answered_at
    life.judged(BAD, 1.0)
    life.judged(BAD, 2.0)
    life.answered(Denied("window", 10, 10, 60.0), 3.0)
    life.judged(BAD, 13.5)
    life.answered(Unknown("timeout"), 14.0)
    life.judged(BAD, 20.0)
    life.answered(Granted(3, 10), 21.0)
    life.judged(BAD, 31.0)
    life.step(AppRestarted("life-2"), 40.0)
    life.judged(FINE, 50.0)
    life.step(StopRequested(), 60.0)
    assert life.decisions == [
        *("suspect", "denied", "unknown", "granted", "culled", "down", "restarted", "up", "stopping"),
    ]
    newest = life.history.newest()
    assert (newest[0].at, life.history.answered_at) == (1060.0, 1021.0)
    assert (newest[4].what, newest[4].sentence) == ("culled", "7 server errors")
    assert newest[3].sentence == "it drained for 10 s"


def test_repeated_refusals_for_one_reason_are_one_decision() -> None:
    life = Life()
    life.judged(BAD, 1.0)
    for turn in range(200):
        life.judged(BAD, 20.0 + 20 * turn)
        life.answered(Denied("window", 10, 10, 60.0), 21.0 + 20 * turn)
    newest = life.history.newest()
    assert life.decisions == ["suspect", "denied"]
    assert (newest[0].times, newest[0].at) == (200, 1000.0 + 21 + 20 * 199)


def test_memory_is_bounded() -> None:
    life = Life()
    for turn in range(2 * MOST):
        life.judged(BAD, 10.0 * turn)
        life.judged(FINE, 10.0 * turn + 5)
    assert len(life.history.newest()) == MOST


def test_shadow_mode_shows_what_would_have_happened() -> None:
    life = Life(replace(POLICY, enforce=False))
    life.judged(BAD, 1.0)
    life.judged(BAD, 2.0)
    life.answered(Granted(1, 10), 3.0)
    life.judged(FINE, 4.0)
    assert life.decisions == ["suspect", "granted", "would_cull", "would_recover"]


@pytest.mark.parametrize(
    ("event", "what"),
    [
        (RetirementAnswered(Granted(1, 2)), "lease_granted"),
        (RetirementAnswered(Denied("slots", 1, 1, 60.0)), "lease_denied"),
        (RetirementAnswered(Unknown("timeout")), "lease_unknown"),
        (Retired(was=State.RETIRING, state=State.DRAINING, why="retired at age 6h"), "retired"),
        (Revived(was=State.DOWN, state=State.UP, out_s=60.0, order=None), "revived"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_retirement_is_shown_step_by_step(event: Event, what: str) -> None:
    life = Life()
    life.history.notice(Record((event,), STARTED, Evidence(60)))
    assert life.decisions == [what]
