"""The words of the sidecar: frozen values that every room shares, and no behaviour.

Seconds are floats named ``*_s``; microseconds are ints named ``*_us``. Instants of this process (``at``,
``since``, ``due``) are on the monotonic clock that the controller hands out; instants that leave the process
(``Latch.at``) are Unix time.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum
from typing import Final, NamedTuple

US_PER_S: Final = 1_000_000


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
    RETIRING = "retiring"
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
    """One report by the app of requests that went well and requests that failed, since the last one.

    ``in_flight``: how many are under way in the whole app now, if it says so. ``load``: how busy it is, in any unit.
    """

    ok: int = 0
    failed: int = 0
    in_flight: int | None = None
    load: float | None = None


@dataclass(frozen=True, slots=True)
class Heartbeat:
    """The app says that it is alive, and nothing else."""


@dataclass(frozen=True, slots=True)
class Sample:
    """One scrape turned into increments since the last one.

    ``errors`` by kind, ``requests`` in all; ``in_flight`` and ``load`` are levels and no increments. ``app_start``
    names the incarnation, if the page tells. ``unknown`` counts series that went back without a new process: they
    count nothing.
    """

    errors: dict[str, int]
    requests: int = 0
    in_flight: float | None = None
    app_start: str | None = None
    unknown: int = 0
    load: float | None = None


@dataclass(frozen=True, slots=True)
class Missed:
    """A scrape that failed; ``cause`` is the machine's word (``timeout``, ``connection``, ``status``, ...)."""

    cause: str


@dataclass(frozen=True, slots=True)
class AppExited:
    """The connection that the app held open for as long as it lives has closed."""


class Load(NamedTuple):
    """How busy the app said it was, in whatever unit it counts, so many seconds ago."""

    value: float
    age_s: float


Report = Ping | Results | Heartbeat | Sample | Missed | AppExited


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
    """The detectors' answer: excessive as soon as one rule gives a reason.

    ``spared``: a sentence on errors that are over a limit and no more than chance; empty if there are none.
    """

    judgement: Judgement
    reasons: tuple[Reason, ...] = ()
    spared: str = ""


class Presence(StrEnum):
    """What a sidecar tells the fleet of its container with every beat."""

    STARTING = "starting"
    WELL = "well"
    SUSPECT = "suspect"
    DOWN = "down"
    GONE = "gone"


class Claim(NamedTuple):
    """The request for a token: ``claim_id`` names it however often it is asked; ``kind`` has most of the errors."""

    claim_id: str
    instance: str = ""
    incarnation: str = ""
    kind: str = "unknown"


class Lease(NamedTuple):
    """The request to retire under one of ``slots``: ``2``, or ``100p`` for so many thousandths of the fleet.

    ``holder`` is a random word that names this lease for its whole life. ``timeout_s`` after the grant its slot is
    free again, whatever became of the container.
    """

    holder: str
    instance: str
    incarnation: str
    slots: str
    timeout_s: float


MANUAL: Final = "manual"
"""The kind of error of a container that is culled because a person says so."""


class Beat(NamedTuple):
    """A sign of life of one sidecar, and what the fleet needs to know of its container.

    ``kind``: the cause, of a suspect or of a container that is down. ``errors``: server errors in the window now.
    ``ratio``: failed requests of the window per million, None where too few requests are known. ``refused``: a suspect
    that was denied a token since it became one. ``first``: no beat of this sidecar has been answered yet.
    ``claim_id``: the token of a container that is down; ``lease``: the holder word of one that retired, and is down.
    ``about``: an ``About`` as ``members.py`` packs it, if it is news.
    """

    instance: str
    incarnation: str
    presence: Presence
    kind: str = "unknown"
    claim_id: str = ""
    first: bool = False
    lease: str = ""
    about: str = ""
    errors: int = 0
    ratio: int | None = None
    refused: bool = False


@dataclass(frozen=True, slots=True)
class Hold:
    """A freeze set by a person, until ``until`` (Unix seconds); of the whole service unless it names an instance."""

    author: str
    reason: str
    until: float
    instance: str = ""


class Outcome(StrEnum):
    """Whether a cull helped."""

    HELPED = "helped"
    UNHELPED = "unhelped"
    UNCLEAR = "unclear"


class CauseTrial(NamedTuple):
    """How culls for one cause are tried: ``out`` of at most ``limit`` are without an outcome.

    ``paused_s``: seconds until the next cull for this cause, because the last one did not help; 0: not paused.
    ``failures``: culls in a row that did not help.
    """

    cause: str
    limit: int
    out: int
    paused_s: float = 0.0
    failures: int = 0


@dataclass(frozen=True, slots=True)
class Fleet:
    """The fleet, as the store's answer to the last beat has it.

    ``alive`` serve or start, ``suspect`` of them are excessive, ``down`` are culled or retired and not replaced yet.
    ``cause``: the cause that most suspects share, if they do. ``trials``: every cause that culls are being tried for.
    ``policies``: how many different settings the sidecars run with. ``losses``: how often the store lost its memory.
    ``helped``, ``unhelped`` and ``unclear``: culls so far by outcome; ``culls_by``: (outcome, cause, culls) of them.
    ``away``: of several servers those that did not answer, each with the machine's word for why. ``retiring``: leases
    in use. ``used`` of ``capacity`` tokens as an answer to a claim has them; a capacity of 0: not told.
    ``median_errors``: of the members' errors in the window; ``median_ratio``: of their error ratios, from 0 to 1; None
    for a fleet of fewer than three. ``duplicate``: another life beats under this container's instance name.
    """

    alive: int
    suspect: int = 0
    down: int = 0
    cause: str = ""
    trials: tuple[CauseTrial, ...] = ()
    policies: int = 1
    losses: int = 0
    helped: int = 0
    unhelped: int = 0
    unclear: int = 0
    hold: Hold | None = None
    away: tuple[str, ...] = ()
    retiring: int = 0
    culls_by: tuple[tuple[str, str, int], ...] = ()
    used: int = 0
    capacity: int = 0
    median_errors: int | None = None
    median_ratio: float | None = None
    duplicate: bool = False

    @property
    def paused(self) -> tuple[str, ...]:
        """The causes for which culls are paused, because the last one did not help."""
        return tuple(trial.cause for trial in self.trials if trial.paused_s > 0)


class About(NamedTuple):
    """What a sidecar tells of its container, for a person: its state ``since`` (Unix seconds), and what led to it.

    ``weight`` in percent; ``errors`` in the window against their ``limit``; ``version`` of the sidecar; ``born``: Unix
    seconds at which the incarnation began, 0 if that is not told.
    """

    state: State
    since: int
    incarnation: str
    weight: int
    errors: int
    limit: int
    version: str
    born: int = 0


class Member(NamedTuple):
    """One container of the fleet: ``well``, ``suspect`` or ``down``; ``age_s`` since it was heard of, or culled.

    ``about`` is what its sidecar told last, None where that is not known. ``duplicate``: two lives beat under its name.
    """

    instance: str
    presence: Presence
    kind: str
    age_s: float
    about: About | None = None
    duplicate: bool = False


MOST_GRANTS: Final = 100
"""So many tokens in use a roll tells the time of."""

MOST_DEPARTED: Final = 100
"""So many of those who departed a roll names."""


class Roll(NamedTuple):
    """The fleet member by member, for a person: the first of them by name, and all holds.

    ``used`` tokens count by the sliding log of the caller's own window. ``policies``: the different settings in force,
    each as JSON.
    ``grants``: Unix seconds at which tokens in use were taken, ascending: the first ``MOST_GRANTS`` to come back.
    ``departed``: who fell silent or said goodbye within the window, and whose place nobody took, each with the seconds
    since; the newest ``MOST_DEPARTED`` first.
    """

    fleet: Fleet
    used: int
    members: tuple[Member, ...] = ()
    holds: tuple[Hold, ...] = ()
    policies: tuple[str, ...] = ()
    grants: tuple[float, ...] = ()
    departed: tuple[tuple[str, float], ...] = ()


@dataclass(frozen=True, slots=True)
class Granted:
    """A token is ours. ``replayed``: this claim id had been granted before, and cost nothing now.

    ``alive`` and ``suspect`` are 0 where no fleet is known. ``left_s``: how long a lease lasts from now on; None of a
    token.
    """

    used: int
    capacity: int
    replayed: bool = False
    alive: int = 0
    suspect: int = 0
    left_s: float | None = None


@dataclass(frozen=True, slots=True)
class Denied:
    """No token: ``reason`` is the machine's word; asking again before ``retry_after_s`` is of no use.

    ``cause``: the cause that most suspects share, if they do. ``hold``: the one that refused.
    """

    reason: str
    used: int
    capacity: int
    retry_after_s: float
    alive: int = 0
    suspect: int = 0
    cause: str = ""
    hold: Hold | None = None


@dataclass(frozen=True, slots=True)
class Unknown:
    """No clear answer, therefore no token. ``error`` is the machine's word (``timeout``, ``auth``, ...)."""

    error: str


Answer = Granted | Denied | Unknown


@dataclass(frozen=True, slots=True)
class Latch:
    """The persisted fact that this incarnation was granted a token, or a lease. ``at`` is Unix time in seconds.

    ``lease``: the holder word of a retirement, which has no ``claim_id``; empty for a cull. ``spent_s``: so much of its
    time the lease had spent by then.
    """

    claim_id: str
    at: float
    reason: str
    lease: str = ""
    spent_s: float = 0.0


class RandomIdentity(NamedTuple):
    """What chance gives a life, once: the word that holds its lease, and from 0 to 1 where in its jitter it ends."""

    holder: str = ""
    part: float = 0.5


NO_IDENTITY: Final = RandomIdentity()
"""Of a life to which chance gives nothing."""


DETAIL_LIMIT: Final = 28_000
"""Of an entry: all samples that are kept, and all that is kept of what a hook prints."""


class Entry(NamedTuple):
    """One line of the ledger: ``what`` happened ``at`` (Unix seconds), to whom, and why.

    ``kind``: of the errors. ``seconds``: how long it took or lasts, where that says something. ``detail``: a sentence
    for a person, and in the lines below it the evidence of a cull; ``DETAIL_LIMIT`` characters at most. ``once``: a
    word that the sidecars who see the same share, for one of them to write it. ``id``: where it stands in the store;
    empty before.
    """

    what: str
    at: float = 0.0
    instance: str = ""
    kind: str = ""
    reason: str = ""
    author: str = ""
    seconds: float | None = None
    detail: str = ""
    once: str = ""
    id: str = ""


@dataclass(frozen=True, slots=True)
class Policy:
    """The numbers the core judges and moves by; a limit of 0 is no limit. Their meaning: the settings table.

    ``outlier``: errors also have to be more than chance explains. ``soft_drain``: the weight of a suspect is lowered.
    ``drain_min_s``: how long after its beginning a drain may end early; HAProxy asks every 2 s, and needs to connect.
    ``retire_slots`` as ``Lease.slots``.
    """

    error_limit: int = 5
    kind_limits: tuple[tuple[str, int], ...] = ()
    error_ratio: float = 0.5
    ratio_min_requests: int = 20
    consecutive_limit: int = 0
    heartbeat_timeout_s: float = 0.0
    scrape_down_after: int = 0
    outlier: bool = True
    confirm: int = 1
    min_age_s: float = 0.0
    check_interval_s: float = 10.0
    grace_s: float = 0.0
    settle_s: float = 3.0
    soft_drain: bool = True
    drain_s: float = 10.0
    drain_min_s: float = 3.0
    lifetime_s: float = 0.0
    lifetime_jitter: float = 0.1
    lifetime_max_s: float = 0.0
    busy_load: float = 0.0
    retire_slots: str = "1"
    retire_timeout_s: float = 600.0
    enforce: bool = True
