"""The last decisions of one sidecar, newest last: an observer of the controller's records, bounded in memory.

What is refused again and again for one reason is one decision that is counted. Nothing in it is the app's free text,
so that it may be shown at any door.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from typing import Final, NamedTuple

from sidecar.core.explain import reasons as sentences
from sidecar.core.life.container import Container
from sidecar.core.life.snapshot import Record
from sidecar.core.types import Answer, State

MOST: Final = 50


class Decision(NamedTuple):
    """What was decided, the machine's word for why, and a sentence; ``at`` is Unix time, of the last of ``times``."""

    at: float
    what: str
    reason: str
    sentence: str
    times: int = 1


class History:
    """The last ``MOST`` decisions; ``wall`` gives Unix seconds.

    ``answered_at`` is when the last answer to a claim came, None before the first. ``changes`` counts what was noted.
    """

    def __init__(self, wall: Callable[[], float]) -> None:
        self.answered_at: float | None = None
        self.changes = 0
        self._wall = wall
        self._decisions: deque[Decision] = deque(maxlen=MOST)

    def notice(self, record: Record) -> None:
        """Note what one step decided; most decide nothing."""
        if record.before is record.after:
            return
        at = self._wall()
        if record.after.answer is not record.before.answer and record.after.answer is not None:
            self.answered_at = at
        for what, reason, sentence in _decided(record):
            self._note(Decision(at, what, reason, sentence))

    def newest(self) -> list[Decision]:
        """All of them, the last one first."""
        return list(reversed(self._decisions))

    def restore(self, decisions: Iterable[Decision], answered_at: float | None) -> None:
        """Go on where another history ended, whose decisions come oldest first; what was noted here comes behind."""
        self._decisions = deque([*decisions, *self._decisions], maxlen=MOST)
        self.answered_at = answered_at if self.answered_at is None else self.answered_at
        self.changes += 1

    def _note(self, decision: Decision) -> None:
        self.changes += 1
        last = self._decisions[-1] if self._decisions else None
        if last is not None and (last.what, last.reason) == (decision.what, decision.reason):
            self._decisions[-1] = decision._replace(times=last.times + 1)
        else:
            self._decisions.append(decision)


def _decided(record: Record) -> Iterator[tuple[str, str, str]]:
    before, after = record.before, record.after
    if record.restarted:
        yield "restarted", "", "the app restarted"
        return
    if after.answer is not None and after.answer is not before.answer:
        yield sentences.outcome(after.answer), sentences.reason_word(after.answer), sentences.answer(after.answer)
    if after.lease_answer is not None and after.lease_answer is not before.lease_answer:
        yield f"lease_{sentences.outcome(after.lease_answer)}", *_lease(after.lease_answer)
    if after.would_culls > before.would_culls:
        yield "would_cull", _rule(after), f"shadow mode: {sentences.verdict(after.verdict)}"
    if after.latch is not None and (record.culled or record.retired):
        yield "culled" if record.culled else "retired", "", after.latch.reason
    elif before.latch is not None and after.latch is None:
        yield "revived", "", "it was not replaced in time" if record.not_honoured else "an operator ordered it"
    elif after.state is not before.state:
        yield _moved(before, after)


def _moved(before: Container, after: Container) -> tuple[str, str, str]:
    """The word and the sentence for a state that was entered otherwise than by a cull or a new life."""
    if after.state is State.SUSPECT:
        return "suspect", _rule(after), sentences.verdict(after.verdict)
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
    State.STOPPING: "the sidecar was told to stop",
}


def _lease(answer: Answer) -> tuple[str, str]:
    return sentences.reason_word(answer), sentences.lease(answer)


def _rule(container: Container) -> str:
    reasons = container.verdict.reasons if container.verdict else ()
    return reasons[0].rule if reasons else ""
