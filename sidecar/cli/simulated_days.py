"""The runs of ``simulate``: they load the settings of each column, and the simulation."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, Final, NamedTuple

import click

from sidecar.cli import figure_limits, parallel_runs
from sidecar.cli.exit_codes import EXIT_FAILED
from sidecar.cli.figure_limits import FigureLimit
from sidecar.cli.parameters import show
from sidecar.cli.terminal import cause, complain, plain
from sidecar.config.settings import SettingsError, load_config
from sidecar.config.settings_model import Settings
from sidecar.config.slices import Config
from sidecar.config.sources import PREFIX, former, nearest
from sidecar.simulation import day_file, day_report, suggestion, sweep
from sidecar.simulation.day_file import Day
from sidecar.simulation.day_outcome import DayOutcome
from sidecar.simulation.day_table import DayError
from sidecar.simulation.fleet_rules import CHECK_RESTART, NO_CULLING, FleetRules
from sidecar.simulation.sweep import SweepError

_FIXED: Final = {
    "mode": "enforce",
    "enforce_percent": "100",
    "service": "web",
    "instance": "c",
    "namespace": "default",
    "redis_url": "redis://127.0.0.1/0",
}
"""Settings that a simulation ignores. The URL is never opened: the store is in memory, shared by the whole fleet."""

_ELSEWHERE: Final = frozenset(
    {"config", "token_file", "redis_password_file", "redis_ca", "redis_cert", "redis_key", "state_dir", "run_lock"}
    | {"tls_cert", "tls_key", "tls_client_ca", "webhook_url_file", "cull_hook"}
)
"""Settings that name files of another machine."""

_OF_REQUESTS: Final = frozenset({"error_ratio", "consecutive_limit"})
"""Settings that do nothing for apps that report their errors only."""


class Asked(NamedTuple):
    """What the command asks for: the file or name of a day, the seeds, and what to do with the answers."""

    day: str
    seed: int
    seeds: int
    cores: int
    fail_if: tuple[str, ...]
    html: Path | None
    as_json: bool


def run(asked: Asked, compare: tuple[Path, Path] | None, *, article: bool) -> int:
    """Simulate the day and print the answers; return the exit code. Raises UsageError with the place of a problem."""
    limits = limits_of(asked.fail_if, day_report.example())
    with _usage_errors():
        path, made_up = read(asked.day)
        compared = _compared(path, made_up, compare)
        baselines = [article_rules(compared), CHECK_RESTART] if article else []
    rules = [NO_CULLING, *baselines, *(of for of, _ in compared)]
    outcomes = play(made_up, [(each, asked.seed) for each in rules], asked.cores)
    result = day_report.as_json(made_up, asked.seed, outcomes, has_series=asked.html is not None)
    yours = result["rules"][1 + len(baselines) :]
    return answer(asked, result, day_report.as_text(made_up, asked.seed, outcomes), limits, yours)


def read(day: str) -> tuple[Path, Day]:
    """The path of a day, and the day. Raises DayError."""
    path = day_file.find(day)
    return path, day_file.read_day(path)


def play(day: Day, runs: Sequence[tuple[FleetRules, int]], cores: int) -> list[DayOutcome]:
    """The outcome of the day under each of these rules, with its seed."""
    return play_all([(day, *run) for run in runs], cores)


def play_all(runs: Sequence[tuple[Day, FleetRules, int]], cores: int) -> list[DayOutcome]:
    """The outcome of each of these days; on so many cores, 0 for all, with a progress bar on a terminal."""
    with parallel_runs.progress("simulating") as on_part:
        return parallel_runs.run_all([partial(day.play, rules, seed) for day, rules, seed in runs], on_part, cores)


def answer(
    asked: Asked,
    result: Mapping[str, Any],
    text: str,
    limits: Sequence[FigureLimit],
    columns: Sequence[Mapping[str, Any]],
) -> int:
    """Show the answers, write the page, and check the limits; return the exit code. Raises UsageError."""
    try:
        sentences = figure_limits.broken(limits, columns)
    except ValueError as error:
        raise click.UsageError(f"--fail-if: {error}") from None
    if asked.as_json:
        show({**result, "rules": [_without_series(one) for one in result["rules"]]} if "rules" in result else result)
    else:
        click.echo("\n".join(plain(line) for line in text.splitlines()))
    for sentence in sentences:
        complain(sentence)
    is_written = asked.html is None or write_page(asked.html, result)
    return 0 if is_written and not sentences else EXIT_FAILED


def write_page(path: Path, result: Mapping[str, Any]) -> bool:
    """Write the page of a result as a whole, or not at all; return whether it could be written."""
    from sidecar.cli.pictures.run_page import html  # noqa: PLC0415 - for pages only

    text, place = html(result), Path(os.path.realpath(path))
    aside = place.with_name(f".{place.name}.{os.getpid()}")
    try:
        if place.exists() and not place.is_file():
            raise OSError("it is no regular file")  # noqa: TRY301 - said as the others
        aside.write_text(text, "utf-8")
        aside.replace(place)
    except OSError as error:
        complain(f"{path} cannot be written: {cause(error)}")
        with suppress(OSError):
            aside.unlink()
        return False
    return True


def _without_series(column: Mapping[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in column.items() if key != "series"}


def limits_of(texts: Sequence[str], example: Mapping[str, Any]) -> list[FigureLimit]:
    """The limits of ``--fail-if`` for columns with figures like those of the ``example``. Raises UsageError."""
    try:
        limits = [FigureLimit.parse(text) for text in texts]
        figure_limits.check(limits, example)
    except ValueError as error:
        raise click.UsageError(f"--fail-if: {error}") from None
    return limits


@contextmanager
def _usage_errors() -> Iterator[None]:
    """Problems of files and settings end the command as problems of the command line do."""
    try:
        yield
    except (DayError, SweepError) as error:
        raise click.UsageError(str(error)) from None


# -- sweeps and suggestions -------------------------------------------------------------------------------------------


def run_sweep(asked: Asked, text: str) -> int:
    """Simulate the day under all combinations of the swept settings; as ``run``."""
    limits = limits_of(asked.fail_if, {"rules": "", **sweep.flat(day_report.example())})
    with _usage_errors():
        path, day = read(asked.day)
        combinations = sweep.parse(text)
        seeds = range(asked.seed, asked.seed + asked.seeds)
        if len(combinations) * len(seeds) > sweep.MOST_RUNS:
            raise SweepError(f"{text!r}: more than {sweep.MOST_RUNS} runs with {len(seeds)} seeds: give fewer values")
        rules = [rules_of(sweep.written(one), f"{path}: --sweep", {**day.settings, **one})[0] for one in combinations]
        refuse_ignored(combinations, rules)
    columns = _columns([(day, each, seed) for each in rules for seed in seeds], asked.cores)
    found = [columns[place : place + len(seeds)] for place in range(0, len(columns), len(seeds))]
    about = {"day": day.name, "duration_s": day.for_s, "containers": day.size}
    result = sweep.as_json(about, list(seeds), list(zip(combinations, found, strict=True)))
    title = f"{day.name}: {day.size} containers, {len(columns)} runs"
    rows = [{"rules": each.name, **row["figures"]} for each, row in zip(rules, result["rows"], strict=True)]
    return answer(asked, result, "\n".join([title, "", *sweep.as_text(result)]), limits, rows)


def run_suggestion(asked: Asked) -> int:
    """Find the least limits that are good enough for the fleet of the day; as ``run``."""
    if asked.fail_if:
        raise click.UsageError("--fail-if: cannot be given together with --suggest, whose runs are of several limits")
    with _usage_errors():
        path, day = read(asked.day)
        if not day.load.stray:
            raise DayError(
                f"{path}: [fleet]: background_errors: must be given for --suggest, and be more than 0: the part of the "
                "requests that fails while all is well; backtest finds the errors of a usual window"
            )
        _, config = rules_of("yours", f"{path}: [settings]", day.settings)
        result = suggestion_for(path, day, config, asked)
    return answer(asked, result, "\n".join(suggestion.as_text(result)), [], [])


def suggestion_for(path: Path, day: Day, config: Config, asked: Asked) -> dict[str, Any]:
    """The suggestion for the fleet of a day, whose settings are those of ``path``, as JSON. Raises DayError."""
    seeds, window_s = range(asked.seed, asked.seed + asked.seeds), config.judging.error_window

    def rules_with(**settings: int) -> FleetRules:
        return rules_of(sweep.written(settings), f"{path}: --suggest", {**day.settings, **settings})[0]

    tried = suggestion.limits_to_try(day, window_s, config.judging.error_limit)
    days = (suggestion.noise_day(day), suggestion.lone_day(day))
    runs = [(one, rules_with(error_limit=limit), seed) for limit in tried for one in days for seed in seeds]
    columns, many = _columns(runs, asked.cores), len(seeds)
    limits = []
    for number, limit in enumerate(tried):
        noise, lone = (columns[(2 * number + kind) * many : (2 * number + kind + 1) * many] for kind in (0, 1))
        limits.append(suggestion.limit_row(day, window_s, limit, noise, lone))
    chosen = suggestion.chosen_limit(limits)
    budgets: list[dict[str, Any]] = []
    now = config.budget.budget
    if day.incidents and now.isdigit():
        given: list[int] = suggestion.budgets_to_try(int(now))
        kept = chosen or config.judging.error_limit
        found: dict[int, list[dict[str, Any]]] = {}
        while given:
            allowed: dict[int, FleetRules] = {}
            for one in given:
                with suppress(DayError):  # too much for the refund_max or the budget_window of the day
                    allowed[one] = rules_with(error_limit=kept, budget=one)
            columns = _columns([(day, each, seed) for each in allowed.values() for seed in seeds], asked.cores)
            found |= {one: columns[place * many : (place + 1) * many] for place, one in enumerate(allowed)}
            budgets = suggestion.budget_rows(found)
            between = suggestion.budget_between(budgets)
            given = [] if between is None or between in found else [between]
    result = {
        "kind": "suggestion",
        "day": day.name,
        "duration_s": day.for_s,
        "containers": day.size,
        "seeds": list(seeds),
        "window_s": window_s,
        "usual_errors": round(suggestion.usual_errors(day, window_s), 3),
        "requests_per_second": round(day.load.per_s, 4),
        "background_errors": round(day.load.stray, 7),
        "goals": {
            "reached_by_noise_per_month": suggestion.NOISE_PER_MONTH,
            "time_to_cull_s": suggestion.TIME_TO_CULL_S,
        },
        "error_limit": chosen,
        "budget": suggestion.chosen_budget(budgets),
        "limits": limits,
        "budgets": budgets,
    }
    return {**result, "sentence": suggestion.sentence(result)}


def _columns(runs: Sequence[tuple[Day, FleetRules, int]], cores: int) -> list[dict[str, Any]]:
    """The JSON of each run."""
    return [day_report.figures_of(one, [one]) for one in play_all(runs, cores)]


# -- settings ---------------------------------------------------------------------------------------------------------


def _compared(path: Path, day: Day, compare: tuple[Path, Path] | None) -> list[tuple[FleetRules, Config]]:
    """The rules to show beside the baselines: those of the day, or those of two files over them."""
    if compare is None:
        return [rules_of("yours", f"{path}: [settings]", day.settings)]
    a, b = (file.stem for file in compare)
    names = (a, b) if a != b else (f"{a} (A)", f"{b} (B)")
    return [
        rules_of(name, str(file), {**day.settings, **day_file.read_toml(file)})
        for name, file in zip(names, compare, strict=True)
    ]


def rules_of(name: str, place: str, settings: Mapping[str, Any]) -> tuple[FleetRules, Config]:
    """The rules of these settings, and the configuration. Raises DayError with the place of a problem."""
    config = _config(place, settings)
    return FleetRules.of(name, config), config


def article_rules(compared: list[tuple[FleetRules, Config]]) -> FleetRules:
    """The rule of the article, with the numbers of the first compared settings."""
    _, config = compared[0]
    budget = config.budget.budget if config.budget.budget.isdigit() else "10"
    numbers = {
        "preset": "classdojo",
        "error_limit": str(config.judging.error_limit),
        "error_window": f"{config.judging.error_window}s",
        "budget": budget,
        "budget_window": f"{config.budget.budget_window}s",
    }
    try:
        return FleetRules.of(day_report.ARTICLE, load_config({**numbers, **_FIXED}, {}))
    except SettingsError as error:
        raise DayError(f"the article's rule cannot have your numbers, add --no-article: {error.problems[0]}") from None


def refuse_ignored(
    combinations: Sequence[Mapping[str, Any]], rules: Sequence[FleetRules], *, reports_requests: bool = False
) -> None:
    """Raise SweepError for a swept setting that changes nothing; ``rules``: those of each combination."""
    first, unnamed = combinations[0], [replace(each, name="") for each in rules]
    for name in first:
        if name in _OF_REQUESTS and not reports_requests:
            raise SweepError(
                f"{name}: changes nothing here, because the apps report their errors and not their requests"
            )
        alone = [
            each
            for one, each in zip(combinations, unnamed, strict=True)
            if all(one[other] == first[other] for other in first if other != name)
        ]
        if name in _FIXED or name in _ELSEWHERE or (len(alone) > 1 and all(each == alone[0] for each in alone)):
            raise SweepError(f"{name}: changes nothing in a simulation")


def _config(place: str, settings: Mapping[str, Any]) -> Config:
    """The configuration with these settings. Raises DayError with the first problem and its place."""
    for key in settings:
        if key not in Settings.model_fields:
            moved = former(key.lower(), str)
            raise DayError(f"{place}: {key}: {moved or f'unknown setting{nearest(key, [*Settings.model_fields])}'}")
    used = {key: value for key, value in settings.items() if key not in _ELSEWHERE}
    try:
        return load_config({**used, **_FIXED}, {})
    except SettingsError as error:
        variable, _, sentence = error.problems[0].partition(": ")
        raise DayError(f"{place}: {variable.removeprefix(PREFIX).lower()}: {sentence}") from None
