"""The answer of ``backtest``, as JSON for a program and as text for a person."""

from __future__ import annotations

from collections.abc import Iterator
from heapq import nlargest
from typing import Any, Final

from sidecar.backtest.error_counts import ErrorCounts, clock
from sidecar.backtest.limits import Findings, Reach
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


def as_json(counts: ErrorCounts, findings: Findings) -> dict[str, Any]:
    """Everything that is known. Times are Unix seconds."""
    first, last = counts.span
    begin, end = counts.at(first), counts.at(last + 1)
    usual, suggested = findings.usual, findings.limits[findings.suggested]
    shown = nlargest(SHOWN, suggested, key=lambda reach: (not reach.is_fleet_wide, reach.errors))
    return {
        "kind": "backtest",
        "source": counts.source,
        "begin": begin,
        "end": end,
        "window_s": counts.window_s,
        "containers": len(counts.containers),
        "usual": {"errors_per_window": round(usual.mean, 4), "most": usual.most, "windows": usual.windows},
        "windows": usual.of,
        "error_limit": findings.suggested,
        "why": list(_why(counts, findings, end - begin)),
        "limits": [
            {
                "limit": limit,
                "reached": len(reaches),
                "per_day": round(len(reaches) * DAY_S / (end - begin), 3),
                "containers": len({reach.instance for reach in reaches}),
                "fleet_wide": sum(reach.is_fleet_wide for reach in reaches),
            }
            for limit, reaches in findings.limits.items()
        ],
        "reaches": [_reach(counts, reach) for reach in shown],
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


def _why(counts: ErrorCounts, findings: Findings, recorded_s: float) -> Iterator[str]:
    usual, limit, reaches = findings.usual, findings.suggested, findings.limits[findings.suggested]
    yield f"Set ARBITER_ERROR_LIMIT={limit} (with ARBITER_ERROR_WINDOW={durations.write(counts.window_s)})."
    yield (
        f"All was well in {usual.windows:,} of {usual.of:,} windows: a container had {usual.mean:.2g} errors in one on "
        f"average, and {usual.most} in the worst. Chance alone brings {limit} less than once a month in this fleet. "
        "Healthy containers reach a lower limit; a higher limit finds a sick one later."
    )
    if fleet_wide := sum(reach.is_fleet_wide for reach in reaches):
        yield (
            f"{fleet_wide} of {len(reaches)} times most of the fleet reached it together: a restart does not help "
            "then, and the fleet tries one container only."
        )
    if not reaches:
        yield "No container reached it: nothing was wrong then, or a few errors are already too many for your service."
    if recorded_s < SHORT_S:
        yield "This record is short. Take a few days, with a busy hour and an incident."
    yield "Next, run the sidecars with ARBITER_MODE=shadow. They say what the fleet would cull and refuse."


def _reach(counts: ErrorCounts, reach: Reach) -> dict[str, Any]:
    return {
        "container": reach.instance,
        "begin": counts.at(reach.first),
        "end": counts.at(reach.last + 1),
        "errors": reach.errors,
        "fleet_wide": reach.is_fleet_wide,
    }
