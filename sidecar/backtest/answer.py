"""The answer of ``backtest``, as JSON for a program and as text for a person."""

from __future__ import annotations

from collections.abc import Iterator
from heapq import nlargest
from typing import Any, Final

from sidecar.backtest.error_counts import ErrorCounts, clock
from sidecar.backtest.limits import LimitFindings
from sidecar.runlock import durations

DAY_S: Final = 86_400.0
SHORT_S: Final = 6 * 3600.0
"""A shorter record may hold no usual day."""

SHOWN: Final = 20
"""Maximum number of reaches that are listed: first those of one container, those with the most errors."""

COLUMNS: Final = {
    "limit": "limit",
    "reached": "reached",
    "per_day": "a day",
    "containers": "containers",
    "fleet_wide": "with most of the fleet",
}


def as_json(counts: ErrorCounts, limits: LimitFindings) -> dict[str, Any]:
    """Everything that is known. Times are Unix seconds."""
    first, last = counts.span
    begin, end = counts.at(first), counts.at(last + 1)
    reaches = limits.reaches[limits.suggested]
    return {
        "kind": "backtest",
        "source": counts.source,
        "begin": begin,
        "end": end,
        "window_s": counts.window_s,
        "containers": len(counts.containers),
        "usual": limits.usual._asdict(),
        "error_limit": limits.suggested,
        "why": list(_why(limits, counts.window_s, end - begin)),
        "limits": [
            {
                "limit": limit,
                "reached": len(found),
                "per_day": round(len(found) * DAY_S / (end - begin), 3),
                "containers": len({reach.container for reach in found}),
                "fleet_wide": sum(reach.fleet_wide for reach in found),
            }
            for limit, found in limits.reaches.items()
        ],
        "reaches": [
            each._asdict() for each in nlargest(SHOWN, reaches, key=lambda each: (not each.fleet_wide, each.errors))
        ],
        "notes": [f"{number:,} {note}" for note, number in counts.notes.items()],
    }


def as_text(found: dict[str, Any]) -> Iterator[str]:
    """The same as lines."""
    window, times = durations.write(found["window_s"]), f"{clock(found['begin'])} to {clock(found['end'])}"
    yield f"{found['source']}: {found['containers']} containers, {times}, windows of {window}"
    yield ""
    yield "  ".join(COLUMNS.values())
    for row in found["limits"]:
        mark = " <- set this" if row["limit"] == found["error_limit"] else ""
        yield "  ".join(str(row[name]).rjust(len(title)) for name, title in COLUMNS.items()) + mark
    yield ""
    yield from found["why"]
    if found["reaches"]:
        yield ""
        yield f"Who reached {found['error_limit']} errors, one container alone first:"
    for reach in found["reaches"]:
        wide = ", with most of the fleet" if reach["fleet_wide"] else ""
        seconds = durations.write(reach["end"] - reach["begin"])
        yield f"  {clock(reach['begin'])}  {reach['container']}: up to {reach['errors']} errors, for {seconds}{wide}"
    yield from found["notes"]


def _why(limits: LimitFindings, window_s: float, recorded_s: float) -> Iterator[str]:
    usual, limit, reaches = limits.usual, limits.suggested, limits.reaches[limits.suggested]
    yield f"Set ARBITER_ERROR_LIMIT={limit} (with ARBITER_ERROR_WINDOW={durations.write(window_s)})."
    yield (
        f"All was well in {usual.windows:,} of {usual.of:,} windows: a container had {usual.mean:.2g} errors in one on "
        f"average, and {usual.most} in the worst. Chance alone brings {limit} less than once a month in this fleet. "
        "Healthy containers reach a lower limit; a higher limit finds a sick one later."
    )
    if fleet_wide := sum(reach.fleet_wide for reach in reaches):
        yield (
            f"{fleet_wide} of {len(reaches)} times most of the fleet reached it together: a restart does not help "
            "then, and the fleet tries one container only."
        )
    if not reaches:
        yield "No container reached it: nothing was wrong then, or a few errors are already too many for your service."
    if recorded_s < SHORT_S:
        yield "This record is short. Take a few days, with a busy hour and an incident."
    yield "Next, run the sidecars with ARBITER_MODE=shadow. They say what the fleet would cull and refuse."
