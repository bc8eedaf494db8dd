"""The log: an observer that writes a line for each event that matters to a person, by a table of events.

A line that repeats is logged once a minute, with the number of repetitions that were left out.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Mapping
from typing import Any, Final, NamedTuple

from sidecar.core.app_reports import Missed, Sample
from sidecar.core.claims import Fleet, Granted, Unknown
from sidecar.core.explain import reasons, words
from sidecar.core.fleet.fleet_events import (
    BeatRecord,
    CausePaused,
    DataLost,
    Duplicated,
    DuplicateEnded,
    FleetEvent,
    HoldBegan,
    HoldEnded,
    HoldLost,
    PauseEnded,
    ProcessUnknown,
    SettingsDiffer,
    StoreBack,
)
from sidecar.core.fleet.rotation import RotationPlan
from sidecar.core.life.container import Container
from sidecar.core.life.events import (
    Culled,
    Event,
    Moved,
    OrderTaken,
    Recovered,
    Restarted,
    Retired,
    RetirementAnswered,
    Revived,
    Suspected,
    TokenAnswered,
    WentDown,
    WouldCull,
    WouldRetire,
)
from sidecar.core.life.snapshot import Record

SAMPLE_S: Final = 60.0

logger: Final = logging.getLogger("sidecar")
INFO, WARNING, ERROR = logging.INFO, logging.WARNING, logging.ERROR


class EventLine(NamedTuple):
    """How an event is logged: ``text`` makes the message of it, and ``fields`` what is logged beside it."""

    level: int
    text: Callable[[Any], str]
    fields: Callable[[Any], dict[str, object]] = lambda _: {}


def _state(event: Moved) -> str:
    return event.state


LINES: Final[Mapping[type[Event], EventLine]] = {
    Moved: EventLine(INFO, _state),
    Suspected: EventLine(WARNING, _state),
    Recovered: EventLine(INFO, _state),
    Culled: EventLine(WARNING, _state),
    Retired: EventLine(WARNING, _state),
    WentDown: EventLine(WARNING, _state),
    Revived: EventLine(
        WARNING, lambda event: "revived" if event.order else "retired and not replaced in time, up again"
    ),
    Restarted: EventLine(INFO, lambda event: "app restarted" if event.state is event.was else event.state),
    OrderTaken: EventLine(WARNING, lambda _: "cull ordered"),
    WouldCull: EventLine(WARNING, lambda _: "would be culled (shadow mode)"),
    WouldRetire: EventLine(WARNING, lambda _: "would be retired (shadow mode)"),
}
"""The events that have a line of their own; answers without a grant have a sampled one."""

FIELDS: Final[Mapping[type[Event], Callable[[Any], dict[str, object]]]] = {
    OrderTaken: lambda event: {"author": event.order.author, "order": event.order.reason},
    Revived: lambda event: {"author": event.order.author, "order": event.order.reason} if event.order else {},
    Restarted: lambda event: {"app_start": event.app_start},
    RetirementAnswered: lambda event: {
        "lease": reasons.outcome(event.answer),
        "answer": reasons.answer(event.answer, "lease"),
    },
    TokenAnswered: lambda event: {
        "claim": reasons.outcome(event.answer),
        "answer": reasons.answer(event.answer),
        "claim_id": event.claim_id,
        "claim_ms": round(event.took_s * 1000, 3),
    },
}
"""What an event of the container adds to the fields of every line of its step."""


def fields_of(record: Record, event: Event) -> dict[str, object]:
    """The fields of the line about ``event``."""
    fields: dict[str, object] = {
        "state": record.container.state,
        "was": event.was if isinstance(event, Moved) else record.container.state,
        "errors": record.evidence.errors,
        "kinds": record.evidence.kinds,
        "reason": _reason(record.container),
    }
    for each in record.events:
        fields |= FIELDS[type(each)](each) if type(each) in FIELDS else {}
    return fields


def _reason(container: Container) -> str:
    latched = container.latch.reason if container.latch else ""
    return latched if container.lease else reasons.verdict(container.verdict) or latched


FLEET_LINES: Final[Mapping[type[FleetEvent], EventLine]] = {
    StoreBack: EventLine(INFO, lambda _: "store reachable again"),
    CausePaused: EventLine(
        WARNING,
        lambda event: f"culls for {event.trial.cause} are paused: the last one did not help",
        lambda event: {
            "cause": event.trial.cause,
            "paused_s": round(event.trial.paused_s),
            "failures": event.trial.failures,
        },
    ),
    PauseEnded: EventLine(
        INFO, lambda event: f"the pause of culls for {event.cause} is over", lambda event: {"cause": event.cause}
    ),
    Duplicated: EventLine(
        WARNING,
        lambda _: "two containers run under this instance name: neither may be culled or retired until one is renamed",
    ),
    DuplicateEnded: EventLine(INFO, lambda _: "no other container runs under this instance name any more"),
    SettingsDiffer: EventLine(
        WARNING,
        lambda _: "sidecars of this service run with different settings, the strictest of each number holds",
        lambda event: {"settings": event.settings},
    ),
    ProcessUnknown: EventLine(WARNING, lambda _: words.UNKNOWN_PROCESS),
    DataLost: EventLine(
        WARNING,
        lambda _: "Redis lost its record of earlier culls",
        lambda event: {"alive": event.fleet.alive, "suspect": event.fleet.suspect, "down": event.fleet.down},
    ),
    HoldLost: EventLine(ERROR, lambda event: reasons.lost_hold(event.hold), lambda event: {"until": event.hold.until}),
    HoldBegan: EventLine(
        WARNING, lambda event: f"held: {reasons.hold(event.hold)}", lambda event: {"until": event.hold.until}
    ),
    HoldEnded: EventLine(WARNING, lambda _: "no hold any more"),
}
"""``StoreAway`` has a sampled line of its own, which repeats while the store is away."""


class Log:
    """Logs what it observes. ``plan``: the fleet's rotation; the log warns if it is impossible."""

    def __init__(self, clock: Callable[[], float] = time.monotonic, plan: RotationPlan | None = None) -> None:
        self._plan = plan
        self._falls_short = False
        self._clock = clock
        self._logged: dict[str, tuple[float, int]] = {}

    def observe(self, record: Record) -> None:
        """Log what has happened in a step, and (sampled) each answer to a request that is no grant."""
        for event in record.events:
            if line := LINES.get(type(event)):
                logger.log(line.level, line.text(event), extra={"fields": fields_of(record, event)})
            elif isinstance(event, (TokenAnswered, RetirementAnswered)):
                self._refused(event)

    def _refused(self, event: TokenAnswered | RetirementAnswered) -> None:
        """Log that there is no grant. A denied lease is no warning: waiting for a free slot is usual."""
        answer = event.answer
        if isinstance(answer, Granted):
            return
        outcome, word = reasons.outcome(answer), reasons.reason_word(answer)
        if isinstance(event, TokenAnswered):
            fields = {"claim": outcome, "reason": word, "claim_id": event.claim_id}
            self.sampled(f"claim {word}", WARNING, f"no token: {reasons.answer(answer)}", fields)
        else:
            level = WARNING if isinstance(answer, Unknown) else INFO
            fields = {"lease": outcome, "reason": word}
            sentence = reasons.answer(answer, "lease")
            self.sampled(f"lease {word}", level, f"no lease: {sentence}", fields)

    def beaten(self, record: BeatRecord) -> None:
        """Log what has happened to the fleet and, sampled, why a beat had no answer."""
        answer = record.answer
        if isinstance(answer, Unknown):
            text = f"store unreachable: {reasons.unreachable(answer)}: without a clear answer there is no token"
            self.sampled(f"warm {answer.error}", logging.WARNING, text, {"reason": answer.error})
        for event in record.events:
            if line := FLEET_LINES.get(type(event)):
                logger.log(line.level, line.text(event), extra={"fields": line.fields(event)})
        if isinstance(answer, Fleet):
            self._plan_ahead(answer)

    def _plan_ahead(self, fleet: Fleet) -> None:
        """Warn when the fleet has grown so large, or so small, that its retirements cannot keep up."""
        shortfall = self._plan.shortfall(fleet.alive + fleet.down) if self._plan else ""
        if bool(shortfall) is not self._falls_short:
            self._falls_short = bool(shortfall)
            logger.log(logging.WARNING if shortfall else logging.INFO, shortfall or "retirements can keep up again")

    def scraped(self, report: Sample | Missed) -> None:
        """Log, sampled, that the app's page could not be fetched."""
        if isinstance(report, Missed):
            self.sampled(f"scrape {report.cause}", logging.WARNING, "scrape failed", {"cause": report.cause})

    def failed(self, where: str, error: Exception, operation: str = "") -> None:
        """Log an exception that the sidecar survived, at most once a minute for each place and type."""
        where = f"{where} {operation}".strip()
        fields = {"where": where, "error": type(error).__name__, "detail": str(error)[:500]}
        trace = error if where == "step" else None
        self.sampled(f"{where} {type(error).__name__}", logging.ERROR, f"{where} failed", fields, trace)

    def sampled(
        self, key: str, level: int, text: str, fields: Mapping[str, object], error: Exception | None = None
    ) -> None:
        """Log ``text`` unless a line with this ``key`` was logged within the last minute."""
        now = self._clock()
        logged_at, swallowed = self._logged.get(key, (-SAMPLE_S, 0))
        if now - logged_at < SAMPLE_S:
            self._logged[key] = (logged_at, swallowed + 1)
            return
        self._logged[key] = (now, 0)
        more = {"swallowed": swallowed} if swallowed else {}
        logger.log(level, text, extra={"fields": {**fields, **more}}, exc_info=error)
