"""The arithmetic of the report: entries of the ledger in, numbers out. It knows neither clock nor I/O."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from math import ceil, inf
from typing import Final, NamedTuple

from sidecar.core.explain.ledger_entries import ORDERED
from sidecar.core.types import Entry

DAY_S: Final = 86_400.0
HOUR_S: Final = 3_600.0
_HOURLY_UP_TO_S: Final = 2 * DAY_S
_MOST_BINS: Final = 400
SHADOW: Final = "shadow"
ALL: Final = 100
_APART_S: Final = 5.0
"""So far the clocks of sidecars and of the bucket may be apart."""


class Cause(NamedTuple):
    """Culls because of one kind of errors, and what became of those that were judged meanwhile."""

    kind: str
    culls: int = 0
    helped: int = 0
    unhelped: int = 0
    unclear: int = 0


@dataclass(frozen=True, slots=True)
class Times:
    """How long something took, in seconds: the middle, what 19 of 20 stay below (nearest rank), and the longest."""

    count: int = 0
    p50: float = 0.0
    p95: float = 0.0
    longest: float = 0.0


NO_TIMES: Final = Times()


class Held(NamedTuple):
    """A hold: who, why, whom (``""``: the service), when, for how long, and when it was released if it was."""

    at: float
    author: str
    reason: str
    instance: str
    seconds: float
    released_at: float | None = None


class Bin(NamedTuple):
    """An hour or a day from ``at`` on, in Unix seconds."""

    at: float
    culls: int = 0
    would_culls: int = 0
    refusals: int = 0
    near_misses: int = 0


@dataclass(frozen=True, slots=True)
class Report:
    """The numbers from ``since`` to ``until``, seen at ``now`` (Unix seconds); ``first_at``: the oldest entry.

    ``culls`` of which ``ordered`` by people. ``near_misses``: suspects that recovered before anything was done.
    ``would_culls`` in shadow mode, of which ``would_recover`` recovered by themselves. ``not_honoured``: who was there
    long after a cull. ``retired_s`` and ``replaced_s``: from the lease or the token to the replacement; none in shadow
    mode. ``paused``: causes whose culls were paused because one did not help, and how often each was. ``duplicates``:
    instance names under which two lives beat. ``away_s``: how long single sidecars were without Redis. While
    ``enforce_percent`` is less than 100, all of it is of one part of the service, that of ``mode``.
    """

    service: str
    mode: str
    since: float
    until: float
    now: float
    entries: int = 0
    first_at: float | None = None
    culls: int = 0
    ordered: int = 0
    causes: tuple[Cause, ...] = ()
    replaced_s: Times = NO_TIMES
    refusals: tuple[tuple[str, int], ...] = ()
    suspects: int = 0
    near_misses: int = 0
    would_culls: int = 0
    would_recover: int = 0
    retirements: int = 0
    retired_s: Times = NO_TIMES
    revived: int = 0
    holds: tuple[Held, ...] = ()
    not_honoured: tuple[str, ...] = ()
    paused: tuple[tuple[str, int], ...] = ()
    duplicates: tuple[str, ...] = ()
    losses: int = 0
    away_s: Times = NO_TIMES
    bins: tuple[Bin, ...] = ()
    enforce_percent: int = ALL


def report(
    entries: Iterable[Entry],
    since: float,
    until: float,
    now: float,
    *,
    service: str = "",
    mode: str = "enforce",
    enforce_percent: int = ALL,
) -> Report:
    """Add up the entries that happened from ``since`` to ``until``; what is there twice counts once."""
    told = dict.fromkeys(entry._replace(id="", once="") for entry in entries if since <= entry.at <= until)
    seen = sorted(told, key=lambda entry: entry.at)
    counts = Counter(entry.what for entry in seen)
    replaced = [] if mode == SHADOW else _replaced(seen)
    return Report(
        service,
        mode,
        since,
        until,
        now,
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
        retirements=counts["retired"],
        retired_s=_times(entry for entry in replaced if not entry.kind),
        revived=counts["revived"],
        holds=_holds(seen),
        not_honoured=tuple(sorted({entry.instance for entry in seen if entry.what == "not_honoured"})),
        paused=_ranked(entry.kind for entry in seen if entry.what == "paused"),
        duplicates=tuple(sorted({entry.instance for entry in seen if entry.what == "duplicate"})),
        losses=counts["data_loss"],
        away_s=_times(entry for entry in seen if entry.what == "redis_back"),
        bins=_bins(seen, since, until),
        enforce_percent=enforce_percent,
    )


def _causes(seen: Sequence[Entry]) -> tuple[Cause, ...]:
    """By kind, those with most culls first."""
    found: dict[str, Cause] = {}
    fields = {"culled": "culls", "helped": "helped", "unhelped": "unhelped", "unclear": "unclear"}
    for entry in seen:
        if field := fields.get(entry.what):
            kind = entry.kind or "unknown"
            cause = found.get(kind, Cause(kind))
            found[kind] = cause._replace(**{field: getattr(cause, field) + 1})
    return tuple(sorted(found.values(), key=lambda cause: (-cause.culls, cause.kind)))


def _replaced(seen: Sequence[Entry]) -> list[Entry]:
    """Those who were replaced; of a retirement without a kind. To the bucket who was revived is another one as well."""
    revived = [entry for entry in seen if entry.what == "revived"]

    def is_another(entry: Entry) -> bool:
        begun = entry.at - (entry.seconds or 0.0)
        times = (one.at for one in revived if one.instance == entry.instance)
        return not any(begun - _APART_S <= at <= entry.at + _APART_S for at in times)

    return [entry for entry in seen if entry.what == "replaced" and is_another(entry)]


def _times(entries: Iterable[Entry]) -> Times:
    """Of those that say how long it took."""
    took = sorted(entry.seconds for entry in entries if entry.seconds is not None)
    if not took:
        return NO_TIMES
    return Times(len(took), _rank(took, 0.5), _rank(took, 0.95), took[-1])


def _rank(took: Sequence[float], part: float) -> float:
    return took[ceil(part * len(took)) - 1]


def _ranked(words: Iterable[str]) -> tuple[tuple[str, int], ...]:
    return tuple(sorted(Counter(words).items(), key=lambda item: (-item[1], item[0])))


def _recovered_by_themselves(seen: Sequence[Entry]) -> int:
    """Of the culls that would have been, those whose container recovered: each recovery belongs to the last of them."""
    waiting, recovered = set(), 0
    for entry in seen:
        if entry.what == "would_cull":
            waiting.add(entry.instance)
        elif entry.what == "would_recover" and entry.instance in waiting:
            waiting.discard(entry.instance)
            recovered += 1
    return recovered


def _holds(seen: Sequence[Entry]) -> tuple[Held, ...]:
    releases = [entry for entry in seen if entry.what == "release"]
    held = []
    for entry in seen:
        if entry.what == "hold":
            seconds = entry.seconds or 0.0
            ends = (one.at for one in releases if one.instance == entry.instance and one.at >= entry.at)
            released = next(ends, inf)
            released_at = released if released < entry.at + seconds else None
            held.append(Held(entry.at, entry.author, entry.reason, entry.instance, seconds, released_at))
    return tuple(held)


_COUNTED: Final = {
    "culled": "culls",
    "would_cull": "would_culls",
    "denied": "refusals",
    "recovered": "near_misses",
    "would_recover": "near_misses",
}


def _bins(seen: Sequence[Entry], since: float, until: float) -> tuple[Bin, ...]:
    """Hours or days (of UTC) from the beginning to the end; of a long time the last of them."""
    step = HOUR_S if until - since <= _HOURLY_UP_TO_S else DAY_S
    first, last = int(since // step), int(until // step)
    first = max(first, last - _MOST_BINS + 1)
    counted: dict[int, Counter[str]] = {number: Counter() for number in range(first, last + 1)}
    for entry in seen:
        field, number = _COUNTED.get(entry.what), int(entry.at // step)
        if field and number in counted:
            counted[number][field] += 1
    return tuple(Bin(number * step, **counts) for number, counts in counted.items())
