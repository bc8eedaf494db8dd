"""Those who are told what happens: metrics and log, each of the same records and failures."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from sidecar.core.life.snapshot import Record
from sidecar.core.types import Fleet, Missed, Report, Sample, Unknown
from sidecar.telemetry.log import Log
from sidecar.telemetry.metrics import Metrics


class Observers:
    """Metrics, log, and whoever else wants to know of the steps."""

    def __init__(self, metrics: Metrics, log: Log) -> None:
        self.metrics = metrics
        self.log = log
        self._others: list[Callable[[Record], None]] = []
        self._hearers: list[Callable[[Fleet | Unknown], None]] = []

    def also(self, observe: Callable[[Record], None]) -> None:
        """Tell another one of every step."""
        self._others.append(observe)

    def also_beaten(self, hear: Callable[[Fleet | Unknown], None]) -> None:
        """Tell another one what came of every beat."""
        self._hearers.append(hear)

    def step(self, record: Record) -> None:
        """Tell one step of the arbiter."""
        self.metrics.observe(record)
        self.log.observe(record)
        for observe in self._others:
            observe(record)

    def failed(self, where: str, error: Exception) -> None:
        """Tell a failure that the sidecar survived."""
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

    def beaten(self, answer: Fleet | Unknown) -> None:
        """Tell what came of a beat."""
        self.metrics.beaten(answer)
        if isinstance(answer, Fleet):
            self.log.reachable()
            self.log.fleet(answer)
        else:
            self.log.unreachable(answer)
        for hear in self._hearers:
            hear(answer)

    def unhandled(self, _loop: asyncio.AbstractEventLoop, context: dict[str, object]) -> None:
        """Tell what asyncio found nobody else to tell."""
        error = context.get("exception")
        self.failed("door", error if isinstance(error, Exception) else RuntimeError(str(context.get("message"))))
