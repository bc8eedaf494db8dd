"""``backtest``: how often each limit of errors would have been reached in a fleet's own past, and which to set."""

from __future__ import annotations

import time
from collections.abc import Iterator
from datetime import UTC, datetime
from heapq import nlargest
from pathlib import Path
from typing import Any, Final

import click

from sidecar.backtest import past
from sidecar.backtest.windows import ErrorCounts, LimitFindings, PastError, judge
from sidecar.cli.options import DURATION, Command, json_option, tell
from sidecar.cli.terminal import plain
from sidecar.runlock import durations

SINCE_S: Final = 86_400.0
"""How far back a server is asked without ``--since``."""

SHORTEST_WINDOW_S: Final = 1.0
SHORT_S: Final = 6 * 3600.0
"""A shorter record may hold no usual day."""

SHOWN: Final = 20
"""Maximum number of reaches that are listed: first those of one container, those with the most errors."""

_DAY_S: Final = 86_400.0
_FILE: Final = click.Path(path_type=Path)
_COLUMNS: Final = {
    "limit": "limit",
    "reached": "reached",
    "per_day": "a day",
    "containers": "containers",
    "fleet_wide": "with most of the fleet",
}


@click.command(cls=Command)
@click.argument("files", nargs=-1, type=_FILE, metavar="[FILE]...")
@click.option("--prometheus", default="", metavar="URL|FILE", help="A Prometheus, or saved answers of query_range.")
@click.option("--access-log", "log", type=_FILE, metavar="FILE", help="An access log; further ones may follow.")
@click.option("--errors", default="", metavar="SELECTOR", help="Prometheus URL: the counters of errors.")
@click.option("--instance-label", default="instance", metavar="LABEL", help="Prometheus: the label of the container.")
@click.option("--since", "ago_s", type=DURATION, metavar="DURATION", help="How far back.")
@click.option("--window", "window_s", type=DURATION, default="60s", metavar="TIME", help="Your ARBITER_ERROR_WINDOW.")
@click.option(
    "--fields",
    default=",".join(past.FIELDS),
    metavar="NAMES",
    help="Access log in JSON: the fields of container, time and status; without a name the container is the file's.",
)
@click.option("--source-token-file", default="", metavar="FILE", help="Prometheus URL: the file with the token for it.")
@json_option
def backtest(*, window_s: float, as_json: bool, **source: Any) -> int:
    """Count the errors of your own past, and say which limit to set.

    The past comes from Prometheus or from access logs. The answer says how often a container would have reached each
    limit of errors, and which limit chance alone hardly ever reaches. Nothing is changed, and no sidecar has to run.
    """
    if window_s < SHORTEST_WINDOW_S:
        raise click.UsageError(f"--window: must be at least {durations.write(SHORTEST_WINDOW_S)}")
    try:
        counts = _read(window_s, **source)
        answer = as_values(counts, judge(counts))
    except PastError as error:
        raise click.UsageError(str(error)) from None
    tell(answer, "\n".join(map(plain, as_text(answer))), as_json=as_json)
    return 0


def _read(
    window_s: float,
    *,
    files: tuple[Path, ...],
    prometheus: str,
    log: Path | None,
    errors: str,
    instance_label: str,
    ago_s: float | None,
    fields: str,
    source_token_file: str,
) -> ErrorCounts:
    """The errors of the source that the options name. Raises PastError and UsageError."""
    if bool(prometheus) is (log is not None):
        raise click.UsageError("takes either --prometheus or --access-log")
    now = time.time()
    since_s = 0.0 if ago_s is None else now - ago_s
    if prometheus.startswith(("http://", "https://")):
        if files or not errors:
            raise click.UsageError("--prometheus: takes one URL, and its --errors 'errors_total'")
        server = past.PrometheusServer.of(prometheus, source_token_file)
        counts = ErrorCounts(server.place, window_s, since_s or now - SINCE_S)
        past.CounterRange(counts, instance_label).read_api(server, errors, now)
        return counts
    paths = (log or Path(prometheus), *files)
    counts = ErrorCounts(str(paths[0]) if len(paths) == 1 else f"{len(paths)} files", window_s, since_s)
    if log is None:
        past.CounterRange(counts, instance_label).read_files(paths)
        return counts
    names = fields.split(",")
    if len(names) != len(past.FIELDS):
        raise click.UsageError(f"--fields: takes three names, such as {','.join(past.FIELDS)}")
    past.read_logs(paths, names, counts)
    return counts


# -- the answer -------------------------------------------------------------------------------------------------


def as_values(counts: ErrorCounts, limits: LimitFindings) -> dict[str, Any]:
    """Everything that is known. Times are Unix seconds."""
    first, last = counts.span
    begin, end = counts.at(first), counts.at(last + 1)
    reaches = limits.reaches[limits.suggested]
    return {
        "kind": "backtest",
        "source": counts.source,
        "begin": begin,
        "end": end,
        "window_s": counts.window_s,
        "containers": len(counts.containers),
        "usual": limits.usual._asdict(),
        "error_limit": limits.suggested,
        "why": list(_why(limits, counts.window_s, end - begin)),
        "limits": [
            {
                "limit": limit,
                "reached": len(of_limit),
                "per_day": round(len(of_limit) * _DAY_S / (end - begin), 3),
                "containers": len({reach.container for reach in of_limit}),
                "fleet_wide": sum(reach.fleet_wide for reach in of_limit),
            }
            for limit, of_limit in limits.reaches.items()
        ],
        "reaches": [
            each._asdict() for each in nlargest(SHOWN, reaches, key=lambda each: (not each.fleet_wide, each.errors))
        ],
        "notes": [f"{number:,} {note}" for note, number in counts.notes.items()],
    }


def as_text(answer: dict[str, Any]) -> Iterator[str]:
    """The same as lines."""
    window, times = durations.write(answer["window_s"]), f"{_clock(answer['begin'])} to {_clock(answer['end'])}"
    yield f"{answer['source']}: {answer['containers']} containers, {times}, windows of {window}"
    yield ""
    yield "  ".join(_COLUMNS.values())
    for row in answer["limits"]:
        mark = " <- set this" if row["limit"] == answer["error_limit"] else ""
        yield "  ".join(str(row[name]).rjust(len(title)) for name, title in _COLUMNS.items()) + mark
    yield ""
    yield from answer["why"]
    if answer["reaches"]:
        yield ""
        yield f"Who reached {answer['error_limit']} errors, one container alone first:"
    for reach in answer["reaches"]:
        wide = ", with most of the fleet" if reach["fleet_wide"] else ""
        seconds = durations.write(reach["end"] - reach["begin"])
        yield f"  {_clock(reach['begin'])}  {reach['container']}: up to {reach['errors']} errors, for {seconds}{wide}"
    yield from answer["notes"]


def _why(limits: LimitFindings, window_s: float, recorded_s: float) -> Iterator[str]:
    usual, limit, reaches = limits.usual, limits.suggested, limits.reaches[limits.suggested]
    yield f"Set ARBITER_ERROR_LIMIT={limit} (with ARBITER_ERROR_WINDOW={durations.write(window_s)})."
    yield (
        f"All was well in {usual.windows:,} of {usual.of:,} windows: a container had {usual.mean:.2g} errors in one on "
        f"average, and {usual.most} in the worst. Chance alone brings {limit} less than once a month in this fleet. "
        "Healthy containers reach a lower limit; a higher limit finds a sick one later."
    )
    if fleet_wide := sum(reach.fleet_wide for reach in reaches):
        yield (
            f"{fleet_wide} of {len(reaches)} times most of the fleet reached it together: a restart does not help "
            "then, and the fleet tries one container only."
        )
    if not reaches:
        yield "No container reached it: nothing was wrong then, or a few errors are already too many for your service."
    if recorded_s < SHORT_S:
        yield "This record is short. Take a few days, with a busy hour and an incident."
    yield "Next, run the sidecars with ARBITER_MODE=shadow. They say what the fleet would cull and refuse."


def _clock(at_s: float) -> str:
    """``2026-11-22 10:00:15Z``."""
    return f"{datetime.fromtimestamp(at_s, UTC):%Y-%m-%d %H:%M:%S}Z"
