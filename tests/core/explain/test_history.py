"""The last decisions: one line each, counted when they repeat."""

from __future__ import annotations

from dataclasses import replace

import pytest

from harness.lives import heard
from sidecar.core.explain.history import MOST, Decision, History
from sidecar.core.life import transitions
from sidecar.core.life.container import Container, start
from sidecar.core.life.events import Answered, Event, Judged, Restarted, Stopped
from sidecar.core.life.snapshot import Record
from sidecar.core.types import (
    Answer,
    Denied,
    Evidence,
    Granted,
    Hold,
    Judgement,
    Latch,
    Policy,
    Reason,
    State,
    Unknown,
    Verdict,
)

POLICY = Policy(error_limit=5, settle_s=1.0, drain_s=10.0)
BAD = Verdict(Judgement.EXCESSIVE, (Reason("errors", 7, 5, "7 server errors"),))
FINE = Verdict(Judgement.FINE)
STARTED = start("app/a", 0.0, POLICY)
HOLD = Hold("anna", "a deploy", 1_000.0)


class Life:
    """An arbiter whose every step is noticed; the wall clock says a thousand more than the other."""

    def __init__(self, policy: Policy = POLICY, container: Container = STARTED) -> None:
        self.now = 0.0
        self.policy = policy
        self.container = container
        self.history = History(lambda: 1000.0 + self.now)

    def step(self, event: Event, now: float) -> None:
        self.now = now
        before = self.container
        self.container, _ = transitions.step(before, event, now, self.policy)
        self.history.notice(Record(event, before, self.container, Evidence(60)))

    def judged(self, verdict: Verdict, now: float) -> None:
        self.step(Judged(verdict), now)
        if self.container.state is State.SUSPECT and not self.container.is_heard:
            self.step(heard(self.container), now)

    def answered(self, answer: Answer, now: float) -> None:
        self.step(Answered(self.container.claim_id, answer, 1000.0 + now), now)

    @property
    def told(self) -> list[str]:
        return [decision.what for decision in reversed(self.history.newest())]


def test_story_of_a_cull_is_told_in_order() -> None:
    life = Life()
    life.judged(BAD, 1.0)
    life.judged(BAD, 2.0)
    life.answered(Denied("window", 10, 10, 60.0), 3.0)
    life.judged(BAD, 13.5)
    life.answered(Unknown("timeout"), 14.0)
    life.judged(BAD, 20.0)
    life.answered(Granted(3, 10), 21.0)
    life.judged(BAD, 31.0)
    life.step(Restarted("life-2"), 40.0)
    life.judged(FINE, 50.0)
    life.step(Stopped(), 60.0)
    assert life.told == [
        *("suspect", "denied", "unknown", "granted", "culled", "down", "restarted", "up", "stopping"),
    ]
    newest = life.history.newest()
    assert newest[0].at == 1060.0
    assert (newest[4].what, newest[4].sentence) == ("culled", "7 server errors")
    assert newest[3].sentence == "it drained for 10 s"


def test_what_is_refused_for_one_reason_again_and_again_is_one_decision() -> None:
    life = Life()
    life.judged(BAD, 1.0)
    for turn in range(200):
        life.judged(BAD, 20.0 + 20 * turn)
        life.answered(Denied("window", 10, 10, 60.0), 21.0 + 20 * turn)
    newest = life.history.newest()
    assert life.told == ["suspect", "denied"]
    assert (newest[0].times, newest[0].at) == (200, 1000.0 + 21 + 20 * 199)


def test_memory_is_bounded() -> None:
    life = Life()
    for turn in range(2 * MOST):
        life.judged(BAD, 10.0 * turn)
        life.judged(FINE, 10.0 * turn + 5)
    assert len(life.history.newest()) == MOST


def test_judgements_that_change_nothing_are_no_decisions() -> None:
    life = Life()
    for second in range(5):
        life.judged(FINE, float(second))
    assert life.told == ["up"]


def test_shadow_mode_tells_what_would_have_been() -> None:
    life = Life(replace(POLICY, enforce=False))
    life.judged(BAD, 1.0)
    life.judged(BAD, 2.0)
    life.answered(Granted(1, 10), 3.0)
    life.judged(FINE, 4.0)
    assert life.told == ["suspect", "granted", "would_cull", "would_recover"]


def test_refusal_by_a_hold_tells_who_holds_and_why() -> None:
    life = Life()
    life.judged(BAD, 1.0)
    life.judged(BAD, 2.0)
    life.answered(Denied("hold", 0, 10, 60.0, hold=HOLD), 3.0)
    denied = life.history.newest()[0]
    assert (denied.what, denied.reason) == ("denied", "hold")
    assert denied.sentence == "anna holds the service: a deploy, no container is culled for 1m"


@pytest.mark.parametrize("answer", [Granted(1, 2), Denied("slots", 1, 1, 60.0), Unknown("timeout")])
def test_answers_about_a_lease_are_told_as_such(answer: Answer) -> None:
    life = Life()
    waiting = replace(STARTED, state=State.RETIRING)
    asked = replace(waiting, lease_answer=answer)
    life.history.notice(Record(Judged(FINE), waiting, asked, Evidence(60)))
    assert life.told == [f"lease_{type(answer).__name__.lower()}"]


def test_retirement_and_revival_are_told() -> None:
    life = Life()
    up = replace(STARTED, state=State.UP)
    away = replace(up, state=State.DRAINING, latch=Latch("", 1.0, "retired at age 6h", lease="word"))
    for before, after in ((up, away), (away, up)):
        life.history.notice(Record(Judged(FINE), before, after, Evidence(60)))
    assert life.told == ["retired", "revived"]


def test_time_of_the_last_answer_is_known() -> None:
    life = Life()
    assert life.history.answered_at is None
    life.judged(BAD, 1.0)
    life.judged(BAD, 2.0)
    life.answered(Denied("window", 10, 10, 60.0), 3.0)
    life.judged(BAD, 4.0)
    assert life.history.answered_at == 1003.0


def test_history_goes_on_where_another_ended_and_counts_what_repeats() -> None:
    one, other = Life(), Life()
    one.judged(BAD, 1.0)
    one.judged(BAD, 2.0)
    one.answered(Denied("window", 10, 10, 60.0), 3.0)
    other.container = one.container
    other.history.restore(reversed(one.history.newest()), one.history.answered_at)
    assert other.history.answered_at == 1003.0
    other.judged(BAD, 13.5)
    other.answered(Denied("window", 10, 10, 60.0), 14.0)
    assert (other.told, other.history.newest()[0].times) == (["suspect", "denied"], 2)
    assert other.history.answered_at == 1014.0


def test_history_that_goes_on_is_as_bounded_as_any() -> None:
    life = Life()
    life.judged(BAD, 1.0)
    life.history.restore([Decision(float(at), "up", "", "") for at in range(2 * MOST)], None)
    assert len(life.history.newest()) == MOST
    assert life.told[-1] == "suspect"


def test_changes_tell_whether_anything_was_noted() -> None:
    life = Life()
    life.judged(FINE, 1.0)
    before = life.history.changes
    life.judged(FINE, 2.0)
    assert life.history.changes == before
    life.judged(BAD, 3.0)
    assert life.history.changes > before
