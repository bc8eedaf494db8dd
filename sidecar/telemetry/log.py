"""The log: an observer that writes a line for each event that matters to a person.

A line that repeats is logged once a minute, with the number of repetitions that were left out.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Mapping
from typing import Final

from sidecar.core.explain import reasons
from sidecar.core.fleet.fleet_events import BeatRecord
from sidecar.core.fleet.rotation import RotationPlan
from sidecar.core.life.events import RetirementAnswered, TokenAnswered
from sidecar.core.life.snapshot import Record
from sidecar.core.types import Denied, Fleet, Granted, Missed, Report, Unknown
from sidecar.telemetry.log_lines import FLEET_LINES, LINES, fields_of
from sidecar.telemetry.observers import Failure

SAMPLE_S: Final = 60.0

logger: Final = logging.getLogger("sidecar")


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
            elif isinstance(event, TokenAnswered) and not isinstance(event.answer, Granted):
                self._no_token(event.answer, event.claim_id)
            elif isinstance(event, RetirementAnswered) and not isinstance(event.answer, Granted):
                self._no_lease(event.answer)

    def _no_token(self, answer: Denied | Unknown, claim_id: str) -> None:
        word = reasons.reason_word(answer)
        fields = {"claim": reasons.outcome(answer), "reason": word, "claim_id": claim_id}
        self.sampled(f"claim {word}", logging.WARNING, f"no token: {reasons.answer(answer)}", fields)

    def _no_lease(self, answer: Denied | Unknown) -> None:
        """Log it as a warning only if there was no answer: waiting for a free slot is usual."""
        word = reasons.reason_word(answer)
        level = logging.WARNING if isinstance(answer, Unknown) else logging.INFO
        fields = {"lease": reasons.outcome(answer), "reason": word}
        self.sampled(f"lease {word}", level, f"no lease: {reasons.lease(answer)}", fields)

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

    def scraped(self, report: Report) -> None:
        """Log, sampled, that the app's page could not be fetched."""
        if isinstance(report, Missed):
            self.sampled(f"scrape {report.cause}", logging.WARNING, "scrape failed", {"cause": report.cause})

    def failed(self, failure: Failure) -> None:
        """Log an exception that the sidecar survived, at most once a minute for each place and type."""
        where, error = f"{failure.where} {failure.operation}".strip(), failure.error
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
