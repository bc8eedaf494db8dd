"""The entries of the ledger: which steps of a container, and which answers to beats, are worth an entry.

A lasting state gets one entry: so does a suspect that is refused again and again for one reason. An app that does not
stay up gets few entries about its restarts, for the ledger is bounded and has to keep the culls. An entry about what
all sidecars of a fleet see has a key that they share (``Entry.once``), so that only one of them writes it. The outcomes
of culls (``replaced``, ``helped``, ``unhelped``, ``unclear``) are written with the fleet's state.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from math import ceil, inf
from typing import Final

from sidecar.core.explain import reasons
from sidecar.core.life.container import Container
from sidecar.core.life.delays import HONOUR_S
from sidecar.core.life.detectors import complaint
from sidecar.core.life.events import ClaimAnswered, ReviveOrdered
from sidecar.core.life.snapshot import Record
from sidecar.core.types import MANUAL, Denied, Entry, Fleet, Granted, Hold, State, Unknown

ORDERED: Final = "ordered"
NO_CULL: Final = "no_cull"
"""The reason of a restart in place of a container that was neither suspect nor out of service."""

SHORT_PAUSE_S: Final = 600.0
LONG_PAUSE_S: Final = 3600.0

_ALONE: Final = "alone"
_RESTARTED: Final = "the app was restarted in place"
_RESTARTS: Final = re.compile(r"\((\d{1,9}) restarts? in the last ")


def restarts_of(entry: Entry) -> int:
    """The number of restarts in place that an entry ``restarted`` is about."""
    found = _RESTARTS.search(entry.detail) if entry.reason == NO_CULL else None
    return int(found[1]) if found else 1


class EntryWriter:
    """Writes entries about what the sidecar of ``instance`` sees, ``at`` Unix time and ``now`` on a monotonic clock.

    Durations are of the monotonic clock, because the wall clock may jump by hours. A cull is not honoured if the
    container is still there after ``honour_s`` seconds.
    """

    def __init__(self, instance: str, honour_s: float = HONOUR_S) -> None:
        self._instance = instance
        self._honour_s = honour_s
        self._kind = ""
        self._refused: set[str] = set()
        self._would_since: float | None = None
        self._down_since: float | None = None
        self._complained_of = ""
        self._away_since: float | None = None
        self._fleet: Fleet | None = None
        self._restarts = _Restarts(instance)

    # -- steps ------------------------------------------------------------------------------------------------

    def of_step(self, record: Record, at: float, now: float) -> list[Entry]:
        """The entries about one step of the container, in the order in which things happened."""
        down_s = self._down_s(record, at, now)
        if record.before is record.after and not isinstance(record.event, ClaimAnswered):
            return [*self._overdue(record, at, down_s), *self._restarts.of_step(record, at, now)]
        entries = [
            *self._begun(record, at),
            *self._answered(record, at),
            *self._culled(record, at, now),
            *self._ended(record, at, now, down_s),
            *self._overdue(record, at, down_s),
            *self._restarts.of_step(record, at, now),
        ]
        if record.after.state is not State.SUSPECT:
            self._refused.clear()
        if record.after.latch is None and record.after.state is not State.SUSPECT:
            self._kind = ""
        return entries

    def _down_s(self, record: Record, at: float, now: float) -> float:
        """Seconds since the container was latched, else 0; the wall clock dates a latch that came from disk."""
        found = record.before.latch
        if found is None:
            self._down_since = now if record.after.latch else None
        elif self._down_since is None:
            self._down_since = now - max(0.0, at - found.at)
        return 0.0 if self._down_since is None else now - self._down_since

    def _begun(self, record: Record, at: float) -> Iterator[Entry]:
        after = record.after
        if after.state is State.SUSPECT is not record.before.state and after.order is None:
            self._kind = complaint(after.verdict, record.evidence)
            yield self._entry("suspect", at, reason=reasons.rule(after.verdict), detail=reasons.verdict(after.verdict))

    def _answered(self, record: Record, at: float) -> Iterator[Entry]:
        event = record.event
        if not isinstance(event, ClaimAnswered) or not record.before.asking or record.after.asking:
            return
        answer, order, detail = event.answer, record.before.order, reasons.answer(event.answer)
        if isinstance(answer, Granted):
            word = reasons.reason_word(answer)
            granted = self._entry("granted", at, reason=word, author=order.author if order else "", detail=detail)
            yield granted._replace(kind=MANUAL) if order else granted
        elif isinstance(answer, Denied) and (answer.reason not in self._refused or order is not None):
            self._refused.add(answer.reason)
            author, seconds = (order.author if order else ""), answer.retry_after_s
            yield self._entry("denied", at, reason=answer.reason, author=author, seconds=seconds, detail=detail)

    def _culled(self, record: Record, at: float, now: float) -> Iterator[Entry]:
        before, after = record.before, record.after
        if after.would_culls > before.would_culls:
            self._would_since = now
            yield self._entry("would_cull", at, seconds=None, **_why(before, reasons.verdict(after.verdict)))
        if after.latch is None or before.latch is not None:
            return
        if after.latch.lease:
            yield self._entry("retired", at, detail=after.latch.reason)
            return
        self._kind = MANUAL if before.order else self._kind or complaint(after.verdict, record.evidence)
        suspect_s = after.since - before.since if before.state is State.SUSPECT else None
        yield self._entry("culled", at, seconds=suspect_s, **_why(before, after.latch.reason))

    def _ended(self, record: Record, at: float, now: float, down_s: float) -> Iterator[Entry]:
        before, after, event = record.before, record.after, record.event
        if record.restarted and not _is_well(before):
            when = "while it was suspect" if before.latch is None else "after its cull"
            yield self._entry("restarted", at, seconds=down_s or None, detail=f"{_RESTARTED} {when}")
        elif before.latch is not None and after.latch is None:
            if isinstance(event, ReviveOrdered):
                yield self._entry("revived", at, author=event.author, seconds=down_s, reason=event.reason)
            else:
                detail = "it was not replaced in time, and is back in service"
                yield self._entry("revived", at, reason="not_replaced", seconds=down_s, detail=detail)
        elif before.state is State.SUSPECT and after.state is State.UP and before.order is None:
            if before.would_down:
                since = self._would_since
                yield self._entry("would_recover", at, seconds=None if since is None else now - since)
            else:
                yield self._entry("recovered", at, seconds=after.since - before.since)

    def _overdue(self, record: Record, at: float, down_s: float) -> Iterator[Entry]:
        after = record.after
        if after.state is not State.DOWN or after.latch is None or after.latch.lease:
            return  # a retired container without a replacement goes up by itself
        claim_id = after.latch.claim_id
        if down_s >= self._honour_s and claim_id != self._complained_of:
            self._complained_of = claim_id
            yield self._entry("not_honoured", at, seconds=down_s, once=f"not_honoured {claim_id}")

    def _entry(self, what: str, at: float, *, seconds: float | None = None, **about: str) -> Entry:
        return Entry(what, at, self._instance, self._kind, seconds=seconds, **about)

    # -- answers to beats --------------------------------------------------------------------------------

    def of_beat(self, answer: Fleet | Unknown, at: float, now: float) -> list[Entry]:
        """The entries about one answer to a beat."""
        if isinstance(answer, Unknown):
            if answer.error == _ALONE or self._away_since is not None:
                return []
            self._away_since = now
            detail = reasons.failure(answer.error)
            return [Entry("redis_away", at, self._instance, reason=answer.error, detail=detail)]
        entries = list(changes(self._fleet, answer, at, self._instance))
        self._fleet = answer
        if self._away_since is not None:
            entries.insert(0, Entry("redis_back", at, self._instance, seconds=now - self._away_since))
            self._away_since = None
        return entries


class _Restarts:
    """Writes the entries about restarts in place of a container that is well.

    The first restart has an entry at once. Those of the next ten minutes share an entry at their end. While it goes on,
    so do those of each hour. An app may be restarted together with its sidecar: of the first entries of processes, the
    store writes one in ten minutes (``Entry.once``).
    """

    def __init__(self, instance: str) -> None:
        self._instance = instance
        self._count = self._entries = 0
        self._first_at = self._entered_at = self._pause_until = -inf

    def of_step(self, record: Record, at: float, now: float) -> list[Entry]:
        """The entry that is due after this step, if any; none while the container is suspect or out of service."""
        if record.restarted and _is_well(record.before):
            self._first_at = self._first_at if self._count else now
            self._count += 1
        if not self._count or now < self._pause_until or not _is_well(record.after):
            return []
        once, detail = f"restarted {self._instance} {self._entries}", self._detail(now)
        is_repeated = now - self._entered_at < 2 * LONG_PAUSE_S
        self._entered_at, self._pause_until = now, now + (LONG_PAUSE_S if is_repeated else SHORT_PAUSE_S)
        self._count, self._entries = 0, self._entries + 1
        return [Entry("restarted", at, self._instance, reason=NO_CULL, detail=detail, once=once)]

    def _detail(self, now: float) -> str:
        if now == self._first_at:
            return f"{_RESTARTED}, without a cull"
        times = f"{self._count} restart{'s' * (self._count > 1)}"
        return f"{_RESTARTED}, without a cull ({times} in the last {reasons.span(ceil(now - self._first_at))})"


def _is_well(container: Container) -> bool:
    """Whether the container is neither suspect nor out of service by a cull or a retirement."""
    return container.latch is None and container.state is not State.SUSPECT


def changes(before: Fleet | None, after: Fleet, at: float, instance: str) -> Iterator[Entry]:
    """What has happened to the fleet between two answers, as the sidecar of ``instance`` sees it.

    The first answer gives no entry, except for another container under the same instance name: the sidecar that started
    last may be the only one that sees this begin.
    """
    if after.duplicate and not (before is not None and before.duplicate):
        yield Entry("duplicate", at, instance, once=f"duplicate {instance}")
    if before is None:
        return
    yield from _pauses(before, after, at)
    yield from _holds(before.hold, after.hold, at)
    lost = after.lost_hold
    if lost is not None and lost != before.lost_hold:
        once, left_s = f"hold_lost {lost.instance} {lost.until:.0f}", max(0.0, lost.until - at)
        yield Entry("hold_lost", at, lost.instance, "", lost.reason, lost.author, left_s, once=once)
    if after.losses > before.losses:
        yield Entry("data_loss", at, once="data_loss")


def _pauses(before: Fleet, after: Fleet, at: float) -> Iterator[Entry]:
    """Each new pause of the culls for a cause; the number of culls in a row that did not help tells pauses apart."""
    known = {(trial.cause, trial.failures) for trial in before.trials if trial.paused_s > 0}
    for trial in after.trials:
        if trial.paused_s > 0 and (trial.cause, trial.failures) not in known:
            once = f"paused {trial.cause} {trial.failures}"
            yield Entry("paused", at, kind=trial.cause, seconds=trial.paused_s, once=once)


def _holds(before: Hold | None, after: Hold | None, at: float) -> Iterator[Entry]:
    """A new hold. The sidecar that takes the order to release one writes that entry itself."""
    if after is None or before == after:
        return
    once = f"hold {after.instance} {after.until:.0f}"
    left_s = max(0.0, after.until - at)
    yield Entry("hold", at, after.instance, "", after.reason, after.author, left_s, once=once)


def _why(before: Container, detail: str) -> dict[str, str]:
    """Why a container was culled: a person's order, or the detector that fired."""
    if before.order is not None:
        return {"reason": ORDERED, "author": before.order.author, "detail": before.order.reason}
    return {"reason": reasons.rule(before.verdict), "detail": detail}
