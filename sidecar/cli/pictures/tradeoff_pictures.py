"""The trade-off between settings: the results of a sweep, and the limits that a suggestion was chosen from."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from math import log10
from typing import Any, Final

from sidecar.cli.pictures.svg_shapes import WIDTH, bars, box, dots, figure, line, scale
from sidecar.cli.report.page_skeleton import escaped, table

STYLE: Final = """\
.grid td{text-align:right;border:2px solid var(--edge);padding:.3rem .5rem;white-space:nowrap}
.grid .h0{background:transparent}.grid td i{display:inline-block;width:.7em;height:.7em;margin-right:.4em;\
background:var(--of);border:1px solid var(--ink)}
.grid .h0 i{visibility:hidden}tr.chosen td,tr.chosen th{font-weight:700;background:var(--field)}
svg .chosen{fill:var(--suspect)}svg .plain{fill:var(--use);opacity:.75}svg .tens{stroke:var(--edge)}
svg .goal{stroke:var(--cull);stroke-width:2}
"""

MOST_ROWS: Final = 400
LABELS: Final = 10
"""Maximum number of labels with a text below one picture."""

_MARGIN: Final = 1.05
"""The height of a picture, as a multiple of its highest value."""

PAIR: Final = 2
"""Number of swept settings that make a grid."""

_LEAST: Final = 0.01
"""The smallest value on a logarithmic scale."""

_FIGURES: Final = {
    "culls_of_healthy": "culls of healthy containers",
    "time_to_cull_longest_s": "longest time to cull a stuck container, s",
    "avoidable_failed_requests": "avoidable failed requests",
    "failed_requests": "failed requests",
    "culls_per_day": "culls per day",
}
"""The figures of a sweep that are drawn, in this order; of a made-up day not all failed requests."""

_AXES: Final = (("culls_of_healthy", "avoidable_failed_requests"), ("culls_per_day", "failed_requests"))
"""What is traded: of a made-up day, and of a record, where nobody knows who was healthy."""

_ROUNDED: Final = 10
"""Larger numbers are shown without decimals."""

Row = Mapping[str, Any]


# -- a suggestion -----------------------------------------------------------------------------------------------------


def suggestion(result: Row) -> Iterator[str]:
    """The chosen settings, and what each limit and each budget would have brought."""
    yield f'<p class="shadow">{escaped(result.get("sentence", ""))}</p>'
    goals = result.get("goals") or {}
    limits, chosen = result.get("limits") or [], result.get("error_limit")
    if limits:
        yield "<h2>The limit of errors</h2>"
        labels, picked = _labels(limits, "error_limit"), _place(limits, "error_limit", chosen)
        noise = [float(row.get("reached_by_noise_per_month") or 0) for row in limits]
        said = "Times a month that noise alone reaches the limit; each line is ten times the one below"
        yield _bars(said, noise, labels, picked, goal=goals.get("reached_by_noise_per_month"), is_log=True)
        slow = [float(row.get("time_to_cull_longest_s") or 0) for row in limits]
        goal = goals.get("time_to_cull_s")
        yield _bars("Longest time until a lone sick container is culled, in seconds", slow, labels, picked, goal=goal)
        yield _limits_table(limits, chosen)
    budgets = result.get("budgets") or []
    if budgets:
        yield "<h2>The budget</h2>"
        labels, picked = _labels(budgets, "budget"), _place(budgets, "budget", result.get("budget"))
        failed = [float(row.get("avoidable_failed_requests") or 0) for row in budgets]
        yield _bars("Avoidable failed requests with each budget", failed, labels, picked)
        refused = [float(row.get("refused_by_window") or 0) for row in budgets]
        yield _bars("Containers that the budget refused", refused, labels, picked)


def _limits_table(limits: Sequence[Row], chosen: Any) -> str:
    heads = (
        "limit",
        "noise reaches it, times a month",
        "healthy culled when played",
        "longest to cull",
        "meets the goals",
    )
    rows = ["".join(f'<th class="n">{head}</th>' for head in heads)]
    for row in limits:
        cells = (
            row.get("error_limit"),
            _short(row.get("reached_by_noise_per_month")),
            _short(row.get("healthy_culls_simulated")),
            f"{_short(row.get('time_to_cull_longest_s'))} s",
            ("chosen" if row.get("error_limit") == chosen else "yes") if row.get("is_met") else "no",
        )
        rows.append("".join(f'<td class="n">{escaped(cell)}</td>' for cell in cells))
    return f'<div class="wide">{table(rows)}</div>'


def _labels(rows: Sequence[Row], key: str) -> list[str]:
    """One label for each row; with many rows only some of them have a text."""
    step = -(-len(rows) // LABELS)
    return [str(row.get(key)) if at % step == 0 else "" for at, row in enumerate(rows)]


def _place(rows: Sequence[Row], key: str, chosen: Any) -> int | None:
    return next((at for at, row in enumerate(rows) if row.get(key) == chosen), None)


def _bars(
    caption: str,
    values: Sequence[float],
    labels: Sequence[str],
    picked: int | None,
    *,
    goal: float | None = None,
    is_log: bool = False,
) -> str:
    """A bar for each value; the chosen one has another colour, and the goal is a line."""
    heights = [_height(value, is_log=is_log) for value in values]
    goal_height = None if goal is None else _height(float(goal), is_log=is_log)
    top = max(1.0, *heights, goal_height or 0.0) * _MARGIN
    wide = WIDTH / len(values)
    every = [(at * wide + wide * 0.1, wide * 0.8, top - height) for at, height in enumerate(heights)]
    shapes = [
        bars((one for at, one in enumerate(every) if at != picked), top, "plain"),
        bars((one for at, one in enumerate(every) if at == picked), top, "chosen"),
    ]
    if is_log:
        shapes += [line([(0, top - tens), (WIDTH, top - tens)], "tens") for tens in range(1, int(top) + 1)]
    if goal_height is not None:
        shapes.append(line([(0, top - goal_height), (WIDTH, top - goal_height)], "goal"))
    most = f"the highest is {_short(max(values))}"
    of_goal = "" if goal is None else f", the line is the goal, {_short(goal)}"
    said = f"{caption}: {most}{of_goal}"
    return figure(said, box(top, 110, shapes, said), scale(labels, "each"))


def _height(value: float, *, is_log: bool) -> float:
    return max(0.0, log10(max(value, _LEAST)) - log10(_LEAST)) if is_log else value


# -- a sweep ----------------------------------------------------------------------------------------------------------


def sweep(result: Row) -> Iterator[str]:
    """One picture for each figure: bars for one setting, a grid for two, else a table alone."""
    rows: Sequence[Row] = (result.get("rows") or [])[:MOST_ROWS]
    swept: Sequence[str] = result.get("swept") or []
    if not rows or not swept:
        return
    found = [key for key in _FIGURES if any(_figure(row, key) is not None for row in rows)]
    if "avoidable_failed_requests" in found:
        found = [key for key in found if key != "failed_requests"]
    yield from _scatter(rows, swept)
    for key in found:
        if len(swept) == 1:
            values = [float(_figure(row, key) or 0) for row in rows]
            names = [str((row.get("settings") or {}).get(swept[0])) for row in rows]
            labels = _labels([{"name": name} for name in names], "name")
            yield _bars(f"{_FIGURES[key]} by {swept[0]}", values, labels, None)
        elif len(swept) == PAIR:
            yield _grid(rows, swept, key)
    yield "<h2>All figures</h2>"
    yield _sweep_table(rows, swept, found)


def _scatter(rows: Sequence[Row], swept: Sequence[str]) -> Iterator[str]:
    """Culls (of healthy containers) against (avoidable) failed requests: a dot for each row, the best ones marked."""
    right_key, up_key = _AXES[all(_figure(row, "culls_of_healthy") is None for row in rows)]
    both = [(_figure(row, right_key), _figure(row, up_key), row) for row in rows]
    points = [(float(x), float(y), row) for x, y, row in both if x is not None and y is not None]
    if any(len({point[axis] for point in points}) <= 1 for axis in (0, 1)):
        return  # there is nothing to trade
    right = max(1.0, *(x for x, _, _ in points)) * _MARGIN
    top = max(1.0, *(y for _, y, _ in points)) * _MARGIN
    best = [
        (x, y, row) for x, y, row in points if not any(a <= x and b <= y and (a, b) != (x, y) for a, b, _ in points)
    ]
    shapes: list[str] = []
    for kind, chosen in (("refused", points), ("cull", best)):
        for x, y, row in chosen:
            shapes += dots([(x / right * WIDTH, top - y)], kind, _named(row, swept))
    names = "; ".join(sorted({_named(row, swept) for _, _, row in best})[:8])
    said = (
        f"The trade-off: to the right more {_FIGURES[right_key]}, upwards more {_FIGURES[up_key]}, "
        f"at most {_short(top / _MARGIN)}. "
        f"Nothing is better in both than the squares: {names}"
    )
    yield figure(said, box(top, 180, shapes, said), scale(["0", f"{_short(right / _MARGIN)} {_FIGURES[right_key]}"]))


def _grid(rows: Sequence[Row], swept: Sequence[str], key: str) -> str:
    """A cell for each pair of values, with a colour by size."""
    first, second = swept
    cells = {
        ((row.get("settings") or {}).get(first), (row.get("settings") or {}).get(second)): _figure(row, key)
        for row in rows
    }
    left, above = (list(dict.fromkeys(pair[axis] for pair in cells)) for axis in (0, 1))
    known = [float(value) for value in cells.values() if value is not None] or [0.0]
    least, most = min(known), max(known)

    def colour(value: Any) -> int:
        return 0 if not value or least == most else 1 + int(4 * (value - least) / (most - least))

    heads = "".join(f'<th class="n">{escaped(f"{second} {value}")}</th>' for value in above)
    lines = [f"<td></td>{heads}"]
    for name in left:
        line_ = "".join(
            f'<td class="h{colour(value)}"><i></i>{_short(value)}</td>'
            for value in (cells.get((name, other)) for other in above)
        )
        lines.append(f'<th scope="row">{escaped(f"{first} {name}")}</th>{line_}')
    return figure(_FIGURES[key], f'<div class="wide grid">{table(lines)}</div>')


def _sweep_table(rows: Sequence[Row], swept: Sequence[str], found: Sequence[str]) -> str:
    heads = [*swept, *(_FIGURES[key] for key in found)]
    lines = ["".join(f'<th class="n">{escaped(head)}</th>' for head in heads)]
    for row in rows:
        values = [(row.get("settings") or {}).get(name) for name in swept]
        figures = [_short(_figure(row, key)) for key in found]
        lines.append("".join(f'<td class="n">{escaped(cell)}</td>' for cell in (*values, *figures)))
    return f'<div class="wide">{table(lines)}</div>'


def _named(row: Row, swept: Sequence[str]) -> str:
    return ", ".join(f"{name} {(row.get('settings') or {}).get(name)}" for name in swept)


def _figure(row: Row, key: str) -> Any:
    return (row.get("figures") or {}).get(key)


def _short(value: Any) -> str:
    """A number in few digits; ``-`` for none."""
    if value is None:
        return "-"
    if 0 < value < _LEAST:
        return f"< {_LEAST}"
    return f"{value:,.0f}" if abs(value) >= _ROUNDED or value == int(value) else f"{value:.2g}"
