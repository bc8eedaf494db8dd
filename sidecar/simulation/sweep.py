"""Sweeps: the settings to try, and the figures of each, as means over the seeds."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from itertools import product
from typing import Any, Final

MOST_VALUES: Final = 8
"""Values of a range without a step: spread so that each is the same multiple of the one before."""

MOST_RUNS: Final = 2000

_ROUNDED: Final = 100
"""Larger numbers are shown without decimals."""

_RANGE: Final = re.compile(r"(\d+)\.\.(\d+)(?::(\d+))?")

_OF_DAYS: Final = frozenset(
    {"culls_of_healthy", "culls_of_stuck", "culls_of_sick", "culls_in_outage", "avoidable_failed_requests"}
    | {"time_to_cull_median_s", "time_to_cull_longest_s", "visits_of_an_engineer", "stuck_at_the_end"}
)
"""Figures that only a made-up day knows."""

Settings = Mapping[str, Any]


class SweepError(Exception):
    """The sweep cannot be run; the text is one sentence with the place."""


def parse(text: str) -> list[dict[str, Any]]:
    """The settings of each run of ``error_limit=3..50,budget=5,10,20``. Raises SweepError.

    A range has all its numbers if they are few, else ``MOST_VALUES`` of them, or every n-th with ``3..50:n``.
    """
    swept: dict[str, list[Any]] = {}
    name = ""
    for part in text.split(","):
        before, equals, value = part.rpartition("=")
        if equals:
            name = before.strip().lower()
            if name in swept:
                raise SweepError(f"{text!r}: {name} is given twice")
        if not name or not value.strip():
            raise SweepError(f"{text!r}: {part!r} is no setting with values: write error_limit=3..50,budget=5,10")
        swept.setdefault(name, []).extend(_values(text, value.strip()))
    return [
        dict(zip(swept, values, strict=True)) for values in product(*(dict.fromkeys(row) for row in swept.values()))
    ]


def _values(text: str, value: str) -> list[Any]:
    match = _RANGE.fullmatch(value)
    if match is None:
        if ".." in value:
            raise SweepError(f"{text!r}: {value!r} is no range: write 3..50 or 3..50:5")
        return [int(value) if value.isdecimal() else value]
    least, most, step = int(match[1]), int(match[2]), int(match[3] or 0)
    if most < least or (match[3] and not step):
        raise SweepError(f"{text!r}: {value!r} is an empty range")
    if step:
        values = range(least, most + 1, step)
        if len(values) > MOST_RUNS:
            raise SweepError(f"{text!r}: {value!r} has more than {MOST_RUNS} values")
        return list(values)
    if most - least < MOST_VALUES:
        return list(range(least, most + 1))
    ratio = (most / max(1, least)) ** (1 / (MOST_VALUES - 1))
    return [round(max(1, least) * ratio**number) for number in range(MOST_VALUES)]


def written(settings: Settings) -> str:
    """The settings of a run, for people."""
    return ", ".join(f"{name} = {value}" for name, value in settings.items())


def flat(column: Mapping[str, Any]) -> dict[str, float | None]:
    """The figures of one run that can be averaged, from its column in the JSON; None where there is none.

    Those that only a made-up day knows are left out where the column lacks them.
    """
    needs, times_s = column.get("culls_by_need") or {}, column.get("time_to_cull_s") or {}
    figures = {
        "culls": column["culls"],
        "culls_per_day": column["culls_per_day"],
        "culls_of_healthy": needs.get("healthy"),
        "culls_of_stuck": needs.get("stuck"),
        "culls_of_sick": needs.get("sick"),
        "culls_in_outage": needs.get("outage"),
        "avoidable_failed_requests": column.get("avoidable_failed_requests"),
        "failed_requests": column["failed_requests"],
        "time_to_cull_median_s": times_s.get("median"),
        "time_to_cull_longest_s": times_s.get("max"),
        "recovered_without_restart": column["recovered_without_restart"],
        "refused_claims": sum(column["refused_claims"].values()),
        "refused_containers": len({refusal["container"] for refusal in column["each_refusal"]}),
        "most_tokens_in_a_window": column["most_tokens_in_a_window"],
        "budget_use": column["budget_use"],
        "most_out_of_service": column["most_out_of_service"],
        "visits_of_an_engineer": column.get("visits_of_an_engineer"),
        "stuck_at_the_end": column.get("stuck_at_the_end"),
    }
    return {name: value for name, value in figures.items() if needs or name not in _OF_DAYS}


def over_seeds(by_seed: Sequence[Mapping[str, float | None]]) -> dict[str, float | None]:
    """The mean of each figure over the seeds; of the longest time to cull the longest."""
    means: dict[str, float | None] = {}
    for name in by_seed[0]:
        known = [value for one in by_seed if (value := one[name]) is not None]
        if not known:
            means[name] = None
        else:
            means[name] = max(known) if name.endswith("longest_s") else round(sum(known) / len(known), 2)
    return means


def as_json(day: Mapping[str, Any], seeds: Sequence[int], rows: Sequence[tuple[Settings, list[Any]]]) -> dict[str, Any]:
    """The result: ``rows`` has the settings of each run, and the column of the JSON of each seed."""
    found = []
    for settings, columns in rows:
        by_seed = [flat(column) for column in columns]
        found.append({"settings": dict(settings), "figures": over_seeds(by_seed), "by_seed": by_seed})
    return {"kind": "sweep", **day, "seeds": list(seeds), "swept": list(rows[0][0]), "rows": found}


_SHOWN: Final = {
    "culls_of_healthy": "healthy culled",
    "culls_of_stuck": "stuck culled",
    "culls_in_outage": "culled in outages",
    "time_to_cull_median_s": "median s",
    "time_to_cull_longest_s": "longest s",
    "refused_containers": "refused",
    "most_tokens_in_a_window": "tokens",
    "avoidable_failed_requests": "avoidable failures",
}


def as_text(result: Mapping[str, Any]) -> list[str]:
    """The result as a table, one line for each run."""
    head = [*result["swept"], *_SHOWN.values()]
    lines = [
        [*(str(row["settings"][name]) for name in result["swept"]), *(_cell(row["figures"][name]) for name in _SHOWN)]
        for row in result["rows"]
    ]
    return aligned([head, *lines])


def aligned(lines: Sequence[Sequence[str]]) -> list[str]:
    """Lines of cells, each column as wide as its widest cell."""
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    return ["  ".join(cell.rjust(width) for cell, width in zip(line, widths, strict=True)) for line in lines]


def _cell(value: float | None) -> str:
    return "-" if value is None else f"{value:,.0f}" if value >= _ROUNDED or value == int(value) else f"{value:,.1f}"
