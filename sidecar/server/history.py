"""The last decisions of one sidecar: an observer of the controller's steps, bounded in memory.

Repetitions of a decision for the same reason are one decision with a count. It has no free text of the app, so that
every listener may show it. A sentence may have the author and the reason of a hold.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable, Mapping
from typing import Any, Final, NamedTuple

from sidecar.core.explain import reasons
from sidecar.core.life.events import (
    ClaimDeferred,
    Culled,
    Event,
    Moved,
    Recovered,
    Restarted,
    Retired,
    RetirementAnswered,
    Revived,
    Suspected,
    TokenAnswered,
    WentDown,
    WouldCull,
)
from sidecar.core.life.snapshot import Record
from sidecar.core.types import Answer

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
        for event in record.events:
            if (decide := DECISIONS.get(type(event))) and (decision := decide(event)):
                self._add(decision._replace(at=self._wall()))
            if isinstance(event, ClaimDeferred) or (isinstance(event, TokenAnswered) and not event.is_late):
                self.answered_at = self._wall()

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


def _answered(event: TokenAnswered) -> Decision | None:
    return None if event.is_late else _answer("", event.answer, reasons.answer)


def _deferred(event: ClaimDeferred) -> Decision:
    return _answer("", event.answer, reasons.answer)


def _leased(event: RetirementAnswered) -> Decision | None:
    return None if event.is_late else _answer("lease_", event.answer, reasons.lease)


def _answer(prefix: str, answer: Answer, write: Callable[[Answer], str]) -> Decision:
    return Decision(0.0, prefix + reasons.outcome(answer), reasons.reason_word(answer), write(answer))


def _suspected(event: Suspected) -> Decision:
    return Decision(0.0, "suspect", reasons.rule(event.verdict), reasons.verdict(event.verdict))


def _would_cull(event: WouldCull) -> Decision:
    return Decision(0.0, "would_cull", reasons.rule(event.verdict), f"shadow mode: {reasons.verdict(event.verdict)}")


def _recovered(event: Recovered) -> Decision:
    what = "recovered" if event.would_down_s is None else "would_recover"
    return Decision(0.0, what, "", "it is below every limit again")


def _moved(what: str) -> Callable[[Moved], Decision]:
    return lambda event: Decision(0.0, what or event.state, "", event.why)


DECISIONS: Final[Mapping[type[Event], Callable[[Any], Decision | None]]] = {
    TokenAnswered: _answered,
    ClaimDeferred: _deferred,
    RetirementAnswered: _leased,
    Suspected: _suspected,
    Recovered: _recovered,
    WouldCull: _would_cull,
    Culled: _moved("culled"),
    Retired: _moved("retired"),
    Revived: _moved("revived"),
    Restarted: _moved("restarted"),
    WentDown: _moved("down"),
    Moved: _moved(""),
}
