"""What is known of an app: its own reports, samples of its metrics, and what the sidecar notices of it.

The values are frozen and have no behaviour. Counts are whole numbers, ratios are from 0 to 1.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import NamedTuple


class ErrorLevel(StrEnum):
    """What an error asks for (ClassDojo, "ERROR, WARN, and INFO aren't actionable logging levels")."""

    SERVER_ERROR = "server_error"
    CLIENT_ERROR = "client_error"
    INVESTIGATION = "investigation"
    RECOVERED = "recovered"


class ErrorReport(NamedTuple):
    """The app reports ``errors`` errors. With 0 it only announces ``app_start``."""

    errors: int = 1
    level: ErrorLevel = ErrorLevel.SERVER_ERROR
    kind: str = "unknown"
    message: str | None = None
    fingerprint: str | None = None
    fatal: bool = False  # the app cannot recover from it
    app_start: str | None = None  # the app's id of its incarnation
    version: str | None = None  # of the app


class Results(NamedTuple):
    """The app reports the requests that succeeded and that failed since its last report."""

    ok: int = 0
    failed: int = 0
    in_flight: int | None = None  # requests under way in the whole app; None if unknown
    load: float | None = None  # how busy the app is, in any unit


@dataclass(frozen=True, slots=True)
class Heartbeat:
    """The app reports that it is alive."""


class Sample(NamedTuple):
    """A scrape of the app's metrics page, as increments since the last one."""

    errors: dict[str, int]  # by kind
    requests: int = 0  # in all
    in_flight: float | None = None  # a gauge
    app_start: str | None = None  # the id of the incarnation, if the page has it
    unknown: int = 0  # series that decreased without a new process; they do not count


@dataclass(frozen=True, slots=True)
class Missed:
    """A scrape that failed; ``cause`` is one of the words of ``inputs.scrape`` (``timeout``, ``connection``, ...)."""

    cause: str


@dataclass(frozen=True, slots=True)
class AppListening:
    """The app listens at its port; ``socket`` names the socket, which belongs to one incarnation."""

    socket: str


class Load(NamedTuple):
    """How busy the app was ``age_s`` seconds ago, in its own unit."""

    value: float
    age_s: float


Report = ErrorReport | Results | Heartbeat | Sample | AppListening
