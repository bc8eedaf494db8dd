"""The answers of a simulated day, one column for each set of rules: a text table, and JSON."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Final

from sidecar.runlock import durations
from sidecar.simulation.day_file import Day
from sidecar.simulation.day_outcome import DAY_S, DayOutcome
from sidecar.simulation.departures import SimulatedCull
from sidecar.simulation.fleet_rules import CHECK_RESTART
from sidecar.simulation.traffic import FailedRequests

NEEDS: Final = {
    "stuck": "of stuck containers (a restart helps)",
    "healthy": "of healthy containers",
    "sick": "of sick containers (no restart helps)",
    "outage": "during an outage of all",
}
"""What the containers of a made-up day needed when they were culled, in words."""

ARTICLE: Final = "article"
"""The name of the article's rule in the table."""

_SHOWN: Final = 10

_NOTES: Final = (
    "Avoidable: failed outside of an outage of all containers, or for lack of capacity; not the background errors.",
    "The same seed gives the same day and the same errors under all rules.",
)

_CHECK_RESTART: Final = (
    "check_restart: 3 failed health checks in a row restart a container. One comes every 10 s, and fails as often as "
    "requests do."
)


def as_json(day: Day, seed: int, outcomes: Sequence[DayOutcome], *, has_series: bool = False) -> dict[str, Any]:
    """All answers as JSON values; durations in seconds. ``has_series``: also the course of the run, for pictures."""
    return {
        "kind": "day",
        "day": day.name,
        "duration_s": day.for_s,
        "containers": day.size,
        "seed": seed,
        "start_unix": None,
        "notes": _notes(outcomes),
        "rules": [
            {**figures_of(one, outcomes), **({"series": one.series()} if has_series else {})} for one in outcomes
        ],
    }


def as_text(day: Day, seed: int, outcomes: Sequence[DayOutcome]) -> str:
    """All answers as a table for a terminal."""
    figures = [figures_of(one, outcomes) for one in outcomes]
    rows = [("", [one.rules for one in outcomes]), *_rows(figures, is_a_day=day.for_s >= DAY_S)]
    widths = [max(len(row[place]) for _, row in rows) for place in range(len(outcomes))]
    first = max(len(words) for words, _ in rows)
    title = f"{day.name}: {day.size} containers, {durations.write(day.for_s)}, seed {seed}"
    table = (
        "  ".join(
            [words.ljust(first), *(cell.rjust(width) for cell, width in zip(cells, widths, strict=True))]
        ).rstrip()
        for words, cells in rows
    )
    return "\n".join([title, "", *table, *_first_culls(outcomes), "", *_notes(outcomes)])


def _notes(outcomes: Sequence[DayOutcome]) -> list[str]:
    """What has to be known of the answers."""
    is_there = any(one.rules == CHECK_RESTART.name for one in outcomes)
    return [*_NOTES, *([_CHECK_RESTART] if is_there else [])]


def _first_culls(outcomes: Sequence[DayOutcome]) -> Iterator[str]:
    """The first culls under each compared rules, with their reasons."""
    for one in outcomes:
        if not one.culls or one.rules in (ARTICLE, CHECK_RESTART.name):
            continue
        yield from ("", f"first culls, {one.rules}:")
        yield from (f"  {clock_of(cull.at_s)}  container {cull.place}: {cull.reason}" for cull in one.culls[:_SHOWN])
        if len(one.culls) > _SHOWN:
            yield f"  and {len(one.culls) - _SHOWN} more: --json has all"


def clock_of(seconds: float) -> str:
    """The time since the beginning of the day, as ``6:40:12``."""
    minutes, second = divmod(int(seconds), 60)
    hour, minute = divmod(minutes, 60)
    return f"{hour}:{minute:02}:{second:02}"


def figures_of(one: DayOutcome, outcomes: Sequence[DayOutcome]) -> dict[str, Any]:
    """The answers under one set of rules as JSON values, compared with the other outcomes."""
    times_s, suspect_s = one.cull_times_s, sorted(cull.after_s for cull in one.culls)
    return {
        "rules": one.rules,
        "failed_requests": round(one.failed),
        "avoidable_failed_requests": round(one.avoidable),
        "avoidable_less_than": {
            other.rules: round(other.avoidable) - round(one.avoidable) for other in outcomes if other is not one
        },
        "culls": len(one.culls),
        "culls_per_day": round(one.culls_per_day, 1),
        "culls_by_need": {need: one.needs[need] for need in NEEDS},
        "culls_by_cause": dict(one.causes.most_common()),
        "each_cull": [
            {
                "at_s": round(cull.at_s, 1),
                "container": cull.place,
                "name": one.names[cull.place],
                "cause": cull.cause,
                "need": cull.need,
                "reason": cull.reason,
            }
            for cull in one.culls
        ],
        "each_refusal": [
            {
                "at_s": round(at.at_s, 1),
                "container": at.place,
                "name": one.names[at.place],
                "cause": at.cause,
                "gate": at.gate,
            }
            for at in one.first_refusals
        ],
        "recovered_without_restart": one.recoveries,
        "refused_claims": dict(sorted(one.denials.items())),
        "refused_containers": dict(sorted(one.refused.items())),
        "time_to_cull_s": _median_and_max(times_s),
        "suspect_to_cull_s": _median_and_max(suspect_s),
        "tokens": len(one.grants),
        "most_tokens_in_a_window": one.most_tokens,
        "budget": one.budget,
        "budget_use": round(one.most_tokens / one.budget, 2) if one.budget else None,
        "most_out_of_service": one.most_out,
        "retirements": len(one.retirements),
        "visits_of_an_engineer": len(one.visits),
        "stuck_at_the_end": one.stuck,
    }


def example() -> dict[str, Any]:
    """The figures of a run with one cull: it has the names of all that there can be."""
    cull = SimulatedCull(1.0, 0, "example", 1.0, "unknown", replayed=False, in_outage=False)
    one = DayOutcome(
        "",
        DAY_S,
        FailedRequests(),
        (cull,),
        (),
        {},
        0,
        {},
        {},
        0,
        (),
        0,
        DAY_S,
        names=("",),
    )
    return figures_of(one, [one])


def _median_and_max(times_s: Sequence[float]) -> dict[str, float] | None:
    """Of times that ascend; None if there are none."""
    return {"median": round(times_s[len(times_s) // 2], 1), "max": round(times_s[-1], 1)} if times_s else None


def _rows(figures: Sequence[Mapping[str, Any]], *, is_a_day: bool) -> list[tuple[str, list[str]]]:
    """The rows of the table. Culls a day are of whole days: two in a quarter of an hour are not 192 a day."""

    def row(words: str, cell: Callable[[Mapping[str, Any]], str]) -> tuple[str, list[str]]:
        return words, [cell(one) for one in figures]

    def counts(heading: str, key: str, names: Mapping[str, str]) -> list[tuple[str, list[str]]]:
        found = [name for name in names if any(one[key].get(name) for one in figures)]
        return [(f"{heading}{names[name]}", [f"{one[key].get(name, 0):,}" for one in figures]) for name in found]

    causes = {cause: cause for one in figures for cause in one["culls_by_cause"]}
    gates = {gate: gate for one in figures for gate in one["refused_containers"]}
    return [
        row("avoidable failed requests", lambda one: f"{one['avoidable_failed_requests']:,}"),
        row("all failed requests", lambda one: f"{one['failed_requests']:,}"),
        row("culls", lambda one: f"{one['culls']:,}"),
        *([row("culls per day", lambda one: f"{one['culls_per_day']:,g}")] if is_a_day else []),
        *counts("  ", "culls_by_need", NEEDS),
        *counts("  for: ", "culls_by_cause", causes),
        row("time to cull a stuck container: median", lambda one: _time(one, "median")),
        row("time to cull a stuck container: longest", lambda one: _time(one, "max")),
        *counts("incarnations refused, gate: ", "refused_containers", gates),
        row("suspects that recovered without a restart", lambda one: f"{one['recovered_without_restart']:,}"),
        row("most tokens used in one window", _tokens),
        row("most containers out of service at once", lambda one: f"{one['most_out_of_service']:,}"),
        row("visits of an engineer", lambda one: f"{one['visits_of_an_engineer']:,}"),
        row("still stuck at the end", lambda one: f"{one['stuck_at_the_end']:,}"),
    ]


def _tokens(one: Mapping[str, Any]) -> str:
    return f"{one['most_tokens_in_a_window']:,} of {one['budget']:,}" if one["budget"] else "-"


def _time(one: Mapping[str, Any], which: str) -> str:
    times_s = one["time_to_cull_s"]
    return "-" if times_s is None else f"{times_s[which]:,.0f} s"
