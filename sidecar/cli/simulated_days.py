"""The runs of ``simulate``: they load the settings of each column, and the simulation."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import click

from sidecar.cli.parameters import show
from sidecar.cli.terminal import plain
from sidecar.config.settings import SettingsError, load_config
from sidecar.config.settings_model import Settings
from sidecar.config.slices import Config
from sidecar.config.sources import PREFIX, former, nearest
from sidecar.simulation import day_file, day_report
from sidecar.simulation.day_file import Day, DayError
from sidecar.simulation.fleet_rules import NO_CULLING, FleetRules

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
    | {"tls_cert", "tls_key", "tls_client_ca", "webhook_url_file", "slack_url_file", "pagerduty_key_file", "cull_hook"}
)
"""Settings that name files of another machine."""


def run(day: str, seed: int, compare: tuple[Path, Path] | None, *, article: bool, as_json: bool) -> int:
    """Simulate the day and print the answers; return the exit code. Raises UsageError with the place of a problem."""
    try:
        path = day_file.find(day)
        made_up = day_file.read_day(path)
        compared = _compared(path, made_up, compare)
        rules = [NO_CULLING, *([_article(compared)] if article else []), *(of for of, _ in compared)]
    except DayError as error:
        raise click.UsageError(str(error)) from None
    outcomes = [made_up.play(each, seed) for each in rules]
    if as_json:
        show(day_report.as_json(made_up, seed, outcomes))
    else:
        click.echo("\n".join(plain(line) for line in day_report.as_text(made_up, seed, outcomes).splitlines()))
    return 0


def _compared(path: Path, day: Day, compare: tuple[Path, Path] | None) -> list[tuple[FleetRules, Config]]:
    """The rules to show beside the baselines: those of the day, or those of two files over them."""
    if compare is None:
        return [_rules("yours", f"{path}: [settings]", day.settings)]
    a, b = (file.stem for file in compare)
    names = (a, b) if a != b else (f"{a} (A)", f"{b} (B)")
    return [
        _rules(name, str(file), {**day.settings, **day_file.read_toml(file)})
        for name, file in zip(names, compare, strict=True)
    ]


def _rules(name: str, place: str, settings: Mapping[str, Any]) -> tuple[FleetRules, Config]:
    config = _config(place, settings)
    return FleetRules.of(name, config), config


def _article(compared: list[tuple[FleetRules, Config]]) -> FleetRules:
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
