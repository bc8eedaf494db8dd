"""The runs of ``backtest``: they read the past, load the settings, and play each settings under both readings."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, Final, NamedTuple

import click

from sidecar.backtest.busy_times import ALL_TIMES, BusyTimes, busy_times, least_errors
from sidecar.backtest.past import Past, PastError, clock
from sidecar.backtest.played_past import PlayedPast
from sidecar.backtest.usual_load import usual_load
from sidecar.cli import parallel_runs, past_source, simulated_days
from sidecar.cli.figure_limits import FigureLimit
from sidecar.cli.parallel_runs import OnPart
from sidecar.cli.past_source import Source
from sidecar.cli.simulated_days import Asked
from sidecar.cli.terminal import plain
from sidecar.config.slices import Config
from sidecar.runlock import durations
from sidecar.simulation import day_file, day_report, suggestion, sweep
from sidecar.simulation.day_file import Day
from sidecar.simulation.day_outcome import DAY_S, DayOutcome
from sidecar.simulation.day_table import DayError
from sidecar.simulation.fleet_rules import NO_CULLING, FleetRules
from sidecar.simulation.recording import IN_PLACE, replay
from sidecar.simulation.suggestion import RecordedErrors
from sidecar.simulation.sweep import SweepError

OPTIMISTIC: Final = "optimistic"
PESSIMISTIC: Final = "pessimistic"
READINGS: Final = (
    "Optimistic: the errors of a culled container end with it, until the recorded ones are over or it restarted then.",
    "Pessimistic: its replacement has the recorded errors too. The truth is between the two.",
    "What was restarted then is restarted here too, so settings that cull less look better than they would have been.",
    "Whether the others could have carried the requests of a culled container is not in the past.",
)


_UNCOUNTED: Final = (
    "For some time no container was in service. The requests that came then are not known, so they are not counted as "
    "failed."
)


class Way(NamedTuple):
    """How a past is played: a replacement takes ``replace_s`` seconds; ``thins`` as ``simulation.recording`` has it.

    ``report_requests``: the apps report their requests, not only errors.
    """

    replace_s: float
    seed: int
    thins: bool
    report_requests: bool


class Column(NamedTuple):
    """One column of the answers: the rules, and the reading of the unknown. ``is_yours``: not a baseline."""

    rules: FleetRules
    goes_on: bool
    is_yours: bool = False

    def play(self, played: PlayedPast, way: Way, on_part: OnPart) -> DayOutcome:
        """What these rules would have done."""
        done_s, for_s = 0.0, played.for_s

        def on_progress(seconds: float) -> None:
            nonlocal done_s
            done_s += seconds
            on_part(min(1.0, done_s / for_s))

        scheduler = replace(IN_PLACE, after_s=(way.replace_s, way.replace_s))
        return replay(
            played,
            self.rules,
            goes_on=self.goes_on,
            scheduler=scheduler,
            seed=way.seed,
            thins=way.thins,
            on_progress=on_progress,
        )


def columns(article: Sequence[FleetRules], yours: Sequence[FleetRules]) -> list[Column]:
    """Doing nothing, and the article's rule and yours, each under both readings."""
    found = [Column(NO_CULLING, goes_on=True)]
    for rules in [*article, *yours]:
        is_yours = rules in yours
        name = "" if is_yours and len(yours) == 1 else f"{rules.name}, "
        found += [
            Column(replace(rules, name=f"{name}{reading}"), reading == PESSIMISTIC, is_yours)
            for reading in (OPTIMISTIC, PESSIMISTIC)
        ]
    return found


class Plays(NamedTuple):
    """What the command asks for, beside the source and the way: the settings, and which runs."""

    settings: Path | None
    compare: tuple[Path, Path] | None
    sweep: str | None
    suggest: bool
    article: bool


def run(source: Source, way: Way, plays: Plays, asked: Asked) -> int:
    """Play the past and print the answers; return the exit code. Raises UsageError with the place of a problem."""
    limits = simulated_days.limits_of(asked.fail_if, _example(has_sweep=plays.sweep is not None))
    if (plays.compare is not None) + (plays.sweep is not None) + plays.suggest > 1:
        raise click.UsageError("--compare, --sweep and --suggest cannot be given together")
    try:
        combinations = sweep.parse(plays.sweep) if plays.sweep else []
        configured = _configured(plays, combinations, way)
        if combinations:
            rules = [rules for rules, _ in configured]
            simulated_days.refuse_ignored(combinations, rules, reports_requests=way.report_requests)
        with parallel_runs.progress("reading") as on_part:
            past = past_source.read(source, on_part)
        asked = asked._replace(day=past.source)
        if plays.suggest:
            return _suggest(past, configured[0][1], plays, asked)
        yours = [rules for rules, _ in configured]
        baselines = [simulated_days.article_rules(configured)] if plays.article and not combinations else []
        _check_step(past, [*baselines, *yours])
    except (DayError, PastError, SweepError) as error:
        raise click.UsageError(str(error)) from None
    played = PlayedPast(past, way.report_requests, _busy(past, [*baselines, *yours]))
    shown = columns(baselines, yours)
    with parallel_runs.progress("playing") as on_part:
        runs = [partial(one.play, played, way) for one in shown]
        outcomes = parallel_runs.run_all(runs, on_part, asked.cores)
    result = _result(played, way, outcomes, has_series=asked.html is not None)
    mine = [one for one, column in zip(result["rules"], shown, strict=True) if column.is_yours]
    if combinations:
        return _sweep(result, combinations, mine, limits, asked)
    return simulated_days.answer(asked, result, _text(result), limits, mine)


def _example(*, has_sweep: bool) -> dict[str, Any]:
    """A column with the names of all figures that ``--fail-if`` can have."""
    column = day_report.example(is_recorded=True) | {"without_service_s": 0.0, "failed_without_service": 0}
    return {"rules": "", **sweep.flat(column)} if has_sweep else column


def _sweep(
    result: Mapping[str, Any],
    combinations: Sequence[Mapping[str, Any]],
    mine: Sequence[Mapping[str, Any]],
    limits: Sequence[FigureLimit],
    asked: Asked,
) -> int:
    """Show the figures of each combination: the means of both readings."""
    pairs = [list(mine[2 * place : 2 * place + 2]) for place in range(len(combinations))]
    about = {name: result[name] for name in ("day", "duration_s", "containers", "start_unix")}
    notes = ["Each figure is the mean of both readings; --json has both.", *result["notes"]]
    found = sweep.as_json(about, [asked.seed], list(zip(combinations, pairs, strict=True))) | {"notes": notes}
    rows = [{"rules": sweep.written(row["settings"]), **row["figures"]} for row in found["rows"]]
    title = f"{plain(result['day'])}: {result['containers']} containers, {len(mine)} runs"
    head = [*combinations[0], *_SWEPT.values()]
    cells = [
        [*map(str, row["settings"].values()), *(_cell(row["figures"][name]) for name in _SWEPT)]
        for row in found["rows"]
    ]
    text = "\n".join([title, "", *sweep.aligned([head, *cells]), "", *map(plain, notes)])
    return simulated_days.answer(asked, found, text, limits, rows)


def _suggest(past: Past, config: Config, plays: Plays, asked: Asked) -> int:
    """Suggest limits for a fleet like that of the past when all is well. Raises DayError and PastError."""
    if asked.fail_if:
        raise click.UsageError("--fail-if: cannot be given together with --suggest, whose runs are of several limits")
    usual = usual_load(past, config.judging.error_window)
    settings = day_file.read_toml(plays.settings) if plays.settings else {}
    day = Day(
        past.source, past.at(past.span[1]) - past.at(past.span[0]), usual.containers, usual.load, settings=settings
    )
    record = RecordedErrors(usual.errors, usual.recorded_s)
    result = simulated_days.suggestion_for(plays.settings or Path("--suggest"), day, config, asked, record)
    return simulated_days.answer(asked, result, "\n".join(suggestion.as_text(result)), [], [])


# -- before the play --------------------------------------------------------------------------------------------------


def _configured(plays: Plays, combinations: Sequence[Mapping[str, Any]], way: Way) -> list[tuple[FleetRules, Config]]:
    """Your rules with their configuration: of a file, or of two files or each combination over it. Raises DayError."""
    settings, compare = plays.settings, plays.compare
    base = day_file.read_toml(settings) if settings else {}
    given = [("yours", str(settings or "--settings"), base)]
    if compare:
        names = [file.stem for file in compare]
        if names[0] == names[1]:
            names = [f"{names[0]} (A)", f"{names[1]} (B)"]
        files = zip(names, compare, strict=True)
        given = [(name, str(file), {**base, **day_file.read_toml(file)}) for name, file in files]
    if combinations:
        given = [(sweep.written(one), "--sweep", {**base, **one}) for one in combinations]
    loaded = (simulated_days.rules_of(*one) for one in given)
    return [(replace(rules, reports_results=way.report_requests), config) for rules, config in loaded]


def _check_step(past: Past, compared: Sequence[FleetRules]) -> None:
    """Raise PastError if a step is longer than a window: then nobody knows how many errors a window had."""
    window_s = min(rules.window_s for rules in compared)
    if past.step_s > window_s:
        step, window = durations.write(past.step_s), durations.write(window_s)
        raise PastError(f"{past.source}: its steps of {step} are longer than the error window of {window}: set --step")


def _busy(past: Past, compared: Sequence[FleetRules]) -> BusyTimes:
    """The times that any of these rules needs; all for rules that judge by requests."""
    least = [least_errors(rules.policy) for rules in compared]
    needed = [one for one in least if one is not None]
    if len(needed) < len(least) or any(rules.reports_results for rules in compared):
        return ALL_TIMES
    return busy_times(past, min(needed), max(rules.window_s for rules in compared))


# -- the answers ------------------------------------------------------------------------------------------------------


def _result(played: PlayedPast, way: Way, outcomes: Sequence[DayOutcome], *, has_series: bool) -> dict[str, Any]:
    past, left_out = played.past, played.past.total_errors - played.errors
    notes = [*READINGS, *past.unknowns, *past.notices.lines()]
    if left_out:
        notes.append(
            f"{left_out:,} of {past.total_errors:,} errors were when no container could have been a suspect; these "
            "times are not played."
        )
    if not past.has_requests and any(one.without_service for one in outcomes):
        notes.append(_UNCOUNTED)
    failed = {one.rules: round(one.failed) + left_out + _unserved(played, one) for one in outcomes}
    return {
        "kind": "backtest",
        "day": past.source,
        "duration_s": played.for_s,
        "containers": played.most_containers,
        "seed": way.seed,
        "start_unix": played.start_unix,
        "notes": notes,
        "rules": [_column(one, outcomes, played, failed, has_series=has_series) for one in outcomes],
    }


def _unserved(played: PlayedPast, one: DayOutcome) -> int:
    """The requests that came while no container was in service; 0 if the requests are not known."""
    return played.requests_in(one.without_service) if played.past.has_requests else 0


def _column(
    one: DayOutcome, outcomes: Sequence[DayOutcome], played: PlayedPast, failed: Mapping[str, int], *, has_series: bool
) -> dict[str, Any]:
    ours = failed[one.rules]
    figures = day_report.figures_of(one, outcomes) | {
        "failed_requests": ours,
        "avoidable_less_than": {rules: other - ours for rules, other in failed.items() if rules != one.rules},
        "without_service_s": round(sum(end_s - begin_s for begin_s, end_s in one.without_service), 1),
    }
    if played.past.has_requests:
        figures["failed_without_service"] = _unserved(played, one)
    return {**figures, "series": one.series()} if has_series else figures


_A_DAY: Final = "culls per day"
_Rows = Sequence[tuple[str, Callable[[Mapping[str, Any]], Any]]]
_ROWS: Final[_Rows] = (
    ("failed requests", lambda one: one["failed_requests"]),
    ("  while no container was in service", lambda one: one.get("failed_without_service") or None),
    ("fewer than doing nothing", lambda one: one["avoidable_less_than"].get(NO_CULLING.name)),
    ("culls", lambda one: one["culls"]),
    (_A_DAY, lambda one: one["culls_per_day"]),
)
_LAST_ROWS: Final[_Rows] = (
    ("seconds from suspect to cull: median", lambda one: (one["suspect_to_cull_s"] or {}).get("median")),
    ("seconds from suspect to cull: longest", lambda one: (one["suspect_to_cull_s"] or {}).get("max")),
    ("suspects that recovered without a restart", lambda one: one["recovered_without_restart"]),
    ("most tokens used in one window", lambda one: one["most_tokens_in_a_window"]),
    ("most containers out of service at once", lambda one: one["most_out_of_service"]),
    ("seconds without any container in service", lambda one: one["without_service_s"] or None),
)
_SWEPT: Final = {
    "culls": "culls",
    "culls_per_day": "culls a day",
    "failed_requests": "failed requests",
    "recovered_without_restart": "recovered",
    "refused_containers": "refused",
    "most_tokens_in_a_window": "tokens",
    "most_out_of_service": "out at once",
}
_MOST_SHOWN: Final = 10


def _text(result: Mapping[str, Any]) -> str:
    """The answers as a table for a terminal, the first culls of yours, and the notes."""
    found, start = result["rules"], result["start_unix"]
    rows = [("", [one["rules"] for one in found])]
    rows += _known([row for row in _ROWS if row[0] != _A_DAY or result["duration_s"] >= DAY_S], found)
    for heading, key in (("  for: ", "culls_by_cause"), ("incarnations refused, gate: ", "refused_containers")):
        names = dict.fromkeys(name for one in found for name in one[key])
        rows += [(plain(f"{heading}{name}"), [_cell(one[key].get(name, 0)) for one in found]) for name in names]
    rows += _known(_LAST_ROWS, found)
    widths = [max(len(cells[place]) for _, cells in rows) for place in range(len(found))]
    first = max(len(words) for words, _ in rows)
    table = (
        "  ".join(
            [words.ljust(first), *(cell.rjust(width) for cell, width in zip(cells, widths, strict=True))]
        ).rstrip()
        for words, cells in rows
    )
    until = clock(start + result["duration_s"])
    title = f"{plain(result['day'])}: {result['containers']} containers, {clock(start)} to {until}"
    last = found[-1]
    culls = [plain(f"  {clock(start + cull['at_s'])}  {cull['name']}: {cull['reason']}") for cull in last["each_cull"]]
    if culls:
        more = [f"  and {len(culls) - _MOST_SHOWN} more: --json has all"] if len(culls) > _MOST_SHOWN else []
        culls = ["", f"first culls, {last['rules']}:", *culls[:_MOST_SHOWN], *more]
    return "\n".join([title, "", *table, *culls, "", *map(plain, result["notes"])])


def _known(rows: _Rows, found: Sequence[Mapping[str, Any]]) -> list[tuple[str, list[str]]]:
    """The cells of the rows of which any column knows the figure."""
    figures = [(words, [figure(one) for one in found]) for words, figure in rows]
    return [(words, [*map(_cell, values)]) for words, values in figures if any(value is not None for value in values)]


def _cell(value: float | None) -> str:
    return "-" if value is None else f"{value:,g}" if isinstance(value, float) else f"{value:,}"
