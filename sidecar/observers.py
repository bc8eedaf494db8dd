"""Those who are told what happens: metrics and log, each of the same records and failures."""

from __future__ import annotations

import asyncio

from sidecar.answer.log import Log
from sidecar.answer.metrics import Metrics
from sidecar.core.records import Record
from sidecar.core.words import Missed, Report, Sample, Unknown


class Observers:
    """Metrics and log."""

    def __init__(self, metrics: Metrics, log: Log) -> None:
        self.metrics = metrics
        self.log = log

    def step(self, record: Record) -> None:
        """Tell one step of the arbiter."""
        self.metrics.observe(record)
        self.log.observe(record)

    def failed(self, where: str, error: Exception) -> None:
        """Tell a failure that the house survived."""
        self.metrics.failed(where)
        self.log.failed(where, error)

    def journal_failed(self, operation: str, error: Exception) -> None:
        """Tell that the state on disk could not be read or written."""
        self.metrics.failed("journal")
        self.log.failed(f"journal {operation}", error)

    def scraped(self, report: Report) -> None:
        """Tell how a scrape ended."""
        if isinstance(report, Missed):
            self.metrics.scraped(report.cause)
            self.log.scrape_missed(report.cause)
        elif isinstance(report, Sample):
            self.metrics.scraped("ok", report.unknown)

    def budget_warm(self, unknown: Unknown | None) -> None:
        """Tell whether the budget can be reached."""
        self.metrics.reachable.set(unknown is None)
        if unknown is not None:
            self.log.unreachable(unknown)

    def unhandled(self, _loop: asyncio.AbstractEventLoop, context: dict[str, object]) -> None:
        """Tell what asyncio found nobody else to tell."""
        error = context.get("exception")
        self.failed("door", error if isinstance(error, Exception) else RuntimeError(str(context.get("message"))))
