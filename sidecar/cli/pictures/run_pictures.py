"""The pictures of one run: budget, weight of the fleet, errors of all containers, and the most eventful ones."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise
from typing import Any, Final, NamedTuple

from sidecar.cli.pictures import run_series
from sidecar.cli.pictures.run_series import COLUMNS, ROWS, clock, extremes
from sidecar.cli.pictures.svg_shapes import WIDTH, area, bars, box, dots, figure, line, number, scale

STYLE: Final = """\
:root{--field:#f6f8fa;--edge:#fff;--ink:#1f2328;--use:#2f7dc2;--cull:#c2362f;--suspect:#d98a1f;--calm:#b6bdc4;\
--h1:#d3e4f3;--h2:#9ecae1;--h3:#4f9bd0;--h4:#1f66ab;--h5:#08306b}
@media (prefers-color-scheme:dark){:root{--field:#161b22;--edge:#0d1117;--ink:#e6edf3;--use:#6cb6ff;--cull:#ff7b72;\
--suspect:#e3a14a;--calm:#57606a;--h1:#10263d;--h2:#1d4a77;--h3:#2f7dc2;--h4:#79bdf5;--h5:#e3f2ff}}
svg .fill{fill:var(--use);opacity:.75}svg .calm{fill:var(--calm)}
svg .weighs{fill:var(--suspect)}svg .limit{stroke:var(--ink);stroke-dasharray:5 4}
svg .use{stroke:var(--use);stroke-width:2}svg .heat *{vector-effect:none}
.h1{--of:var(--h1)}.h2{--of:var(--h2)}.h3{--of:var(--h3)}.h4{--of:var(--h4)}.h5{--of:var(--h5)}
.suspect{--of:var(--suspect)}.out{--of:var(--ink)}
svg .band{stroke:var(--of);stroke-width:1}svg .bar{fill:var(--of,var(--use))}
svg .cull,svg .cull.edge{stroke-linecap:square;stroke:var(--cull);stroke-width:6}
svg .refused,svg .refused.edge{stroke-linecap:round;stroke:var(--ink);stroke-width:5}
svg .cull.edge{stroke-width:9;stroke:var(--edge)}svg .refused.edge{stroke-width:8;stroke:var(--edge)}
.key{font-size:.8rem}.key span{white-space:nowrap;margin-right:1em}
.key i{display:inline-block;width:.8em;height:.8em;margin-right:.35em;background:var(--of)}
.key .cull{background:var(--cull)}.key .refused{background:var(--ink);border-radius:50%;width:.65em;height:.65em}
.key .weighs{background:var(--calm)}.key .errs{background:var(--use)}
.many{display:grid;grid-template-columns:repeat(auto-fill,minmax(17rem,1fr));gap:0 1.5rem}.many figure{margin:.6rem 0}
.many figcaption{font-size:.78rem;min-height:2.6em;line-height:1.3}
"""

SHOWN: Final = 12
"""Number of containers that have a picture of their own."""

LOUDEST: Final = 3
"""Number of containers with most errors that have one if nothing happened to any container."""

TITLES: Final = 300
"""Maximum number of dots with a text of their own; more are drawn without."""

_LEAST_S: Final = 600.0
"""The shortest time that a picture of one container shows."""

_PARTS: Final = (0.5, 1.0, 2.0, 10.0)
"""The classes of colour: parts of the limit."""


class Mark(NamedTuple):
    """A cull (``gate`` is empty) or a refusal of a container."""

    at_s: float
    place: int
    gate: str
    said: str


class RunPictures:
    """The pictures of one column of the answers: ``rules`` as in the JSON, and the duration and size of the whole."""

    def __init__(self, rules: Mapping[str, Any], *, duration_s: float, fleet: int, start_unix: float | None) -> None:
        self.series: Mapping[str, Any] = rules.get("series") or {}
        self._duration_s = max(1.0, duration_s)
        self._fleet = fleet
        self._start_unix = start_unix
        self._step_s = float(self.series.get("step_s") or 60.0)
        self._containers: Sequence[Mapping[str, Any]] = self.series.get("containers") or []
        self._count = run_series.columns(self._duration_s, self._step_s)
        settings = rules.get("settings") or {}
        self._set_limit = (float(settings.get("error_limit") or 5), float(settings.get("error_window_s") or 60))
        window_s = self._set_limit[1]
        self._errors = {
            one["container"]: run_series.in_window(one.get("errors") or [], self._step_s, window_s)
            for one in self._containers
        }
        counted_s = float(self.series.get("count_s") or self._step_s)
        self._count_s = max(window_s, counted_s)
        self._limit = self._set_limit[0] * max(1.0, self._count_s / self._set_limit[1])
        names = {one["container"]: str(one.get("name", one["container"])) for one in self._containers}
        self._marks = sorted([*_culls(rules, names), *_refusals(rules, names)])

    def all(self) -> Iterator[str]:
        """Each picture, with its caption and its key; nothing without series."""
        if self.series:
            yield self.budget()
            yield from self.heat_map()
            yield from self.each_container()
            yield self.weight()

    # -- the whole fleet --------------------------------------------------------------------------------------------

    def budget(self) -> str:
        """Tokens in use over time, and the budget."""
        used = extremes(self.series.get("budget_used") or [], 0, self._duration_s, self._count, lowest=False)
        limit = self.series.get("budget")
        top = max(1.0, *used, limit or 0.0)
        shapes = [area(self._columns([top - one for one in used]), WIDTH, top, "fill")]
        if limit:
            shapes.append(line([(0, top - limit), (WIDTH, top - limit)], "limit"))
        most = number(max(used))
        said = f"Tokens in use: at most {most}" + (f" of {number(limit)} (dashed)" if limit else "")
        return figure(said, box(top, 90, shapes, said), self._clock())

    def weight(self) -> str:
        """The weight of the fleet at the balancer over time."""
        shares = run_series.lowest_share(self._containers, self._fleet, self._duration_s, self._count)
        lowest = min(shares)
        top = max(10.0, 1.05 * (100 - lowest))
        said = (
            f"Weight at the balancer: the whole fleet had {number(lowest)} % at the lowest. "
            f"Drawn is what is missing; the top is {number(top)} % of the fleet"
        )
        shapes = [area(self._columns([top - (100 - share) for share in shares]), WIDTH, top, "weighs")]
        return figure(said, box(top, 70, shapes, said), self._clock())

    def heat_map(self) -> Iterator[str]:
        """The errors of each container to which anything happened, a line for each, with culls and refusals."""
        if not self._containers:
            yield figure("Errors over time: none in any container")
            return
        rows = run_series.merged([self._peaks(one) for one in self._containers], ROWS)
        per_row = -(-len(self._containers) // len(rows))
        order = {one["container"]: at // per_row for at, one in enumerate(self._containers)}
        shapes = ['<g class="heat" shape-rendering="crispEdges">', *self._bands(rows), "</g>"]
        for is_cull in (False, True):
            marks = [mark for mark in self._marks if (not mark.gate) is is_cull and mark.place in order]
            shapes += self._dots(marks, lambda mark: order[mark.place] + 0.5, is_cull=is_cull)
        group = "" if per_row == 1 else f", {per_row} containers in each line"
        others = "" if len(self._containers) >= self._fleet else f" of {self._fleet}, the others had none"
        said = f"Errors over time of {len(self._containers)} containers{others}{group}; {self._by_step()}"
        height_px = min(max(60, 14 * len(rows)), max(320, 4 * len(rows)))
        yield figure(said, box(len(rows), height_px, shapes, said), self._clock(), self._key())

    def _bands(self, rows: Sequence[Sequence[int]]) -> Iterator[str]:
        """One path for each class of colour, of runs of columns that have it."""
        paths: dict[int, list[str]] = defaultdict(list)
        for at, row in enumerate(rows):
            classes = [self._class_of(errors) for errors in row]
            begin = 0
            for column in range(1, len(classes) + 1):
                if column == len(classes) or classes[column] != classes[begin]:
                    if classes[begin]:
                        x, width = begin * WIDTH / len(row), (column - begin) * WIDTH / len(row)
                        paths[classes[begin]].append(f"M{number(x)} {at}.5h{number(width)}")
                    begin = column
        for each, path in sorted(paths.items()):
            yield f'<path class="band h{each}" d="{"".join(path)}"/>'

    def _class_of(self, errors: float) -> int:
        return 1 + sum(errors >= part * self._limit for part in _PARTS) if errors else 0

    # -- single containers ------------------------------------------------------------------------------------------

    def each_container(self) -> Iterator[str]:
        """Small pictures of the most eventful containers, each of the time in which something happened to it."""
        marks = defaultdict(list)
        for mark in self._marks:
            marks[mark.place].append(mark)

        def rank(one: Mapping[str, Any]) -> tuple[int, int, int]:
            own = marks[one["container"]]
            culls = sum(not mark.gate for mark in own)
            return culls, len(own), sum(errors for _, errors in self._errors[one["container"]])

        eventful = [one for one in self._containers if marks[one["container"]]]
        chosen = sorted(eventful or self._containers, key=rank, reverse=True)[: SHOWN if eventful else LOUDEST]
        if chosen:
            pictures = "".join(self._container(one, marks[one["container"]]) for one in chosen)
            said = "The most eventful containers; bars are errors, dashed is the limit, below is the weight"
            yield f'<h3>{said}</h3><div class="many">{pictures}</div>'
            yield (
                '<p class="key"><span><i class="errs"></i>errors</span><span><i class="weighs"></i>weight</span>'
                '<span><i class="suspect"></i>suspect</span><span><i class="out"></i>out of service</span>'
                '<span><i class="cull"></i>culled</span><span><i class="refused"></i>refused</span></p>'
            )

    def _container(self, one: Mapping[str, Any], marks: Sequence[Mark]) -> str:
        begin_s, end_s = self._times_of(one, marks)
        scaled = WIDTH / (end_s - begin_s)

        def x(at_s: float) -> float:
            return min(WIDTH, max(0.0, (at_s - begin_s) * scaled))

        rows = [(bucket * self._step_s, errors) for bucket, errors in self._errors[one["container"]]]
        rows = [(at_s, errors) for at_s, errors in rows if begin_s <= at_s + self._step_s and at_s <= end_s]
        top = max([1.5 * self._limit, *(errors for _, errors in rows)])
        wide_s = max(self._step_s, (end_s - begin_s) / COLUMNS)
        loudest: dict[float, int] = defaultdict(int)
        for at_s, errors in rows:
            left_s = begin_s + (at_s - begin_s) // wide_s * wide_s
            loudest[left_s] = max(loudest[left_s], errors)
        shapes = [
            bars(((x(at), x(at + wide_s) - x(at), top - errors) for at, errors in loudest.items()), top, "bar"),
            line([(0, top - self._limit), (WIDTH, top - self._limit)], "limit"),
        ]
        for is_cull in (False, True):
            own = [(x(mark.at_s), 0.0) for mark in marks if (not mark.gate) is is_cull]
            shapes += dots(own[:TITLES], "cull" if is_cull else "refused")
        peak = max((errors for _, errors in rows), default=0)
        said = (
            f"{one.get('name', one['container'])}: {_story(marks)}; at most {peak} errors in {number(self._count_s)} s"
        )
        below = box(10, 14, self._weight_band(one, begin_s, end_s), "weight and state")
        ends = (clock(at_s, self._start_unix, self._duration_s) for at_s in (begin_s, end_s))
        return figure(said, box(top, 64, shapes, said), below, scale(list(ends)))

    def _weight_band(self, one: Mapping[str, Any], begin_s: float, end_s: float) -> Iterator[str]:
        """The weight as an area, and the states in which the container is suspect or out of service below it."""
        for_s = end_s - begin_s
        weights = _from(one.get("weight") or [], begin_s, 100.0)
        lows = extremes(weights[1], weights[0], for_s, COLUMNS, lowest=True)
        heights = [(column * WIDTH / COLUMNS, 7 - 0.07 * low) for column, low in enumerate(lows)]
        yield area(heights, WIDTH, 7, "calm")
        first, states = _from(one.get("state") or [], begin_s, "up")
        spans = [(0.0, first), *states, (for_s, "")]
        for (at_s, state), (until_s, _) in pairwise(spans):
            kind = {"suspect": "suspect", "draining": "out", "down": "out"}.get(state)
            if kind and at_s < for_s:
                width = max(3.0, (min(until_s, for_s) - at_s) * WIDTH / for_s)
                yield bars([(at_s * WIDTH / for_s, width, 7.5)], 10, f"bar {kind}")

    def _times_of(self, one: Mapping[str, Any], marks: Sequence[Mark]) -> tuple[float, float]:
        """The time to show: from the first to the last event with a margin, but some minutes at least."""
        culls = [mark.at_s for mark in marks if not mark.gate] or [mark.at_s for mark in marks]
        errors = self._errors[one["container"]]
        loud = max((number for _, number in errors), default=0)
        times = culls[:4] or [bucket * self._step_s for bucket, number in errors if number * 2 >= loud] or [0.0]
        margin_s = max((max(times) - min(times)) / 8, (_LEAST_S - (max(times) - min(times))) / 2)
        begin_s = max(0.0, min(times) - margin_s)
        return begin_s, max(begin_s + 60.0, min(self._duration_s, max(times) + margin_s))

    # -- what they share --------------------------------------------------------------------------------------------

    def _columns(self, values: Sequence[float]) -> list[tuple[float, float]]:
        return [(column * WIDTH / len(values), value) for column, value in enumerate(values)]

    def _peaks(self, one: Mapping[str, Any]) -> list[int]:
        return run_series.peaks(self._errors[one["container"]], self._step_s, self._duration_s, self._count)

    def _dots(self, marks: Sequence[Mark], y: Any, *, is_cull: bool) -> Iterator[str]:
        kind, scaled = ("cull" if is_cull else "refused"), WIDTH / self._duration_s
        for mark in marks[:TITLES]:
            yield from dots([(mark.at_s * scaled, y(mark))], kind, mark.said)
        # Many dots in one place look like one, so each place is drawn once.
        yield from dots({(round(mark.at_s * scaled), y(mark)): None for mark in marks[TITLES:]}, kind)

    def _clock(self) -> str:
        return scale([clock(part * self._duration_s / 4, self._start_unix, self._duration_s) for part in range(5)])

    def _by_step(self) -> str:
        limit, window_s = self._set_limit
        where = "" if self._count_s == window_s else f" in {number(window_s)} s"
        return f"colours: errors in {number(self._count_s)} s; the limit is {number(limit)}{where}"

    def _key(self) -> str:
        bounds = [f"{part * self._limit:.2g}" for part in _PARTS]
        words = [f"under {bounds[0]}", *(f"from {bound}" for bound in bounds)]
        colours = "".join(f'<span><i class="h{at}"></i>{word}</span>' for at, word in enumerate(words, 1))
        marks = '<span><i class="cull"></i>culled</span><span><i class="refused"></i>refused</span>'
        return f'<p class="key">{colours}{marks}</p>'


def _culls(rules: Mapping[str, Any], names: Mapping[int, str]) -> Iterator[Mark]:
    for one in rules.get("each_cull") or []:
        place = one["container"]
        yield Mark(one["at_s"], place, "", f"{names.get(place, place)} culled: {one.get('reason', '')}")


def _refusals(rules: Mapping[str, Any], names: Mapping[int, str]) -> Iterator[Mark]:
    for one in rules.get("each_refusal") or []:
        gate, place = str(one.get("gate") or "refused"), one["container"]
        yield Mark(one["at_s"], place, gate, f"{names.get(place, place)} refused: {gate}")


def _story(marks: Sequence[Mark]) -> str:
    """Culls and refusals of one container in some words."""
    culls = sum(not mark.gate for mark in marks)
    gates = sorted({mark.gate for mark in marks if mark.gate})
    said = "not culled" if not culls else "culled once" if culls == 1 else f"culled {culls} times"
    return f"{said}, refused by {' and '.join(gates)}" if gates else said


def _from(steps: Sequence[Sequence[Any]], begin_s: float, first: Any) -> tuple[Any, list[tuple[float, Any]]]:
    """The value at ``begin_s``, and the later steps in seconds from then."""
    for at_s, value in steps:
        if at_s <= begin_s:
            first = value
    return first, [(at_s - begin_s, value) for at_s, value in steps if at_s > begin_s]
