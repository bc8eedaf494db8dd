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
    """The app reports ``errors`` errors. With 0 it only announces ``app_start``, its id of its incarnation.

    ``version``: of the app, if it tells.
    """

    errors: int = 1
    level: ErrorLevel = ErrorLevel.SERVER_ERROR
    kind: str = "unknown"
    message: str | None = None
    fingerprint: str | None = None
    fatal: bool = False
    app_start: str | None = None
    version: str | None = None


class Results(NamedTuple):
    """The app reports the requests that succeeded and that failed since its last report.

    ``in_flight``: requests under way in the whole app, None if unknown. ``load``: how busy the app is, in any unit.
    """

    ok: int = 0
    failed: int = 0
    in_flight: int | None = None
    load: float | None = None


@dataclass(frozen=True, slots=True)
class Heartbeat:
    """The app reports that it is alive."""


class Sample(NamedTuple):
    """A scrape of the app's metrics page, as increments since the last one.

    ``errors`` by kind, ``requests`` in all; ``in_flight`` is a gauge. ``app_start``: the id of the
    incarnation, if the page has it. ``unknown``: series that decreased without a new process; they do not count.
    """

    errors: dict[str, int]
    requests: int = 0
    in_flight: float | None = None
    app_start: str | None = None
    unknown: int = 0


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
