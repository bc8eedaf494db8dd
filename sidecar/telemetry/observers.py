"""Calls the observers: each function in a list gets the same frozen record.

``app.build`` fills the lists. Nothing here knows metrics, the log or the other observers.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from sidecar.core.app_reports import Report
from sidecar.core.fleet.fleet_events import BeatRecord
from sidecar.core.life.snapshot import Record
from sidecar.core.types import Entry


class Failure(NamedTuple):
    """An exception that the sidecar survived. ``where`` is the label of the metric; ``operation`` says more."""

    where: str
    error: Exception
    operation: str = ""


class Observers:
    """The observers of one sidecar, by what they observe. An observer must not block.

    ``steps`` take the record of each step of the controller, ``beats`` the answer to each beat, ``scrapes`` each scrape
    of the app's page, ``actions`` the entry about each action that was asked for, and ``failures`` each exception that
    the sidecar survived.
    """

    def __init__(self) -> None:
        self.steps: list[Callable[[Record], None]] = []
        self.beats: list[Callable[[BeatRecord], None]] = []
        self.scrapes: list[Callable[[Report], None]] = []
        self.actions: list[Callable[[Entry], None]] = []
        self.failures: list[Callable[[Failure], None]] = []

    def step(self, record: Record) -> None:
        """Pass on one step of the controller."""
        for observe in self.steps:
            observe(record)

    def beat(self, record: BeatRecord) -> None:
        """Pass on the answer to a beat."""
        for observe in self.beats:
            observe(record)

    def scrape(self, report: Report) -> None:
        """Pass on the result of a scrape."""
        for observe in self.scrapes:
            observe(report)

    def acted(self, entry: Entry) -> None:
        """Pass on the result of an action."""
        for observe in self.actions:
            observe(entry)

    def failed(self, where: str, error: Exception, operation: str = "") -> None:
        """Pass on an exception."""
        failure = Failure(where, error, operation)
        for observe in self.failures:
            observe(failure)
