"""Log and metrics, and the observers: functions that get the same frozen record of each thing that happens."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

    from sidecar.core.app_reports import Missed, Sample
    from sidecar.core.fleet.fleet_events import BeatRecord
    from sidecar.core.life.snapshot import Record
    from sidecar.core.types import Entry
    from sidecar.telemetry.log import Log
    from sidecar.telemetry.metrics import Metrics


class Observers:
    """The observers of one sidecar, by what they observe. ``app`` adds further ones. An observer must not block."""

    def __init__(self, *observers: Log | Metrics) -> None:
        self.steps: list[Callable[[Record], None]] = [each.observe for each in observers]  # each step of the controller
        self.beats: list[Callable[[BeatRecord], None]] = [each.beaten for each in observers]  # the answer to each beat
        self.scrapes: list[Callable[[Sample | Missed], None]] = [each.scraped for each in observers]
        """Each scrape of the app's page."""
        self.actions: list[Callable[[Entry], None]] = []  # the result of each action that was asked for
        self.failures: list[Callable[[str, Exception, str], None]] = [each.failed for each in observers]
        """As ``failed``."""

    def step(self, record: Record) -> None:
        """Pass on one step of the controller."""
        for observe in self.steps:
            observe(record)

    def beat(self, record: BeatRecord) -> None:
        """Pass on the answer to a beat."""
        for observe in self.beats:
            observe(record)

    def scrape(self, scraped: Sample | Missed) -> None:
        """Pass on the result of a scrape."""
        for observe in self.scrapes:
            observe(scraped)

    def acted(self, entry: Entry) -> None:
        """Pass on the result of an action."""
        for observe in self.actions:
            observe(entry)

    def failed(self, where: str, error: Exception, operation: str = "") -> None:
        """Pass on an exception that the sidecar survived. ``where`` is the metric's label; ``operation`` says more."""
        for observe in self.failures:
            observe(where, error, operation)
