"""``simulate``: a made-up day of a whole fleet in virtual time, by the rules of this version."""

from __future__ import annotations

from pathlib import Path

import click

from sidecar.cli.parameters import Command, json_option


@click.command(cls=Command)
@click.argument("day")
@click.option("--seed", type=click.IntRange(0), default=1, help="Another day of the same kind for each number.")
@click.option(
    "--compare",
    type=(click.Path(path_type=Path), click.Path(path_type=Path)),
    metavar="A.toml B.toml",
    default=None,
    help="Run the day under the settings of each of two files, which are like the sidecar's own.",
)
@click.option("--article/--no-article", default=True, help="Also run the day under the rule of the article.")
@json_option
def simulate(*, day: str, seed: int, compare: tuple[Path, Path] | None, article: bool, as_json: bool) -> int:
    """Simulate a day of a whole fleet: what would be culled, and why.

    DAY is a TOML file, or the name of a day that comes with the package, such as lone. Nothing but files is read, and
    nothing is changed.
    """
    from sidecar.cli import simulated_days  # noqa: PLC0415 - 100 ms, which help and completion do not need

    return simulated_days.run(day, seed, compare, article=article, as_json=as_json)
