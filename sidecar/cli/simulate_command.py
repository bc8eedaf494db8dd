"""``simulate``: a made-up day of a whole fleet in virtual time, by the rules of this version."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from sidecar.cli.parameters import PAGE_FILE, Command, json_option

_FILE = click.Path(path_type=Path)


@click.command(cls=Command)
@click.argument("day")
@click.option("--seed", type=click.IntRange(0), default=1, help="Another day of the same kind for each number.")
@click.option(
    "--seeds",
    type=click.IntRange(1, 100),
    default=1,
    help="With --sweep or --suggest: run each with so many seeds, from --seed on.",
)
@click.option(
    "--compare",
    type=(_FILE, _FILE),
    metavar="A.toml B.toml",
    default=None,
    help="Run the day under the settings of each of two files, which are like the sidecar's own.",
)
@click.option(
    "--sweep",
    metavar="SETTINGS",
    default=None,
    help="Run the day under each combination of settings: error_limit=3..50,budget=5,10,20.",
)
@click.option("--suggest", is_flag=True, help="Find the least limits that are good enough for the fleet of the day.")
@click.option(
    "--article/--no-article",
    default=True,
    help="Also run the day under the rule of the article, and under Nomad's check_restart.",
)
@click.option(
    "--fail-if",
    multiple=True,
    metavar="LIMIT",
    help="Exit code 1 if your figures are so: 'culls_per_day > 3'; several times.",
)
@click.option("--html", type=PAGE_FILE, default=None, metavar="FILE", help="Also write a page with pictures.")
@click.option("--cores", type=click.IntRange(0), default=0, help="Runs at the same time, 0: one for each core.")
@json_option
def simulate(
    *, compare: tuple[Path, Path] | None, article: bool, sweep: str | None, suggest: bool, **options: Any
) -> int:
    """Simulate a day of a whole fleet: what would be culled, and why.

    DAY is a TOML file, or the name of a day that comes with the package, such as lone. Nothing but files is read, and
    nothing is changed.
    """
    from sidecar.cli import simulated_days  # noqa: PLC0415 - 100 ms, which help and completion do not need

    asked = simulated_days.Asked(**options)
    if (compare is not None) + (sweep is not None) + suggest > 1:
        raise click.UsageError("--compare, --sweep and --suggest cannot be given together")
    if asked.seeds > 1 and sweep is None and not suggest:
        raise click.UsageError("--seeds: goes with --sweep or --suggest; --seed N plays another day of the same kind")
    if sweep is not None:
        return simulated_days.run_sweep(asked, sweep)
    if suggest:
        return simulated_days.run_suggestion(asked)
    return simulated_days.run(asked, compare, article=article)
