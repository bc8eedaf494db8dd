"""The answer of ``backtest``, as text for a person and as JSON for a program."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

from sidecar.backtest.error_counts import PARTS, ErrorCounts, clock
from sidecar.backtest.limits import Findings, Reach
from sidecar.runlock import durations

DAY_S: Final = 86_400.0
SHORT_S: Final = 6 * 3600.0
"""A shorter record may hold no usual day."""

COLUMNS: Final = ("limit", "reached", "a day", "containers", "with most of the fleet")


def as_json(counts: ErrorCounts, findings: Findings) -> dict[str, Any]:
    """Everything that is known. Times are Unix seconds."""
    first, last = counts.span
    days = _recorded_s(counts) / DAY_S
    usual = findings.usual
    return {
        "kind": "backtest",
        "source": counts.source,
        "begin": counts.at(first),
        "end": counts.at(last + 1),
        "window_s": counts.window_s,
        "containers": len(counts.containers),
        "usual": {"errors_per_window": round(usual.mean, 4), "most": usual.most, "windows": usual.windows},
        "windows": usual.of,
        "error_limit": findings.suggested,
        "why": list(_why(counts, findings)),
        "limits": [
            {
                "limit": one.limit,
                "reached": one.times,
                "per_day": round(one.times / days, 3),
                "containers": one.containers,
                "fleet_wide": one.fleet_wide,
            }
            for one in findings.limits
        ],
        "reaches": [_reach(counts, one) for one in findings.reaches],
        "notes": _notes(counts),
    }


def as_text(counts: ErrorCounts, findings: Findings) -> Iterator[str]:
    """The same as lines."""
    found = as_json(counts, findings)
    window = durations.write(counts.window_s)
    times = f"{clock(found['begin'])} to {clock(found['end'])}"
    yield f"{counts.source}: {found['containers']} containers, {times}, windows of {window}"
    yield ""
    rows = [
        tuple(str(one[name]) for name in ("limit", "reached", "per_day", "containers", "fleet_wide"))
        for one in found["limits"]
    ]
    for row in (COLUMNS, *rows):
        mark = " <- set this" if row[0] == str(findings.suggested) else ""
        yield "  ".join(cell.rjust(len(name)) for cell, name in zip(row, COLUMNS, strict=True)) + mark
    yield ""
    yield from found["why"]
    if found["reaches"]:
        yield ""
        yield f"Who reached {findings.suggested} errors, one container alone first:"
    for one in found["reaches"]:
        wide = ", with most of the fleet" if one["fleet_wide"] else ""
        seconds = durations.write(one["end"] - one["begin"])
        yield f"  {clock(one['begin'])}  {one['container']}: up to {one['errors']} errors, for {seconds}{wide}"
    if found["notes"]:
        yield ""
        yield from found["notes"]


def _why(counts: ErrorCounts, findings: Findings) -> Iterator[str]:
    usual, limit = findings.usual, findings.suggested
    reached = next(one for one in findings.limits if one.limit == limit)
    yield f"Set ARBITER_ERROR_LIMIT={limit} (with ARBITER_ERROR_WINDOW={durations.write(counts.window_s)})."
    yield (
        f"All was well in {usual.windows:,} of {usual.of:,} windows: a container had {usual.mean:.2g} errors in one on "
        f"average, and {usual.most} in the worst. Chance alone brings {limit} less than once a month in this fleet. "
        "Healthy containers reach a lower limit; a higher limit finds a sick one later."
    )
    if reached.fleet_wide:
        yield (
            f"{reached.fleet_wide} of {reached.times} times most of the fleet reached it together: a restart does not "
            "help then, and the fleet tries one container only."
        )
    if not reached.times:
        yield "No container reached it: nothing was wrong then, or a few errors are already too many for your service."
    if _recorded_s(counts) < SHORT_S:
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


def _notes(counts: ErrorCounts) -> list[str]:
    return [f"{number:,} {note}" for note, number in counts.notes.items()]


def _recorded_s(counts: ErrorCounts) -> float:
    first, last = counts.span
    return (last + 1 - first) * counts.window_s / PARTS
