"""The arithmetic of the report: entries of the ledger in, numbers out. No clock, no I/O."""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from math import ceil, inf
from typing import Final, NamedTuple

from sidecar.controller.ledger_entries import ORDERED
from sidecar.core.types import Entry

DAY_S: Final = 86_400.0
PEAK_S: Final = 600.0
"""The default of the budget's window, for the most tokens at once."""

SHADOW: Final = "shadow"
NOTABLE: Final = (
    *("not_honoured", "action_failed", "paused", "revived", "restarted", "duplicate", "data_loss", "redis_away"),
)
"""Words of the ledger that the report counts beside culls, refusals and retirements."""

ALL: Final = 100


class Cause(NamedTuple):
    """Culls for one kind of errors, and the outcomes that are known."""

    kind: str
    culls: int = 0
    helped: int = 0
    unhelped: int = 0
    unclear: int = 0


@dataclass(frozen=True, slots=True)
class Times:
    """How long something took, in seconds: median, 95th percentile (nearest rank) and maximum."""

    count: int = 0
    p50: float = 0.0
    p95: float = 0.0
    longest: float = 0.0


NO_TIMES: Final = Times()


class Notable(NamedTuple):
    """One kind of event: how often, and to which containers or causes."""

    what: str
    times: int
    names: tuple[str, ...]


class HoldPeriod(NamedTuple):
    """A hold of an instance, or of the service (``""``), for ``seconds`` unless it was released before."""

    at: float
    author: str
    reason: str
    instance: str
    seconds: float
    released_at: float | None = None


@dataclass(frozen=True, slots=True)
class FleetReport:
    """What happened in a time; while ``enforce_percent`` is below 100, to the containers with this ``mode``."""

    service: str
    mode: str
    since: float
    until: float
    """When it was written; all times are Unix seconds."""
    entries: int = 0
    first_at: float | None = None
    """The time of the oldest entry."""
    culls: int = 0
    ordered: int = 0
    """Culls that operators ordered."""
    causes: tuple[Cause, ...] = ()
    replaced_s: Times = NO_TIMES
    """Time from the token to the replacement; none in shadow mode."""
    refusals: tuple[tuple[str, int], ...] = ()
    suspects: int = 0
    near_misses: int = 0
    """Suspects that recovered before they were culled."""
    would_culls: int = 0
    """Culls in shadow mode."""
    would_recover: int = 0
    """How many of those containers recovered by themselves."""
    would_tokens: int = 0
    """The most of their tokens that were granted within any ten minutes."""
    retirements: int = 0
    retired_s: Times = NO_TIMES
    """Time from the lease to the replacement."""
    holds: tuple[HoldPeriod, ...] = ()
    others: tuple[Notable, ...] = ()
    """Other events that an operator has to know of."""
    enforce_percent: int = ALL


def report_of(
    entries: Iterable[Entry],
    since: float,
    until: float,
    *,
    service: str = "",
    mode: str = "enforce",
    enforce_percent: int = ALL,
) -> FleetReport:
    """Sum up the entries from ``since`` to ``until``; duplicates count once."""
    unique = dict.fromkeys(entry._replace(id="", once="") for entry in entries if since <= entry.at <= until)
    seen = sorted(unique, key=lambda entry: entry.at)
    counts = Counter(entry.what for entry in seen)
    replaced = [entry for entry in seen if entry.what == "replaced" and mode != SHADOW]
    return FleetReport(
        service,
        mode,
        since,
        until,
        entries=len(seen),
        first_at=seen[0].at if seen else None,
        culls=counts["culled"],
        ordered=sum(entry.what == "culled" and entry.reason == ORDERED for entry in seen),
        causes=_causes(seen),
        replaced_s=_times(entry for entry in replaced if entry.kind),
        refusals=_ranked(entry.reason for entry in seen if entry.what == "denied"),
        suspects=counts["suspect"],
        near_misses=counts["recovered"],
        would_culls=counts["would_cull"],
        would_recover=_recovered_by_themselves(seen),
        would_tokens=_most_within(entry.at for entry in seen if entry.what == "would_cull"),
        retirements=counts["retired"],
        retired_s=_times(entry for entry in replaced if not entry.kind),
        holds=_holds(seen),
        others=_notable(seen),
        enforce_percent=enforce_percent,
    )


def _causes(seen: Sequence[Entry]) -> tuple[Cause, ...]:
    """Culls and outcomes by kind, the kind with most culls first."""
    found: dict[str, Cause] = {}
    fields = {"culled": "culls", "helped": "helped", "unhelped": "unhelped", "unclear": "unclear"}
    for entry in seen:
        if field := fields.get(entry.what):
            kind = entry.kind or "unknown"
            cause = found.get(kind, Cause(kind))
            found[kind] = cause._replace(**{field: getattr(cause, field) + 1})
    return tuple(sorted(found.values(), key=lambda cause: (-cause.culls, cause.kind)))


def _times(entries: Iterable[Entry]) -> Times:
    """The times of the entries that have one."""
    took = sorted(entry.seconds for entry in entries if entry.seconds is not None)
    if not took:
        return NO_TIMES
    return Times(len(took), _rank(took, 0.5), _rank(took, 0.95), took[-1])


def _rank(took: Sequence[float], part: float) -> float:
    return took[ceil(part * len(took)) - 1]


def _notable(seen: Sequence[Entry]) -> tuple[Notable, ...]:
    found = {what: [entry for entry in seen if entry.what == what] for what in NOTABLE}
    names = {what: dict.fromkeys(entry.instance or entry.kind for entry in of) for what, of in found.items()}
    return tuple(Notable(what, len(of), tuple(filter(None, names[what]))) for what, of in found.items() if of)


def _ranked(words: Iterable[str]) -> tuple[tuple[str, int], ...]:
    return tuple(sorted(Counter(words).items(), key=lambda item: (-item[1], item[0])))


def _recovered_by_themselves(seen: Sequence[Entry]) -> int:
    """Number of shadow-mode culls whose container recovered: a recovery belongs to the last cull before it."""
    waiting, recovered = set(), 0
    for entry in seen:
        if entry.what == "would_cull":
            waiting.add(entry.instance)
        elif entry.what == "would_recover" and entry.instance in waiting:
            waiting.discard(entry.instance)
            recovered += 1
    return recovered


def _most_within(times: Iterable[float]) -> int:
    """The greatest number of these instants (ascending) within any ``PEAK_S`` seconds."""
    recent: deque[float] = deque()
    most = 0
    for at in times:
        recent.append(at)
        while at - recent[0] >= PEAK_S:
            recent.popleft()
        most = max(most, len(recent))
    return most


def _holds(seen: Sequence[Entry]) -> tuple[HoldPeriod, ...]:
    releases = [entry for entry in seen if entry.what == "release"]
    held = []
    for entry in seen:
        if entry.what == "hold":
            seconds = entry.seconds or 0.0
            ends = (one.at for one in releases if one.instance == entry.instance and one.at >= entry.at)
            released = next(ends, inf)
            released_at = released if released < entry.at + seconds else None
            held.append(HoldPeriod(entry.at, entry.author, entry.reason, entry.instance, seconds, released_at))
    return tuple(held)
