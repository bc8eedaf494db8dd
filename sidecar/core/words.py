"""The words of the house: frozen values that every room shares, and no behaviour.

Seconds are floats named ``*_s``; microseconds are ints named ``*_us``. Instants of this process (``at``,
``since``, ``due``) are on the monotonic clock that the hall hands out; instants that leave the process
(``Latch.at``) are Unix time.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum
from typing import NamedTuple


class Level(StrEnum):
    """How an error is to be taken (ClassDojo, "ERROR, WARN, and INFO aren't actionable logging levels")."""

    SERVER_ERROR = "server_error"
    CLIENT_ERROR = "client_error"
    INVESTIGATION = "investigation"
    RECOVERED = "recovered"


class State(StrEnum):
    """Where the container stands. The moves between them are the table in ``arbiter.py``."""

    STARTING = "starting"
    UP = "up"
    SUSPECT = "suspect"
    DRAINING = "draining"
    DOWN = "down"
    STOPPING = "stopping"


class Judgement(StrEnum):
    """What the detectors make of the evidence, in one word."""

    FINE = "fine"
    EXCESSIVE = "excessive"


class Ping(NamedTuple):
    """One report by the app of ``errors`` errors; 0 only announces ``app_start``."""

    errors: int = 1
    level: Level = Level.SERVER_ERROR
    kind: str = "unknown"
    message: str | None = None
    fingerprint: str | None = None
    fatal: bool = False
    app_start: str | None = None


class Results(NamedTuple):
    """One report by the app of requests that went well and requests that failed."""

    ok: int = 0
    failed: int = 0


@dataclass(frozen=True, slots=True)
class Heartbeat:
    """The app says that it is alive, and nothing else."""


@dataclass(frozen=True, slots=True)
class Sample:
    """One scrape turned into increments since the last one.

    ``errors`` by kind, ``requests`` in all; ``in_flight`` is a level and no increment. ``app_start`` names the
    incarnation, if the page tells. ``unknown`` counts series that went back without a new process: they count nothing.
    """

    errors: dict[str, int]
    requests: int = 0
    in_flight: float | None = None
    app_start: str | None = None
    unknown: int = 0


@dataclass(frozen=True, slots=True)
class Missed:
    """A scrape that failed; ``cause`` is the machine's word (``timeout``, ``connection``, ``status``, ...)."""

    cause: str


@dataclass(frozen=True, slots=True)
class Gone:
    """The connection that the app held open for as long as it lives has closed."""


Report = Ping | Results | Heartbeat | Sample | Missed | Gone


@dataclass(frozen=True, slots=True)
class Evidence:
    """What the window holds at an instant.

    ``errors`` counts server errors over the last ``window_s`` seconds; ``kinds`` splits the same number, ``levels`` has
    what is kept and does not count. Ages are of the oldest and the newest counted error. ``fatal`` of the errors were
    said to be beyond recovery. ``failed`` of the window's ``requests`` went wrong, the last ``consecutive`` of them in
    a row; ``kept_ok`` that went well just before weigh in their ratio. ``heartbeat_age_s`` is None until one was heard;
    ``missed_scrapes`` are those since the last good one,
    ``missed_cause`` is why the newest of them failed.
    """

    window_s: int
    errors: int = 0
    kinds: dict[str, int] = field(default_factory=dict)
    levels: dict[str, int] = field(default_factory=dict)
    oldest_age_s: int | None = None
    newest_age_s: int | None = None
    fatal: int = 0
    requests: int = 0
    failed: int = 0
    consecutive: int = 0
    kept_ok: int = 0
    heartbeat_age_s: float | None = None
    missed_scrapes: int = 0
    missed_cause: str | None = None


@dataclass(frozen=True, slots=True)
class Reason:
    """Why a rule spoke: the rule's word, its number, the limit it met, and a sentence for a person."""

    rule: str
    value: float
    limit: float
    sentence: str


@dataclass(frozen=True, slots=True)
class Verdict:
    """The detectors' answer: excessive as soon as one rule gives a reason."""

    judgement: Judgement
    reasons: tuple[Reason, ...] = ()


@dataclass(frozen=True, slots=True)
class Granted:
    """A token is ours. ``replayed``: this claim id had been granted before, and cost nothing now."""

    used: int
    capacity: int
    replayed: bool = False


@dataclass(frozen=True, slots=True)
class Denied:
    """No token: ``reason`` is the machine's word; asking again before ``retry_after_s`` is of no use."""

    reason: str
    used: int
    capacity: int
    retry_after_s: float


@dataclass(frozen=True, slots=True)
class Unknown:
    """No clear answer, therefore no token. ``error`` is the machine's word (``timeout``, ``auth``, ...)."""

    error: str


Answer = Granted | Denied | Unknown


@dataclass(frozen=True, slots=True)
class Latch:
    """The persisted fact that this incarnation was granted a token. ``at`` is Unix time in seconds."""

    claim_id: str
    at: float
    reason: str


@dataclass(frozen=True, slots=True)
class Policy:
    """The numbers the core judges and moves by; a limit of 0 is no limit. Their meaning: the settings table."""

    error_limit: int = 5
    kind_limits: tuple[tuple[str, int], ...] = ()
    error_ratio: float = 0.5
    ratio_min_requests: int = 20
    consecutive_limit: int = 0
    heartbeat_timeout_s: float = 0.0
    scrape_down_after: int = 0
    confirm: int = 1
    min_age_s: float = 0.0
    check_interval_s: float = 10.0
    grace_s: float = 0.0
    settle_s: float = 3.0
    drain_s: float = 10.0
    enforce: bool = True
