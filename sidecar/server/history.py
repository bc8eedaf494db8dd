"""The last decisions of one sidecar: an observer of the controller's steps, bounded in memory.

Repetitions of a decision for the same reason are one decision with a count. It has no free text of the app, so that
every listener may show it. A sentence may have the author and the reason of a hold.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable, Iterator
from typing import Final, NamedTuple

from sidecar.core.explain import reasons
from sidecar.core.life.container import Container
from sidecar.core.life.snapshot import Record
from sidecar.core.types import Answer, State

MOST: Final = 50


class Decision(NamedTuple):
    """A decision: its word, its reason word, and a sentence; ``at`` is the Unix time of the last of ``times``."""

    at: float
    what: str
    reason: str
    sentence: str
    times: int = 1


class History:
    """The last ``MOST`` decisions; ``wall`` gives Unix seconds.

    ``answered_at``: when the last answer to a claim came, None before the first. ``counts``: all decisions since
    ``began_at`` by word and reason, repetitions as one.
    """

    def __init__(self, wall: Callable[[], float]) -> None:
        self.answered_at: float | None = None
        self.began_at = wall()
        self.counts = Counter[tuple[str, str]]()
        self._wall = wall
        self._decisions: deque[Decision] = deque(maxlen=MOST)

    def notice(self, record: Record) -> None:
        """Record the decisions of one step; most steps have none."""
        if record.before is record.after:
            return
        at = self._wall()
        if record.after.answer is not record.before.answer and record.after.answer is not None:
            self.answered_at = at
        for decision in _decided(record, at):
            self._add(decision)

    def newest(self) -> list[Decision]:
        """All decisions, the last one first."""
        return list(reversed(self._decisions))

    def _add(self, decision: Decision) -> None:
        last = self._decisions[-1] if self._decisions else None
        if last is not None and (last.what, last.reason) == (decision.what, decision.reason):
            self._decisions[-1] = decision._replace(times=last.times + 1)
        else:
            self._decisions.append(decision)
            self.counts[decision.what, decision.reason] += 1


def _decided(record: Record, at: float) -> Iterator[Decision]:
    before, after = record.before, record.after
    if record.restarted:
        yield Decision(at, "restarted", "", "the app restarted")
        return
    if after.answer is not None and after.answer is not before.answer:
        yield _answered(at, "", after.answer, reasons.answer)
    if after.lease_answer is not None and after.lease_answer is not before.lease_answer:
        yield _answered(at, "lease_", after.lease_answer, reasons.lease)
    for what, reason, sentence in _changed(record):
        yield Decision(at, what, reason, sentence)


def _answered(at: float, prefix: str, answer: Answer, write: Callable[[Answer], str]) -> Decision:
    return Decision(at, prefix + reasons.outcome(answer), reasons.reason_word(answer), write(answer))


def _changed(record: Record) -> Iterator[tuple[str, str, str]]:
    """The word, the reason word and the sentence of each decision that is no answer."""
    before, after = record.before, record.after
    if after.would_culls > before.would_culls:
        yield "would_cull", reasons.rule(after.verdict), f"shadow mode: {reasons.verdict(after.verdict)}"
    if after.latch is not None and (record.culled or record.retired):
        yield "culled" if record.culled else "retired", "", after.latch.reason
    elif before.latch is not None and after.latch is None:
        yield "revived", "", "it was not replaced in time" if record.not_honoured else "an operator ordered it"
    elif after.state is not before.state:
        yield _moved(before, after)


def _moved(before: Container, after: Container) -> tuple[str, str, str]:
    """The word, reason and sentence for a new state, except after a cull or a restart."""
    if after.state is State.SUSPECT:
        return "suspect", reasons.rule(after.verdict), reasons.verdict(after.verdict)
    if after.state is State.UP and before.state is State.SUSPECT:
        what = "would_recover" if before.would_down else "recovered"
        return what, "", "it is below every limit again"
    if after.state is State.DOWN:
        return "down", "", f"it drained for {after.since - before.since:.0f} s"
    return after.state.value, "", _ENTERED.get(after.state, "")


_ENTERED: Final = {
    State.STARTING: "the app started",
    State.UP: "it is judged from now on",
    State.RETIRING: "it is old enough to be retired and waits for a lease",
    State.STOPPING: "the sidecar is stopping",
}
