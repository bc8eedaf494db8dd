"""``backtest``: how often each limit of errors would have been reached in a fleet's own past."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Final

import click

from sidecar.backtest import access_log, answer, limits
from sidecar.backtest.error_counts import ErrorCounts, PastError, unix_s
from sidecar.backtest.prometheus_range import CounterRange, PrometheusServer
from sidecar.cli.parameters import DURATION, Command, json_option, tell
from sidecar.cli.terminal import plain
from sidecar.runlock import durations

SINCE_S: Final = 86_400.0
"""How far back a server is asked without ``--since``."""

SHORTEST_WINDOW_S: Final = 1.0
_FILE: Final = click.Path(path_type=Path)


@click.command(cls=Command)
@click.argument("files", nargs=-1, type=_FILE, metavar="[FILE]...")
@click.option("--prometheus", default="", metavar="URL|FILE", help="A Prometheus, or saved answers of query_range.")
@click.option("--access-log", "log", type=_FILE, metavar="FILE", help="An access log; further ones may follow.")
@click.option("--errors", default="", metavar="SELECTOR", help="Prometheus URL: the counters of errors.")
@click.option("--instance-label", default="instance", metavar="LABEL", help="Prometheus: the label of the container.")
@click.option("--since", metavar="TIME", help="Beginning: 2026-11-22T10:00Z, Unix seconds, or 6h ago as 6h.")
@click.option("--window", "window_s", type=DURATION, default="60s", metavar="TIME", help="Your ARBITER_ERROR_WINDOW.")
@click.option(
    "--fields",
    default=",".join(access_log.FIELDS),
    metavar="NAMES",
    help="Access log in JSON: the fields of container, time and status; without a name the container is the file's.",
)
@click.option("--source-token-file", default="", metavar="FILE", help="Prometheus URL: the file with the token for it.")
@json_option
def backtest(
    *,
    files: tuple[Path, ...],
    prometheus: str,
    log: Path | None,
    errors: str,
    instance_label: str,
    since: str | None,
    window_s: float,
    fields: str,
    source_token_file: str,
    as_json: bool,
) -> int:
    """Count the errors of your own past, and say which limit to set.

    The past comes from Prometheus or from access logs. The answer says how often a container would have reached each
    limit of errors, and which limit chance alone hardly ever reaches. Nothing is changed, and no sidecar has to run.
    """
    if bool(prometheus) is (log is not None):
        raise click.UsageError("takes either --prometheus or --access-log")
    if window_s < SHORTEST_WINDOW_S:
        raise click.UsageError(f"--window: must be at least {durations.write(SHORTEST_WINDOW_S)}")
    since_s = 0.0 if since is None else _time(since, time.time())
    try:
        if log is not None:
            counts = _of_logs((log, *files), fields, window_s, since_s)
        elif prometheus.startswith(("http://", "https://")):
            if files or not errors:
                raise click.UsageError("--prometheus: takes one URL, and its --errors 'errors_total'")
            server = PrometheusServer.of(prometheus, source_token_file)
            counts = ErrorCounts(server.place, window_s, since_s or time.time() - SINCE_S)
            CounterRange(counts, instance_label).read_api(server, errors, time.time())
        else:
            paths = (Path(prometheus), *files)
            counts = ErrorCounts(_named(paths), window_s, since_s)
            CounterRange(counts, instance_label).read_files(paths)
        found = answer.as_json(counts, limits.judge(counts))
    except PastError as error:
        raise click.UsageError(str(error)) from None
    tell(found, "\n".join(map(plain, answer.as_text(found))), as_json=as_json)
    return 0


def _of_logs(paths: tuple[Path, ...], fields: str, window_s: float, since_s: float) -> ErrorCounts:
    names = fields.split(",")
    if len(names) != len(access_log.FIELDS):
        raise click.UsageError(f"--fields: takes three names, such as {','.join(access_log.FIELDS)}")
    counts = ErrorCounts(_named(paths), window_s, since_s)
    access_log.read(paths, names, counts)
    return counts


def _named(paths: tuple[Path, ...]) -> str:
    return str(paths[0]) if len(paths) == 1 else f"{len(paths)} files"


def _time(text: str, now: float) -> float:
    """Unix time of a duration before now, of a date, or of Unix seconds. Raises UsageError."""
    for read in (unix_s, lambda text: now - durations.parse(text)):
        try:
            return read(text)
        except ValueError:
            continue
    hint = "is no time: write 2026-11-22T10:00Z, Unix seconds, or a duration before now such as 6h"
    raise click.UsageError(f"--since: {text!r} {hint}")
