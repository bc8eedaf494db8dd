"""The arithmetic of the report: entries of the ledger in, numbers out. No clock, no I/O.

Times of day are Unix seconds.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from math import ceil
from typing import Final

from sidecar.config.settings import ALL, SHADOW
from sidecar.controller.ledger_entries import ORDERED
from sidecar.core.types import Entry

PEAK_S: Final = 600.0
"""The default of the budget's window, for the most tokens at once."""

NOTABLE: Final = (
    *("retired", "not_honoured", "action_failed", "paused", "hold", "revived"),
    *("restarted", "duplicate", "data_loss", "redis_away"),
)
"""Words of the ledger that the report counts beside culls and refusals."""

_OUTCOMES: Final = {"culled": "culls", "helped": "helped", "unhelped": "unhelped", "unclear": "unclear"}
"""Word of the ledger -> the field of ``Cause`` that counts it."""


@dataclass(frozen=True, slots=True)
class Cause:
    """Culls for one kind of errors, and the outcomes that are known."""

    kind: str
    culls: int = 0
    helped: int = 0
    unhelped: int = 0
    unclear: int = 0


@dataclass(frozen=True, slots=True)
class Times:
    """How long something took, in seconds: the median (nearest rank) and the longest."""

    count: int = 0
    median: float = 0.0
    longest: float = 0.0


@dataclass(frozen=True, slots=True)
class Notable:
    """One kind of event."""

    what: str
    """The word of the ledger."""
    times: int
    names: tuple[str, ...]
    """The containers, the causes of pauses, the authors of holds."""


@dataclass(frozen=True, slots=True)
class FleetReport:
    """What happened in a time; while ``enforce_percent`` is below 100, to the containers with this ``mode``."""

    service: str
    mode: str
    enforce_percent: int
    since: float
    until: float
    """When it was written."""
    entries: int
    first_at: float | None
    """The time of the oldest entry."""
    culls: int
    ordered: int
    """Culls that operators ordered."""
    causes: tuple[Cause, ...]
    """The kind with most culls first."""
    replaced_s: Times
    """Time from the token to the replacement; none in shadow mode."""
    suspects: int
    near_misses: int
    """Suspects that recovered before they were culled."""
    would_culls: int
    """Culls in shadow mode."""
    would_recover: int
    """How many of those containers recovered by themselves."""
    would_tokens: int
    """The most of their tokens that were granted within any ten minutes."""
    refusals: dict[str, int] = field(default_factory=dict)
    """By reason, the most frequent first."""
    others: tuple[Notable, ...] = ()
    """Other events that an operator has to know of."""


def report_of(
    ledger: Iterable[Entry],
    since: float,
    until: float,
    *,
    service: str = "",
    mode: str = "enforce",
    enforce_percent: int = ALL,
) -> FleetReport:
    """Sum up the entries of the ledger from ``since`` to ``until``; duplicates count once."""
    unique = dict.fromkeys(entry._replace(id="", once="") for entry in ledger if since <= entry.at <= until)
    entries = sorted(unique, key=lambda entry: entry.at)
    counts = Counter(entry.what for entry in entries)
    refusals = Counter(entry.reason for entry in entries if entry.what == "denied")
    # After a retirement it has no kind. In shadow mode nothing is replaced because of a cull.
    replaced = [entry for entry in entries if entry.what == "replaced" and entry.kind and mode != SHADOW]
    return FleetReport(
        service=service,
        mode=mode,
        enforce_percent=enforce_percent,
        since=since,
        until=until,
        entries=len(entries),
        first_at=entries[0].at if entries else None,
        culls=counts["culled"],
        ordered=sum(entry.what == "culled" and entry.reason == ORDERED for entry in entries),
        causes=_causes(entries),
        replaced_s=_times(replaced),
        suspects=counts["suspect"],
        near_misses=counts["recovered"],
        would_culls=counts["would_cull"],
        would_recover=_recovered_by_themselves(entries),
        would_tokens=_most_within(entry.at for entry in entries if entry.what == "would_cull"),
        refusals=dict(sorted(refusals.items(), key=lambda item: (-item[1], item[0]))),
        others=_notable(entries),
    )


def _causes(entries: Sequence[Entry]) -> tuple[Cause, ...]:
    causes: dict[str, Cause] = {}
    for entry in entries:
        if name := _OUTCOMES.get(entry.what):
            cause = causes.setdefault(entry.kind or "unknown", Cause(entry.kind or "unknown"))
            causes[cause.kind] = replace(cause, **{name: getattr(cause, name) + 1})
    return tuple(sorted(causes.values(), key=lambda cause: (-cause.culls, cause.kind)))


def _times(entries: Iterable[Entry]) -> Times:
    """The times of the entries that have one."""
    took = sorted(entry.seconds for entry in entries if entry.seconds is not None)
    return Times(len(took), took[ceil(len(took) / 2) - 1], took[-1]) if took else Times()


def _notable(entries: Sequence[Entry]) -> tuple[Notable, ...]:
    names: dict[str, list[str]] = {what: [] for what in NOTABLE}
    for entry in entries:
        if entry.what in names:
            names[entry.what].append(entry.author if entry.what == "hold" else entry.instance or entry.kind)
    return tuple(Notable(what, len(of), tuple(dict.fromkeys(filter(None, of)))) for what, of in names.items() if of)


def _recovered_by_themselves(entries: Sequence[Entry]) -> int:
    """Number of shadow-mode culls whose container recovered: a recovery belongs to the last cull before it."""
    waiting, recovered = set(), 0
    for entry in entries:
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
