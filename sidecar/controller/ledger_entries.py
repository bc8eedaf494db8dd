"""The entries of the ledger: which steps of a container, and which answers to beats, are worth an entry.

A lasting state gets one entry: so does a suspect that is refused again and again for one reason. An app that does not
stay up gets an entry an hour about its restarts, for the ledger is bounded and has to keep the culls. An entry about
what all sidecars of a fleet see has a key that they share (``Entry.once``), so that only one of them writes it. The
outcomes of culls (``replaced``, ``helped``, ``unhelped``, ``unclear``) are written with the fleet's state.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from math import inf
from typing import Any, Final

from sidecar.client.redaction import redacted
from sidecar.core.claims import ALONE, CauseTrial, Denied, Unknown
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
from sidecar.core.life.events import (
    Culled,
    CullOrder,
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
from sidecar.core.types import DETAIL_LIMIT, Entry, Hold, State, Verdict

ORDERED: Final = "ordered"
NO_CULL: Final = "no_cull"
"""The reason of a restart in place of a container that was neither suspect nor out of service."""

RESTARTS_PAUSE_S: Final = 3600.0

_WELL: Final = (State.STARTING, State.UP, State.RETIRING)
"""The states of a container that is neither suspect nor out of service."""

_RESTARTED: Final = "the app was restarted in place"


class EntryWriter:
    """Writes entries about what the sidecar of ``instance`` sees, ``at`` Unix time and ``now`` on a monotonic clock.

    Durations are of the monotonic clock, because the wall clock may jump by hours.
    """

    def __init__(self, instance: str, traits: Traits = NO_TRAITS) -> None:
        self._instance = instance
        self._traits = traits
        self._cause = ""
        self._restarts = 0  # since the last entry about them
        self._restart_entries = 0
        self._next_restart_at = -inf

    def of_step(self, record: Record, at: float, now: float) -> list[Entry]:
        """The entries about one step of the container, in the order in which things happened."""
        kind = record.container.cause or self._cause  # the step that ends a cause is about it, too
        self._cause = record.container.cause
        return [
            entry._replace(at=at, instance=self._instance, kind=kind)
            for event in record.events
            if (entry := self._of_event(event, record, at, now))
        ]

    def _of_event(self, event: Event, record: Record, at: float, now: float) -> Entry | None:
        if isinstance(event, Culled):
            return self._culled(event, record, at - now)
        if isinstance(event, Restarted) and event.was in _WELL:
            return self._restarted(now)
        write = _OF_STEP.get(type(event))
        return write(event) if write else None

    def _culled(self, event: Culled, record: Record, offset_s: float) -> Entry:
        """What its container may share with others, and its evidence below the reason."""
        entry = _because(Entry("culled", seconds=event.suspect_s, detail=event.why), event.order, event.verdict)
        lines = [entry.detail, *(_lines(record.cull_evidence, offset_s) if record.cull_evidence else ())]
        version = record.container.app_version or self._traits.version
        return entry._replace(detail="\n".join(lines)[:DETAIL_LIMIT], node=self._traits.node, app_version=version)

    def _restarted(self, now: float) -> Entry | None:
        """A restart of a container that is well; those of the next hour are told with the first one after it.

        An app may be restarted together with its sidecar: of the first entries of processes, the store writes one in
        ten minutes (``Entry.once``).
        """
        self._restarts += 1
        if now < self._next_restart_at:
            return None
        times = f" ({self._restarts} restarts since the last entry)" if self._restarts > 1 else ""
        once = f"restarted {self._instance} {self._restart_entries}"
        self._restarts, self._restart_entries = 0, self._restart_entries + 1
        self._next_restart_at = now + RESTARTS_PAUSE_S
        return Entry("restarted", reason=NO_CULL, detail=f"{_RESTARTED}, without a cull{times}", once=once)

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


# -- steps of the container ---------------------------------------------------------------------------------------


def _suspected(event: Suspected) -> Entry | None:
    if event.by_order:
        return None
    return Entry("suspect", reason=reasons.rule(event.verdict), detail=reasons.verdict(event.verdict))


def _answered(event: TokenAnswered) -> Entry | None:
    answer, author = event.answer, event.order.author if event.order else ""
    if event.is_late or isinstance(answer, Unknown) or (event.is_repeated and not event.order):
        return None
    word, detail = reasons.reason_word(answer), reasons.answer(answer)
    if isinstance(answer, Denied):
        return Entry("denied", reason=word, author=author, seconds=answer.retry_after_s, detail=detail)
    return Entry("granted", reason=word, author=author, detail=detail)


def _would_cull(event: WouldCull) -> Entry:
    return _because(Entry("would_cull", detail=reasons.verdict(event.verdict)), event.order, event.verdict)


def _because(entry: Entry, order: CullOrder | None, verdict: Verdict | None) -> Entry:
    """The entry with the reason of a cull: a person's order, or the detector that fired."""
    if order is not None:
        return entry._replace(reason=ORDERED, author=order.author, detail=order.reason)
    return entry._replace(reason=reasons.rule(verdict))


def _lines(evidence: CullEvidence, offset_s: float) -> Iterator[str]:
    """The evidence of a cull, redacted: the samples, then the output of the hook."""
    for sample in evidence.samples:
        times = f"{_utc(sample.first + offset_s)} to {_utc(sample.last + offset_s)}"
        message = redacted(sample.message, MESSAGE_LIMIT)
        yield f"{sample.errors} x {sample.kind} ({sample.fingerprint}, {times}): {message}"
    if evidence.capture:
        yield evidence.capture


def _replaced_in_place(event: Restarted) -> Entry:
    when = "while it was suspect" if event.out_s is None else "after its cull"
    return Entry("restarted", seconds=event.out_s, detail=f"{_RESTARTED} {when}")


def _revived(event: Revived) -> Entry:
    if event.order:
        return Entry("revived", author=event.order.author, seconds=event.out_s, reason=event.order.reason)
    detail = "it was not replaced in time, and is back in service"
    return Entry("revived", reason="not_replaced", seconds=event.out_s, detail=detail)


def _recovered(event: Recovered) -> Entry:
    if event.would_down_s is None:
        return Entry("recovered", seconds=event.suspect_s)
    return Entry("would_recover", seconds=event.would_down_s)


_OF_STEP: Final[Mapping[type[Event], Callable[[Any], Entry | None]]] = {
    Suspected: _suspected,
    TokenAnswered: _answered,
    WouldCull: _would_cull,
    Retired: lambda event: Entry("retired", detail=event.why),
    Restarted: _replaced_in_place,
    Revived: _revived,
    Recovered: _recovered,
    NotHonoured: lambda event: Entry("not_honoured", seconds=event.out_s, once=f"not_honoured {event.claim_id}"),
}


# -- answers to beats ---------------------------------------------------------------------------------------------


def _store_away(event: StoreAway, at: float, instance: str) -> Entry | None:
    if event.error == ALONE:
        return None
    return Entry("redis_away", at, instance, reason=event.error, detail=reasons.failure(event.error))


def _paused(trial: CauseTrial, at: float) -> Entry:
    once = f"paused {trial.cause} {trial.failures}"
    return Entry("paused", at, kind=trial.cause, seconds=trial.paused_s, once=once)


def _hold(what: str, hold: Hold, at: float) -> Entry:
    left_s = max(0.0, hold.until - at)
    once = f"{what} {hold.instance} {hold.until:.0f}"
    return Entry(what, at, hold.instance, "", hold.reason, hold.author, left_s, once=once)


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
