"""Frozen values that several folders share; they have no behaviour.

Seconds are floats named ``*_s``, microseconds are ints named ``*_us``. Instants within the process (``at``, ``since``,
``due``) are on the controller's monotonic clock; instants that leave the process (``Latch.at``) are Unix time.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum
from typing import Final, NamedTuple

US_PER_S: Final = 1_000_000


class ErrorLevel(StrEnum):
    """What an error asks for (ClassDojo, "ERROR, WARN, and INFO aren't actionable logging levels")."""

    SERVER_ERROR = "server_error"
    CLIENT_ERROR = "client_error"
    INVESTIGATION = "investigation"
    RECOVERED = "recovered"


class State(StrEnum):
    """The states of a container. The transitions between them are the table in ``core.life.transitions``."""

    STARTING = "starting"
    UP = "up"
    SUSPECT = "suspect"
    RETIRING = "retiring"
    DRAINING = "draining"
    DOWN = "down"
    STOPPING = "stopping"


class Judgement(StrEnum):
    """The verdict of the detectors in one word."""

    FINE = "fine"
    EXCESSIVE = "excessive"


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


@dataclass(frozen=True, slots=True)
class Sample:
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
class AppExited:
    """The connection that the app keeps open while it lives was closed."""


@dataclass(frozen=True, slots=True)
class AppListening:
    """The app listens at its port; ``socket`` names the socket, which belongs to one incarnation."""

    socket: str


class Load(NamedTuple):
    """How busy the app was ``age_s`` seconds ago, in its own unit."""

    value: float
    age_s: float


Report = ErrorReport | Results | Heartbeat | Sample | Missed | AppExited | AppListening


@dataclass(frozen=True, slots=True)
class Evidence:
    """What the window holds at an instant. Ages are those of counted errors; None: there is none."""

    window_s: int
    errors: int = 0
    """Server errors of the last ``window_s`` seconds."""
    kinds: dict[str, int] = field(default_factory=dict)
    """The same by kind."""
    levels: dict[str, int] = field(default_factory=dict)
    """Errors that are shown and do not count."""
    newest_age_s: int | None = None
    fatal: int = 0
    """Errors that the app cannot recover from."""
    requests: int = 0
    failed: int = 0
    """Failed ones of the requests."""
    consecutive: int = 0
    """The last of them that failed in a row."""
    kept_ok: int = 0
    """Successes just before the window, which count in the ratio."""
    heartbeat_age_s: float | None = None
    """None before the first heartbeat."""
    missed_scrapes: int = 0
    """Failed scrapes since the last good one."""
    failed_age_s: int | None = None
    """Of the newest failed request."""


@dataclass(frozen=True, slots=True)
class Reason:
    """Why a detector fired: its name, the measured value, the limit that it reached, and a sentence for a person."""

    rule: str
    value: float
    limit: float
    sentence: str


@dataclass(frozen=True, slots=True)
class Verdict:
    """The verdict of the detectors: excessive as soon as one of them gives a reason.

    ``spared``: a sentence about errors that reached a limit but are no more than chance; empty if there are none.
    ``is_old``: only errors speak against the app, and the last one is too old for a claim. ``cause``: the kind of most
    errors, or without errors the detector that fired; empty if the verdict is fine.
    """

    judgement: Judgement
    reasons: tuple[Reason, ...] = ()
    spared: str = ""
    is_old: bool = False
    cause: str = ""


class Presence(StrEnum):
    """The state of a container as its sidecar reports it to the fleet with every beat."""

    STARTING = "starting"
    WELL = "well"
    SUSPECT = "suspect"
    DOWN = "down"
    GONE = "gone"


class Claim(NamedTuple):
    """A request for a token. A repeated claim keeps its ``claim_id``. ``cause``: the kind of most errors.

    ``identity``: the random word of the incarnation, which its sidecar keeps; empty if it has none. Two containers may
    have one name and one incarnation, because an app may report any text as that.
    """

    claim_id: str
    instance: str = ""
    incarnation: str = ""
    cause: str = "unknown"
    identity: str = ""


class LeaseRequest(NamedTuple):
    """The request for a lease to retire.

    ``slots``: number of leases, ``2``, or ``100p`` for 100 thousandths of the fleet. ``holder``: a random id of this
    lease. Its slot is free again at the latest ``timeout_s`` after the grant.
    """

    holder: str
    instance: str
    incarnation: str
    slots: str
    timeout_s: float


MANUAL: Final = "manual"
"""The cause of a cull that a person ordered."""

NAMELESS: Final = ("unnamed-", "after-")
"""Beginnings of the ids of incarnations that the app has not named: one found at the start, one that follows an exit.
The first id that the app reports names such an incarnation, and begins no other one.
"""


REVIVED: Final = "revived"
"""Beginning of the id of an incarnation that a person put back into service: nothing was replaced."""


class Beat(NamedTuple):
    """A sidecar's sign of life, and what the fleet needs to know about its container."""

    instance: str
    incarnation: str
    presence: Presence
    cause: str = "unknown"
    """Of a suspect, or of a container that is down."""
    claim_id: str = ""
    """The token of a container that is down."""
    first: bool = False
    """The store has not answered a beat of this sidecar yet."""
    lease: str = ""
    """The holder of the lease of a container that is down for its retirement."""
    about: str = ""
    """The description of the container for people (``core.fleet.members.About``); empty: that of the last beat."""
    errors: int = 0
    """Server errors in the window now."""
    ratio: int | None = None
    """Failed requests per million, None if too few are known."""
    refused: bool = False
    """A suspect that was denied a token."""
    identity: str = ""
    """As in ``Claim``."""


@dataclass(frozen=True, slots=True)
class Hold:
    """A person froze culls of the service, or of one ``instance``, until ``until`` (Unix seconds)."""

    author: str
    reason: str
    until: float
    instance: str = ""


class CauseTrial(NamedTuple):
    """The trial of culls for one cause: ``out`` of at most ``limit`` culls have no outcome yet.

    ``paused_s``: seconds until the next cull for this cause, because the last one did not help; 0: not paused.
    ``failures``: culls in a row that did not help. ``since``: Unix seconds at which the episode began in which the
    limit was earned; 0: the cause has no episode now.
    """

    cause: str
    limit: int
    out: int
    paused_s: float = 0.0
    failures: int = 0
    since: float = 0.0


class RecurringCause(NamedTuple):
    """A cause for which containers are culled on several days of a week; instants in Unix seconds."""

    cause: str
    since: float
    """The first cull of the series."""
    recurs: float
    """The cull on the third day of seven."""
    last: float
    """The last cull."""
    culls: int
    days: int
    """Days with culls, in UTC."""
    out_s: float
    """How long culled containers were out of service, until they were replaced."""


@dataclass(frozen=True, slots=True)
class Fleet:
    """The fleet, as the store's answer to a beat describes it."""

    alive: int
    """Containers that serve or start."""
    suspect: int = 0
    """Those of them that are suspect."""
    down: int = 0
    """Culled or retired containers that are not replaced yet."""
    cause: str = ""
    """The cause that most suspects share, if any."""
    trials: tuple[CauseTrial, ...] = ()
    """The causes with culls."""
    policies: int = 1
    """Number of different settings in force."""
    losses: int = 0
    """Number of data losses of the store."""
    helped: int = 0
    """Culls so far by outcome, as the next two."""
    unhelped: int = 0
    unclear: int = 0
    hold: Hold | None = None
    retiring: int = 0
    """Leases in use."""
    culls_by: tuple[tuple[str, str, int], ...] = ()
    """Outcome, cause, and number of culls."""
    used: int = 0
    """Tokens in use."""
    capacity: int = 0
    """Tokens in all; 0: not known."""
    median_errors: int | None = None
    """Median of the members' errors in the window; None in a fleet of fewer than three, as the next one."""
    median_ratio: float | None = None
    """Median of the parts of their requests that failed, from 0 to 1."""
    duplicate: bool = False
    """Another container beats under the instance name of this one."""
    tells_process: bool = True
    """The store tells its process, so that its restart is noticed."""
    lost_hold: Hold | None = None
    """This sidecar saw it in force, and the store has lost it."""
    recurring: tuple[RecurringCause, ...] = ()
    """The causes that recur."""
    draining: int = 0
    """Of ``down``: containers that still drain, as far as their sidecars say."""

    @property
    def paused(self) -> tuple[str, ...]:
        """The causes for which culls are paused, because the last one did not help."""
        return tuple(trial.cause for trial in self.trials if trial.paused_s > 0)


@dataclass(frozen=True, slots=True)
class Granted:
    """A token, or a lease. ``replayed``: this claim was granted before, and costs no second token.

    ``alive`` and ``suspect`` are 0 where no fleet is known. ``left_s``: remaining time of a lease; None for a token.
    """

    used: int
    capacity: int
    replayed: bool = False
    alive: int = 0
    suspect: int = 0
    left_s: float | None = None


@dataclass(frozen=True, slots=True)
class Denied:
    """No token: ``reason`` is a word of ``words.REFUSALS``; asking again before ``retry_after_s`` is of no use.

    ``cause``: the cause that most suspects share, if any. ``hold``: the hold that refused. ``is_other_process``: the
    store was restarted or failed over shortly before.
    """

    reason: str
    used: int
    capacity: int
    retry_after_s: float
    alive: int = 0
    suspect: int = 0
    cause: str = ""
    hold: Hold | None = None
    is_other_process: bool = False


@dataclass(frozen=True, slots=True)
class Unknown:
    """No clear answer, therefore no token."""

    error: str
    """A word of ``words.FAILURES``."""

    said: str = field(default="", compare=False)
    """The address, and what Redis or the network said; for the log and for operators, never for strangers."""


Answer = Granted | Denied | Unknown


@dataclass(frozen=True, slots=True)
class Latch:
    """The persisted fact that this incarnation was granted a token, or a lease. ``at`` is Unix time in seconds.

    ``lease``: the holder of a lease, which has no ``claim_id``; empty for a cull. ``spent_s``: seconds of the lease
    that had passed at ``at``.
    """

    claim_id: str
    at: float
    reason: str
    lease: str = ""
    spent_s: float = 0.0


class RandomIdentity(NamedTuple):
    """The random values of an incarnation: the holder of its lease, and from 0 to 1 the jitter of its lifetime."""

    holder: str = ""
    part: float = 0.5


NO_IDENTITY: Final = RandomIdentity()
"""The identity of an incarnation that is never retired."""


DETAIL_LIMIT: Final = 28_000
"""Maximum number of characters of a detail: enough for all kept samples and the output of the hook."""


class Entry(NamedTuple):
    """One entry of the ledger: what happened, to which instance, and why."""

    what: str
    """One of ``ENTRY_WORDS``."""
    at: float = 0.0
    """Unix seconds; 0: when it is written."""
    instance: str = ""
    kind: str = ""
    """Of the errors."""
    reason: str = ""
    author: str = ""
    seconds: float | None = None
    """How long it took or lasts, where that matters."""
    detail: str = ""
    """A sentence for a person, and the evidence of a cull below it; at most ``DETAIL_LIMIT`` characters."""
    once: str = ""
    """A key that is the same in all sidecars that see the event, so that only one of them writes it."""
    id: str = ""
    """Its id in the store."""
    node: str = ""
    """Of a container that was culled, as the next one."""
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


@dataclass(frozen=True, slots=True)
class Policy:
    """The numbers by which the core judges and acts; a limit of 0 is no limit. The settings table explains them.

    ``outlier``: errors also have to be more than chance explains.
    ``retire_slots``: as ``LeaseRequest.slots``.
    """

    error_limit: int = 5
    kind_limits: tuple[tuple[str, int], ...] = ()
    error_ratio: float = 0.5
    consecutive_limit: int = 0
    heartbeat_timeout_s: float = 0.0
    scrape_down_after: int = 0
    outlier: bool = True
    check_interval_s: float = 10.0
    grace_s: float = 0.0
    settle_s: float = 3.0
    drain_s: float = 10.0
    lifetime_s: float = 0.0
    lifetime_max_s: float = 0.0
    busy_load: float = 0.0
    retire_slots: str = "1"
    retire_timeout_s: float = 600.0
    enforce: bool = True
