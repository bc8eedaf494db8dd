"""``watch``: the app's reports as they reach the sidecar, to see whether the first error arrives."""

from __future__ import annotations

import json
import math
import time
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any, Final

import click

from sidecar.cli import local_api
from sidecar.cli.asking_options import Asking, asking, where
from sidecar.cli.colours import coloured
from sidecar.cli.exit_codes import EXIT_FAILED
from sidecar.cli.parameters import DURATION, Command, json_option
from sidecar.cli.terminal import complain, plain

PAUSE_S: Final = 0.25

Row = dict[str, Any]


@click.command(cls=Command)
@click.option("--count", type=click.IntRange(1), default=None, metavar="N", help="End after N lines.")
@click.option("--for", "limit_s", type=DURATION, default=None, metavar="DURATION", help="End after this time.")
@json_option
@where
@click.pass_context
def watch(ctx: click.Context, /, *, count: int | None, limit_s: float | None, as_json: bool) -> int:
    """Show the app's reports as they arrive, until Ctrl-C.

    Equal reports within a quarter of a second are one line. A report that the sidecar refused is shown with the reason.
    Messages are redacted. With --json each line is a JSON object. The exit code is 1 when --for ends before a report
    came.
    """
    seen = 0
    try:
        for row in _rows(asking(ctx), limit_s):
            click.echo(json.dumps(row) if as_json else as_text(row))
            seen += 1
            if seen == count:
                return 0
    except KeyboardInterrupt:
        return 0
    if not seen:
        complain(f"no report came within {limit_s:g} s" if limit_s else "the sidecar ended, and no report came")
    return 0 if seen else EXIT_FAILED


def _rows(sidecar: Asking, limit_s: float | None) -> Iterator[Row]:
    """The rows of all reports from now on. Raises NoSidecarError, and UsageError if the sidecar refuses."""
    end = time.monotonic() + limit_s if limit_s else math.inf
    path = "/watch"
    while True:
        reply = local_api.ask(sidecar, "GET", path)
        if reply.status != local_api.OK:
            raise click.UsageError(str(reply.value.get("error")))
        if path == "/watch":
            complain("watching; Ctrl-C ends")
        yield from reply.value["reports"]
        if left_out := reply.value["left_out"]:
            yield {"at": time.time(), "source": "", "what": "left_out", "count": left_out}
        if time.monotonic() >= end:
            return
        path = f"/watch?after={reply.value['next']}"
        time.sleep(min(PAUSE_S, max(0.0, end - time.monotonic())))


def as_text(row: Row) -> str:
    """One row for a terminal: time, source, what came."""
    at = datetime.fromtimestamp(row["at"], UTC)
    what = "counted" if row["what"] == "scrape" else row["what"]  # the source says that it is a scrape
    return f"{at:%H:%M:%S}Z  {row['source']:<7} {coloured(f'{what:<10}', what)} {plain(_details(row))}".rstrip()


def _details(row: Row) -> str:
    if row["what"] == "error":
        level = "" if row["level"] == "server_error" else f" ({row['level']}: does not count)"
        fatal, start = " fatal" * bool(row.get("fatal")), row.get("app_start")
        message = f": {row['message']}" if row.get("message") else ""
        return f"{row['count']} x {row['kind']}{level}{fatal}{f' app_start={start}' if start else ''}{message}"
    if row["what"] == "refused":
        return f"{row['count']} x {row['message']}"
    if row["what"] == "results":
        return f"{row['ok']} ok, {row['failed']} failed"
    if row["what"] == "scrape":
        errors = ", ".join(f"{count} x {kind}" for kind, count in row["errors"].items()) or "no new error"
        return f"{errors}; {row['requests']} requests"
    return f"and {row['count']} other reports" if row["what"] == "left_out" else ""
