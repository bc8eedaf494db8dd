"""``backtest``: how often each limit of errors would have been reached in a fleet's own past."""

from __future__ import annotations

import time
from datetime import UTC, datetime
from math import inf
from pathlib import Path
from typing import Final, NamedTuple

import click

from sidecar.backtest import access_log, answer, limits
from sidecar.backtest.error_counts import ErrorCounts, PastError
from sidecar.backtest.prometheus_range import CounterRange, PrometheusServer
from sidecar.cli.parameters import DURATION, Command, json_option, show
from sidecar.cli.terminal import plain
from sidecar.runlock import durations

SINCE_S: Final = 86_400.0
"""How far back a server is asked without ``--since``."""

SHORTEST_WINDOW_S: Final = 1.0
_UNIX_S: Final = 1e8
"""A number from here on is a Unix time: as a duration it would be three years."""

_FILE: Final = click.Path(path_type=Path)


class Past(NamedTuple):
    """Where the past comes from, as it was typed. Empty and None: not given."""

    files: tuple[Path, ...]
    prometheus: tuple[str, ...]
    access_log: tuple[Path, ...]
    errors: str
    since: str | None
    until: str | None
    window: float
    instance_label: str
    log_instance: str
    instance_field: str
    time_field: str
    status_field: str
    source_token_file: str


@click.command(cls=Command)
@click.argument("files", nargs=-1, type=_FILE, metavar="[FILE]...")
@click.option("--prometheus", multiple=True, metavar="URL|FILE", help="A Prometheus, or saved answers of query_range.")
@click.option("--access-log", multiple=True, type=_FILE, metavar="FILE", help="An access log; further ones may follow.")
@click.option("--errors", default="", metavar="SELECTOR", help="Prometheus URL: the counters of errors.")
@click.option("--instance-label", default="instance", metavar="LABEL", help="Prometheus: the label of the container.")
@click.option("--since", metavar="TIME", help="Beginning: 2026-11-22T10:00Z, Unix seconds, or 6h ago as 6h.")
@click.option("--until", metavar="TIME", help="End, in the same way.")
@click.option("--window", type=DURATION, default="60s", metavar="DURATION", help="Your ARBITER_ERROR_WINDOW.")
@click.option("--log-instance", default="", metavar="NAME", help="Access log: the container of all lines.")
@click.option("--instance-field", default="instance", metavar="FIELD", help="Access log in JSON: the container.")
@click.option("--time-field", default="time", metavar="FIELD", help="Access log in JSON: the time.")
@click.option("--status-field", default="status", metavar="FIELD", help="Access log in JSON: the status of HTTP.")
@click.option("--source-token-file", default="", metavar="FILE", help="Prometheus URL: the file with the token for it.")
@json_option
def backtest(*, as_json: bool, **options: object) -> int:
    """Count the errors of your own past, and say which limit to set.

    The past comes from Prometheus or from access logs. The answer says how often a container would have reached each
    limit of errors, and which limit chance alone hardly ever reaches. Nothing is changed, and no sidecar has to run.
    """
    try:
        counts = read(Past(**options))  # type: ignore[arg-type]  # click gives each option its type
        found = answer.as_json(counts, limits.judge(counts))
    except PastError as error:
        raise click.UsageError(str(error)) from None
    if as_json:
        show(found)
    else:
        for line in answer.as_text(found):
            click.echo(plain(line))
    return 0


def read(past: Past) -> ErrorCounts:
    """The errors of the past. Raises UsageError with the option, and PastError with the place."""
    if bool(past.prometheus) == bool(past.access_log):
        raise click.UsageError("takes either --prometheus or --access-log")
    if past.window < SHORTEST_WINDOW_S:
        raise click.UsageError(f"--window: must be at least {durations.write(SHORTEST_WINDOW_S)}")
    now = time.time()
    since_s, until_s = _time("--since", past.since, now, 0.0), _time("--until", past.until, now, inf)
    if since_s >= until_s:
        raise click.UsageError("--until: must be after --since")
    if past.prometheus and past.prometheus[0].startswith(("http://", "https://")):
        return _server(past, since_s or now - SINCE_S, min(until_s, now))
    paths = (*past.access_log, *map(Path, past.prometheus), *past.files)
    counts = ErrorCounts(str(paths[0]) if len(paths) == 1 else f"{len(paths)} files", past.window)
    if past.access_log:
        fields = (past.instance_field, past.time_field, past.status_field)
        access_log.read(paths, access_log.LogOptions(past.log_instance, *fields, since_s, until_s), counts)
        return counts
    if past.errors:
        raise click.UsageError("--errors: is for a URL; a saved answer has the counters that were asked for")
    CounterRange(counts, past.instance_label, since_s, until_s).read_files(paths)
    return counts


def _server(past: Past, since_s: float, until_s: float) -> ErrorCounts:
    if not past.errors:
        raise click.UsageError("--errors: is missing, such as --errors 'http_requests_total{status=~\"5..\"}'")
    if len(past.prometheus) > 1 or past.files:
        raise click.UsageError("--prometheus: takes one URL, or files")
    try:
        server = PrometheusServer.of(past.prometheus[0], past.source_token_file)
    except PastError as error:
        raise click.UsageError(f"--prometheus: {error}") from None
    counts = ErrorCounts(server.place, past.window)
    CounterRange(counts, past.instance_label, since_s, until_s).read_api(server, past.errors)
    return counts


def _time(option: str, text: str | None, now: float, default: float) -> float:
    """Unix time of a date, of Unix seconds, or of a duration before now. Raises UsageError."""
    if text is None:
        return default
    try:
        seconds = durations.parse(text)
        return seconds if seconds >= _UNIX_S else now - seconds
    except ValueError:
        pass
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        hint = "is no time: write 2026-11-22T10:00Z, Unix seconds, or a duration before now such as 6h"
        raise click.UsageError(f"{option}: {text!r} {hint}") from None
    return (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp()
