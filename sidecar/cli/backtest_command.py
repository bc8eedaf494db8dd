"""``backtest``: a fleet's own past, played again by the rules of this version."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Final

import click

from sidecar.cli.parameters import DURATION, PAGE_FILE, Command, json_option

_FILE: Final = click.Path(path_type=Path)


@click.command(cls=Command)
@click.argument("files", nargs=-1, type=_FILE, metavar="[FILE]...")
@click.option("--prometheus", multiple=True, metavar="URL|FILE", help="A Prometheus, or saved answers of query_range.")
@click.option("--access-log", multiple=True, type=_FILE, metavar="FILE", help="An access log; further ones may follow.")
@click.option("--ledger", metavar="FILE|URL", help="What events --json printed, or the local listener of a sidecar.")
@click.option("--errors", default="", metavar="SELECTOR", help="Prometheus: counters of errors, as in SCRAPE_ERRORS.")
@click.option("--requests", default="", metavar="SELECTOR", help="Prometheus: counters of requests.")
@click.option("--instance-label", default="instance", metavar="LABEL", help="Prometheus: the label of the container.")
@click.option("--since", metavar="TIME", help="Beginning: 2026-11-22T10:00Z, Unix seconds, or 6h ago as 6h.")
@click.option("--until", metavar="TIME", help="End, in the same way.")
@click.option("--step", type=DURATION, metavar="DURATION", help="Distance of the points: 15s of a server, 1s of logs.")
@click.option("--format", type=click.Choice(("common", "json")), help="Access log: its format; without it found out.")
@click.option("--log-instance", default="", metavar="NAME", help="Access log: the container; else by field or file.")
@click.option("--instance-field", default="instance", metavar="FIELD", help="Access log in JSON: the container.")
@click.option("--time-field", default="time", metavar="FIELD", help="Access log in JSON: the time.")
@click.option("--status-field", default="status", metavar="FIELD", help="Access log in JSON: the status of HTTP.")
@click.option("--containers", type=click.IntRange(0, 5000), default=0, help="Ledger: the size of the fleet.")
@click.option("--source-token-file", default="", metavar="FILE", help="The token for Prometheus or the sidecar.")
@click.option(
    "--settings", "settings", type=_FILE, metavar="FILE.toml", help="Your settings, as in the sidecar's file."
)
@click.option(
    "--compare",
    type=(_FILE, _FILE),
    metavar="A.toml B.toml",
    default=None,
    help="Play it under the settings of each of two files, over those of --settings.",
)
@click.option("--sweep", metavar="SETTINGS", help="Play it under each combination: error_limit=3..50,budget=5,10,20.")
@click.option("--suggest", is_flag=True, help="Find the least limits that are good enough for a fleet like this one.")
@click.option("--replace", "replace_s", type=DURATION, default="45s", metavar="DURATION", help="Time of a replacement.")
@click.option("--report-requests", is_flag=True, help="The apps report their requests too, not only errors.")
@click.option("--weighted", is_flag=True, help="The balancer followed the sidecar's weights then, so errors are fewer.")
@click.option("--article/--no-article", default=True, help="Also play it under the rule of the article.")
@click.option("--seed", type=click.IntRange(0), default=1, help="Of the jitter of checks and beats.")
@click.option(
    "--fail-if", multiple=True, metavar="LIMIT", help="Exit code 1 if your figures are so: 'culls_per_day > 3'."
)
@click.option("--html", type=PAGE_FILE, metavar="FILE", help="Also write a page with pictures.")
@click.option("--cores", type=click.IntRange(0), default=0, help="Runs at the same time, 0: one for each core.")
@json_option
def backtest(**options: Any) -> int:
    """Play your own past: what would have been culled, and why.

    The past comes from Prometheus, from access logs or from the ledger. Each settings are played twice, because nobody
    knows what a culled container would have done: its errors end with it (optimistic), or its replacement has them too
    (pessimistic). Nothing is changed.
    """
    from sidecar.cli import past_source, played_backtest  # noqa: PLC0415 - 100 ms, which help and completion do not need
    from sidecar.cli.simulated_days import Asked  # noqa: PLC0415 - as above

    source = past_source.Source(**{name: options.pop(name) for name in past_source.Source._fields})
    plays = played_backtest.Plays(**{name: options.pop(name) for name in played_backtest.Plays._fields})
    seed, thins = options.pop("seed"), not options.pop("weighted")
    way = played_backtest.Way(options.pop("replace_s"), seed, thins, options.pop("report_requests"))
    return played_backtest.run(source, way, plays, Asked(day="", seed=seed, seeds=1, **options))
