"""The entries of the ledger: which steps of a container, and which answers to beats, are worth an entry.

A lasting state gets one entry: so does a suspect that is refused again and again for one reason. An app that does not
stay up gets few entries about its restarts, for the ledger is bounded and has to keep the culls. An entry about what
all sidecars of a fleet see has a key that they share (``Entry.once``), so that only one of them writes it. The outcomes
of culls (``replaced``, ``helped``, ``unhelped``, ``unclear``) are written with the fleet's state.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterator, Mapping
from math import ceil, inf
from typing import Any, Final

from sidecar.client.redaction import redacted
from sidecar.core.explain import reasons
from sidecar.core.explain.samples import MESSAGE_LIMIT, CullEvidence
from sidecar.core.fleet.common_trait import NO_TRAITS, Traits
from sidecar.core.fleet.fleet_events import (
    BeatRecord,
    CausePaused,
    DataLost,
    Duplicated,
    FleetEvent,
    HoldBegan,
    HoldLost,
    StoreAway,
    StoreBack,
)
from sidecar.core.life.container import CullOrder
from sidecar.core.life.events import (
    Culled,
    Event,
    NotHonoured,
    Recovered,
    Restarted,
    Retired,
    Revived,
    Suspected,
    TokenAnswered,
    WouldCull,
)
from sidecar.core.life.snapshot import Record
from sidecar.core.types import DETAIL_LIMIT, CauseTrial, Denied, Entry, Granted, Hold, State, Verdict

ORDERED: Final = "ordered"
NO_CULL: Final = "no_cull"
"""The reason of a restart in place of a container that was neither suspect nor out of service."""

SHORT_PAUSE_S: Final = 600.0
LONG_PAUSE_S: Final = 3600.0

_ALONE: Final = "alone"
_WELL: Final = (State.STARTING, State.UP, State.RETIRING)
"""The states of a container that is neither suspect nor out of service."""

_RESTARTED: Final = "the app was restarted in place"
_RESTARTS: Final = re.compile(r"\((\d{1,9}) restarts? in the last ")


def restarts_of(entry: Entry) -> int:
    """The number of restarts in place that an entry ``restarted`` is about."""
    found = _RESTARTS.search(entry.detail) if entry.reason == NO_CULL else None
    return int(found[1]) if found else 1


class EntryWriter:
    """Writes entries about what the sidecar of ``instance`` sees, ``at`` Unix time and ``now`` on a monotonic clock.

    Durations are of the monotonic clock, because the wall clock may jump by hours.
    """

    def __init__(self, instance: str, traits: Traits = NO_TRAITS) -> None:
        self._instance = instance
        self._traits = traits
        self._cause = ""
        self._offset_s = 0.0
        self._restarts = _Restarts(instance)
        self._writers: Mapping[type[Event], Callable[[Any, Record], Entry | None]] = {
            Suspected: self._suspected,
            TokenAnswered: self._answered,
            WouldCull: self._would_cull,
            Culled: self._culled,
            Retired: self._retired,
            Restarted: self._restarted,
            Revived: self._revived,
            Recovered: self._recovered,
            NotHonoured: self._not_honoured,
        }

    # -- steps ------------------------------------------------------------------------------------------------

    def of_step(self, record: Record, at: float, now: float) -> list[Entry]:
        """The entries about one step of the container, in the order in which things happened."""
        self._offset_s = at - now
        kind = record.container.cause or self._cause  # the step that ends a cause is about it, too
        entries = [
            entry._replace(at=at, kind=kind)
            for event in record.events
            if (write := self._writers.get(type(event))) and (entry := write(event, record))
        ]
        entries += self._restarts.of_step(record, at, now)
        self._cause = record.container.cause
        return entries

    def _suspected(self, event: Suspected, record: Record) -> Entry | None:
        if record.container.order is not None:
            return None
        return self._entry("suspect", reason=reasons.rule(event.verdict), detail=reasons.verdict(event.verdict))

    def _answered(self, event: TokenAnswered, _record: Record) -> Entry | None:
        answer, detail = event.answer, reasons.answer(event.answer)
        author = event.order.author if event.order else ""
        if event.is_late:
            return None
        if isinstance(answer, Granted):
            return self._entry("granted", reason=reasons.reason_word(answer), author=author, detail=detail)
        if not isinstance(answer, Denied) or (event.is_repeated and event.order is None):
            return None
        return self._entry("denied", reason=answer.reason, author=author, seconds=answer.retry_after_s, detail=detail)

    def _would_cull(self, event: WouldCull, _record: Record) -> Entry:
        return self._entry(
            "would_cull", seconds=None, **_why(event.order, event.verdict, reasons.verdict(event.verdict))
        )

    def _culled(self, event: Culled, record: Record) -> Entry:
        why = _why(event.order, event.verdict, event.why)
        version = record.container.app_version or self._traits.version
        culled = self._entry("culled", seconds=event.suspect_s, node=self._traits.node, app_version=version, **why)
        if record.cull_evidence is None:
            return culled
        return culled._replace(detail="\n".join((culled.detail, *self._lines(record.cull_evidence)))[:DETAIL_LIMIT])

    def _lines(self, evidence: CullEvidence) -> Iterator[str]:
        """The evidence of a cull, redacted: the samples, then the output of the hook."""
        for sample in evidence.samples:
            times = f"{_utc(sample.first + self._offset_s)} to {_utc(sample.last + self._offset_s)}"
            message = redacted(sample.message, MESSAGE_LIMIT)
            yield f"{sample.errors} x {sample.kind} ({sample.fingerprint}, {times}): {message}"
        if evidence.capture:
            yield evidence.capture

    def _retired(self, event: Retired, _record: Record) -> Entry:
        return self._entry("retired", detail=event.why)

    def _restarted(self, event: Restarted, _record: Record) -> Entry | None:
        if event.was in _WELL:
            return None  # see _Restarts
        when = "while it was suspect" if event.out_s is None else "after its cull"
        return self._entry("restarted", seconds=event.out_s, detail=f"{_RESTARTED} {when}")

    def _revived(self, event: Revived, _record: Record) -> Entry:
        if event.order:
            author, reason = event.order.author, event.order.reason
            return self._entry("revived", author=author, seconds=event.out_s, reason=reason)
        detail = "it was not replaced in time, and is back in service"
        return self._entry("revived", reason="not_replaced", seconds=event.out_s, detail=detail)

    def _recovered(self, event: Recovered, _record: Record) -> Entry:
        if event.would_down_s is None:
            return self._entry("recovered", seconds=event.suspect_s)
        return self._entry("would_recover", seconds=event.would_down_s)

    def _not_honoured(self, event: NotHonoured, _record: Record) -> Entry:
        return self._entry("not_honoured", seconds=event.out_s, once=f"not_honoured {event.claim_id}")

    def _entry(self, what: str, *, seconds: float | None = None, **about: str) -> Entry:
        return Entry(what, 0.0, self._instance, seconds=seconds, **about)

    # -- answers to beats --------------------------------------------------------------------------------

    def of_beat(self, record: BeatRecord, at: float) -> list[Entry]:
        """The entries about one answer to a beat.

        The first answer shows what began earlier, and the others have written that.
        """
        return [
            entry
            for event in record.events
            if (write := _OF_FLEET.get(type(event)))
            and (not record.is_first or isinstance(event, _OF_OWN))
            and (entry := write(event, at, self._instance))
        ]


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
        if any(isinstance(event, Restarted) and event.was in _WELL for event in record.events):
            self._first_at = self._first_at if self._count else now
            self._count += 1
        if not self._count or now < self._pause_until or record.container.state not in _WELL:
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


def _why(order: CullOrder | None, verdict: Verdict | None, detail: str) -> dict[str, str]:
    """Why a container was culled: a person's order, or the detector that fired."""
    if order is not None:
        return {"reason": ORDERED, "author": order.author, "detail": order.reason}
    return {"reason": reasons.rule(verdict), "detail": detail}


def _store_away(event: StoreAway, at: float, instance: str) -> Entry | None:
    if event.error == _ALONE:
        return None
    return Entry("redis_away", at, instance, reason=event.error, detail=reasons.failure(event.error))


def _hold(what: str, hold: Hold, at: float) -> Entry:
    left_s = max(0.0, hold.until - at)
    once = f"{what} {hold.instance} {hold.until:.0f}"
    return Entry(what, at, hold.instance, "", hold.reason, hold.author, left_s, once=once)


def _paused(trial: CauseTrial, at: float) -> Entry:
    once = f"paused {trial.cause} {trial.failures}"
    return Entry("paused", at, kind=trial.cause, seconds=trial.paused_s, once=once)


_OF_OWN: Final = (Duplicated, StoreAway, StoreBack)
"""What no other sidecar may see: the one that started last may be the only one that sees the other of its name."""

_OF_FLEET: Final[Mapping[type[FleetEvent], Callable[[Any, float, str], Entry | None]]] = {
    StoreAway: _store_away,
    StoreBack: lambda event, at, instance: Entry("redis_back", at, instance, seconds=event.away_s),
    Duplicated: lambda _, at, instance: Entry("duplicate", at, instance, once=f"duplicate {instance}"),
    CausePaused: lambda event, at, _: _paused(event.trial, at),
    HoldBegan: lambda event, at, _: _hold("hold", event.hold, at),
    HoldLost: lambda event, at, _: _hold("hold_lost", event.hold, at),
    DataLost: lambda _, at, __: Entry("data_loss", at, once="data_loss"),
}
"""The sidecar that takes the order to release a hold writes that entry itself."""


def _utc(unix: float) -> str:
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(unix))
