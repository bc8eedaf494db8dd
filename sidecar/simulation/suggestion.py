"""The least limits that are good enough for a fleet: neither healthy containers culled, nor sick ones late.

How often noise alone reaches a limit is computed (``core.measure.noise``), because a month of noise cannot be played in
minutes. It counts the limit alone: the comparison with the fleet, which spares more, is not there yet when a fleet
starts, nor in a fleet of two. How long a lone sick container lasts, and what the budget does, is played.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from math import ceil
from typing import Any, Final

from sidecar.core.measure.noise import least_limit, reaches_per_month
from sidecar.runlock import durations
from sidecar.simulation.day_file import Day
from sidecar.simulation.incidents import Poison
from sidecar.simulation.sweep import aligned

NOISE_PER_MONTH: Final = 1.0
TIME_TO_CULL_S: Final = 30.0
"""The two goals."""

MOST_PLAYED: Final = 50
"""Containers of the small fleet in which noise and lone sick containers are played."""

_NOISE_S: Final = 900.0
_LONE_COUNT: Final = 4
_LONE_EVERY_S: Final = 200.0
_FIRST_S: Final = 120.0
_LONE_PART: Final = 0.6
_ENOUGH: Final = 1.05
"""A budget is enough if at most this many times the requests fail that fail with the best one."""

_BAR: Final = 24


def usual_errors(day: Day, window_s: float) -> float:
    """Errors in a window of the healthy container with the most requests."""
    return day.load.per_s * (1 + day.spread) * day.load.stray * window_s


def limits_to_try(day: Day, window_s: float, now: int) -> list[int]:
    """The limit that noise hardly reaches, the one in force, and some below and above."""
    least = max(2, least_limit(usual_errors(day, window_s), window_s, day.size, per_month=NOISE_PER_MONTH))
    parts = (0.25, 0.5, 1, 1.5, 3)
    return sorted({now, *(max(2, ceil(least * part)) for part in parts)} - {0})


def budgets_to_try(now: int) -> list[int]:
    """The budget in force, the least, and some more."""
    return sorted({1, *(max(1, ceil(now * part)) for part in (0.2, 0.5, 1, 2))})


def budget_between(rows: Sequence[Mapping[str, Any]]) -> int | None:
    """A budget to try next: between the least that is enough, and the one tried below it; None if none is left."""
    chosen = chosen_budget(rows)
    if chosen is None:
        return None
    below = max((row["budget"] for row in rows if row["budget"] < chosen), default=0)
    return (below + chosen) // 2 if chosen - below > 1 else None


def noise_day(day: Day) -> Day:
    """The fleet, or a part of it, without incidents."""
    return replace(day, size=min(day.size, MOST_PLAYED), for_s=_NOISE_S, incidents=())


def lone_day(day: Day) -> Day:
    """The same with containers that get stuck one after the other."""
    part = next((one.part for one in day.incidents if isinstance(one, Poison)), _LONE_PART)
    count = min(_LONE_COUNT, day.size)
    lone = Poison(_FIRST_S, count, _LONE_EVERY_S, part, name="suggestion")
    return replace(noise_day(day), for_s=_FIRST_S + (count + 1) * _LONE_EVERY_S, incidents=(lone,))


def limit_row(
    day: Day, window_s: float, limit: int, noise: Sequence[Mapping[str, Any]], lone: Sequence[Mapping[str, Any]]
) -> dict[str, Any]:
    """What a limit brings: by arithmetic, and played with each seed."""
    per_month = reaches_per_month(usual_errors(day, window_s), limit, window_s, day.size)
    times = [one["time_to_cull_s"] for one in lone if one["time_to_cull_s"]]
    longest_s = max((one["max"] for one in times), default=None)
    all_culled = all(one["culls_by_need"]["stuck"] == min(_LONE_COUNT, day.size) for one in lone)
    return {
        "error_limit": limit,
        "reached_by_noise_per_month": round(per_month, 3),
        "healthy_culls_simulated": sum(one["culls_by_need"]["healthy"] for one in noise),
        "time_to_cull_median_s": sorted(one["median"] for one in times)[len(times) // 2] if times else None,
        "time_to_cull_longest_s": longest_s,
        "failed_until_culled": round(
            sum(one["avoidable_failed_requests"] for one in lone) / max(1, sum(one["culls"] for one in lone)), 1
        ),
        "is_met": per_month < NOISE_PER_MONTH and all_culled and longest_s is not None and longest_s <= TIME_TO_CULL_S,
    }


def budget_rows(columns: Mapping[int, Sequence[Mapping[str, Any]]]) -> list[dict[str, Any]]:
    """What each budget brings on the day itself, ascending; the means over the seeds."""
    failed = {
        budget: sum(one["avoidable_failed_requests"] for one in found) / len(found) for budget, found in columns.items()
    }
    best = min(failed.values(), default=0.0)
    return [
        {
            "budget": budget,
            "avoidable_failed_requests": round(failed[budget]),
            "most_tokens_in_a_window": max(one["most_tokens_in_a_window"] for one in found),
            "refused_by_window": sum(one["refused_containers"].get("window", 0) for one in found),
            "is_enough": failed[budget] <= _ENOUGH * best,
        }
        for budget, found in sorted(columns.items())
    ]


def chosen_limit(rows: Sequence[Mapping[str, Any]]) -> int | None:
    """The least limit that meets both goals."""
    return next((row["error_limit"] for row in rows if row["is_met"]), None)


def chosen_budget(rows: Sequence[Mapping[str, Any]]) -> int | None:
    """The least budget that is enough."""
    return next((row["budget"] for row in rows if row["is_enough"]), None)


def sentence(result: Mapping[str, Any]) -> str:
    """The suggestion in words, or why there is none."""
    limit, budget, usual = result["error_limit"], result["budget"], _usual(result)
    if limit is None:
        quiet = [row for row in result["limits"] if row["reached_by_noise_per_month"] < NOISE_PER_MONTH]
        if not quiet:
            return f"No tried limit is over the noise: fix the background errors, or set error_ratio. {usual}"
        least, longest_s = quiet[0]["error_limit"], quiet[0]["time_to_cull_longest_s"]
        lasts = "is never culled" if longest_s is None else f"lasts up to {longest_s:,.0f} s"
        return (
            f"No limit meets both goals: noise hardly ever reaches {least} errors, but a lone stuck container {lasts}."
            f" A shorter error_window or an error_ratio may help. {usual}"
        )
    row = next(one for one in result["limits"] if one["error_limit"] == limit)
    said = (
        f"error_limit = {limit}: noise alone reaches it {row['reached_by_noise_per_month']:.2g} times a month in the "
        f"whole fleet, and a lone stuck container is culled within {row['time_to_cull_longest_s']:,.0f} s."
    )
    if budget is not None:
        said += f" budget = {budget} is enough for this day."
    return f"{said} {usual}"


def _usual(result: Mapping[str, Any]) -> str:
    """What the suggestion rests on."""
    return f"Usual errors of a healthy container: {result['usual_errors']:.2g} in {result['window_s']:g} s."


def as_text(result: Mapping[str, Any]) -> list[str]:
    """The suggestion, and the trade-off drawn: the noise falls with the limit, and the time to cull grows.

    How often noise reaches a limit says nothing about culls: the comparison with the fleet spares most containers. So
    the healthy ones that were culled in the played minutes stand beside it.
    """
    played = durations.write(len(result["seeds"]) * _NOISE_S)
    most_s = max((row["time_to_cull_longest_s"] or 0.0 for row in result["limits"]), default=0.0)
    lines = [
        [
            "error_limit",
            "noise reaches it, times a month",
            "",
            f"healthy culled, {played} played",
            "longest time to cull",
            "",
            "good",
        ]
    ]
    for row in result["limits"]:
        longest_s = row["time_to_cull_longest_s"]
        lines.append(
            [
                str(row["error_limit"]),
                f"{row['reached_by_noise_per_month']:,.2f}",
                _bar(_digits(row["reached_by_noise_per_month"]), 8),
                str(row["healthy_culls_simulated"]),
                "-" if longest_s is None else f"{longest_s:,.0f} s",
                _bar(longest_s or 0.0, most_s),
                "yes" if row["is_met"] else "",
            ]
        )
    text = [result["sentence"], "", *aligned(lines)]
    if result["budgets"]:
        cells = [["budget", "avoidable failed requests", "tokens used", "refused for want of a token", "enough"]]
        cells += [
            [
                str(row["budget"]),
                f"{row['avoidable_failed_requests']:,}",
                str(row["most_tokens_in_a_window"]),
                str(row["refused_by_window"]),
                "yes" if row["is_enough"] else "",
            ]
            for row in result["budgets"]
        ]
        text += ["", *aligned(cells)]
    return text


def _digits(value: float) -> int:
    """The number of digits before the point; 0 below 1."""
    return len(f"{value:.0f}") if value >= 1 else 0


def _bar(value: float, most: float) -> str:
    return ("#" * min(_BAR, ceil(_BAR * value / most)) if most else "").ljust(_BAR)
