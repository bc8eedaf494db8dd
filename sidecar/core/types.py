"""Frozen values that several folders share; they have no behaviour.

Seconds are floats named ``*_s``, microseconds are ints named ``*_us``. Instants within the process (``at``, ``since``,
``due``) are on the controller's monotonic clock; instants that leave the process (``Latch.at``) are Unix time.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from enum import StrEnum
from typing import Any, Final, NamedTuple

US_PER_S: Final = 1_000_000


class State(StrEnum):
    """The states of a container. The transitions between them are the table in ``core.life.transitions``."""

    STARTING = "starting"
    UP = "up"
    SUSPECT = "suspect"
    RETIRING = "retiring"
    DRAINING = "draining"
    DOWN = "down"
    STOPPING = "stopping"


class Evidence(NamedTuple):
    """What the window holds at an instant. Ages are those of counted errors; None: there is none."""

    window_s: int
    errors: int = 0  # server errors of the last ``window_s`` seconds
    kinds: Mapping[str, int] = {}  # the same by kind
    levels: Mapping[str, int] = {}  # errors that are shown and do not count
    newest_age_s: int | None = None
    fatal: int = 0  # errors that the app cannot recover from
    requests: int = 0
    failed: int = 0  # failed ones of the requests
    kept_ok: int = 0  # successes just before the window, which count in the ratio
    heartbeat_age_s: float | None = None  # None before the first heartbeat
    failed_age_s: int | None = None  # of the newest failed request


class Reason(NamedTuple):
    """Why a detector fired: its name, the measured value, the limit that it reached, and a sentence for a person."""

    rule: str
    value: float
    limit: float
    sentence: str


class Verdict(NamedTuple):
    """The verdict of the detectors: excessive as soon as one of them gives a reason."""

    reasons: tuple[Reason, ...] = ()
    spared: str = ""  # a sentence about errors that reached a limit but are no more than chance; empty without any
    is_old: bool = False  # only errors speak against the app, and the last one is too old for a claim
    cause: str = ""  # the kind of most errors, or without errors the detector that fired; empty if it is fine

    @property
    def is_fine(self) -> bool:
        """Whether nothing speaks against the app."""
        return not self.reasons

    @property
    def word(self) -> str:
        """The verdict in one word."""
        return "fine" if self.is_fine else "excessive"


class Hold(NamedTuple):
    """A person froze culls of the service, or of one ``instance``, until ``until`` (Unix seconds)."""

    author: str
    reason: str
    until: float
    instance: str = ""


@dataclass(frozen=True, slots=True)
class Latch:
    """The persisted fact that this incarnation was granted a token, or a lease."""

    claim_id: str  # empty for a lease
    at: float  # Unix seconds
    reason: str
    lease: str = ""  # the holder of the lease; empty for a cull
    spent_s: float = 0.0  # seconds of the lease that had passed at ``at``


DETAIL_LIMIT: Final = 28_000
"""Maximum number of characters of a detail: enough for all kept samples and the output of the hook."""


class Entry(NamedTuple):
    """One entry of the ledger: what happened, to which instance, and why."""

    what: str  # one of ``ENTRY_WORDS``
    at: float = 0.0  # Unix seconds; 0: when it is written
    instance: str = ""
    kind: str = ""  # of the errors
    reason: str = ""
    author: str = ""
    seconds: float | None = None  # how long it took or lasts, where that matters
    detail: str = ""
    """A sentence for a person, and the evidence of a cull below it; at most ``DETAIL_LIMIT`` characters."""
    once: str = ""  # a key that is the same in all sidecars that see the event, so that only one of them writes it
    id: str = ""  # its id in the store
    node: str = ""  # of a container that was culled, as the next one
    app_version: str = ""


ENTRY_WORDS: Final = frozenset(
    {
        *("suspect", "recovered", "granted", "denied", "culled", "retired", "revived", "replaced", "restarted"),
        *("helped", "unhelped", "unclear", "paused", "data_loss", "duplicate", "not_honoured"),
        *("hold", "hold_lost", "release", "would_cull", "would_recover"),
        *("redis_away", "redis_back", "acted", "action_failed"),
    }
)
"""The values of ``Entry.what``."""


class Policy(NamedTuple):
    """The numbers by which the core judges and acts; a limit of 0 is no limit. The settings table explains them.

    ``outlier``: errors also have to be more than chance explains.
    ``retire_slots``: as ``LeaseRequest.slots``.
    """

    error_limit: int = 5
    kind_limits: tuple[tuple[str, int], ...] = ()
    error_ratio: float = 0.5
    heartbeat_timeout_s: float = 0.0
    outlier: bool = True
    check_interval_s: float = 10.0
    grace_s: float = 0.0
    settle_s: float = 3.0
    drain_s: float = 10.0
    lifetime_s: float = 0.0
    busy_load: float = 0.0
    retire_slots: str = "1"
    retire_timeout_s: float = 600.0
    enforce: bool = True


CLAIM_JITTER: Final = 0.25
"""A claim is delayed by up to this fraction, so that containers that become sick together do not claim together."""

CHECK_JITTER: Final = 0.1
"""A check comes earlier or later by up to this fraction of its interval: not all sidecars check at the same moment."""

LIFETIME_JITTER: Final = 0.1
"""A retirement comes earlier or later by up to this fraction of the lifetime."""


def by_name(value: Any) -> dict[str, Any]:
    """The fields of a dataclass by their names; ``dataclasses.asdict`` copies each value, at three times the time."""
    return {field.name: getattr(value, field.name) for field in fields(value)}
