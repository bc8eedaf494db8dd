"""``watch``: what is new in ``/why``, second by second, to see whether the app's first error arrives, and as what."""

from __future__ import annotations

import json
import math
import time
from collections import Counter
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
from sidecar.core.app_reports import ErrorLevel
from sidecar.core.measure.measurements import IGNORED

PAUSE_S: Final = 1.0

Row = dict[str, Any]
"""``at`` (Unix seconds) and ``what``: ``state``, ``error`` or ``requests``; and the fields of that."""


@click.command(cls=Command)
@click.option("--for", "limit_s", type=DURATION, default=None, metavar="DURATION", help="End after this time.")
@json_option
@where
@click.pass_context
def watch(ctx: click.Context, /, *, limit_s: float | None, as_json: bool) -> int:
    """Show the app's errors as they come, until Ctrl-C.

    It asks once a second, and shows the container's state, too. Errors of one kind and message are one line; messages are redacted. Of the requests it shows
    the first, and those that failed. With --json each line is a JSON object. The exit code is 1 when --for ends before
    an error or a request came.
    """
    has_come = False
    try:
        for row in _rows(asking(ctx), limit_s):
            click.echo(json.dumps(row) if as_json else as_text(row))
            has_come |= row["what"] != "state"
    except KeyboardInterrupt:
        return 0
    if not has_come:
        complain(f"no error and no request came within {limit_s:g} s")
    return 0 if has_come else EXIT_FAILED


def _rows(sidecar: Asking, limit_s: float | None) -> Iterator[Row]:
    """The state now, then all that is new. Raises NoSidecarError, and UsageError if the sidecar refuses."""
    end = time.monotonic() + limit_s if limit_s else math.inf
    before: dict[str, Any] | None = None
    while True:
        reply = local_api.ask(sidecar, "GET", "/why")
        if reply.status != local_api.OK:
            raise click.UsageError(str(reply.value.get("error")))
        for row in news(before, reply.value):
            yield {"at": reply.value["at"], **row}
        before = reply.value
        if time.monotonic() >= end:
            return
        time.sleep(min(PAUSE_S, max(0.0, end - time.monotonic())))


def news(before: dict[str, Any] | None, now: dict[str, Any]) -> Iterator[Row]:
    """Rows of what the answer ``now`` of ``/why`` has that ``before`` did not have; at first the state alone."""
    if before is None or before["state"] != now["state"]:
        yield {"what": "state", "state": now["state"], "sentence": now["sentence"]}
    if before is None:
        return
    yield from _errors(before, now)
    requests, failed = (now["window"][name] - before["window"][name] for name in ("requests", "failed"))
    if failed > 0 or (requests > 0 and not before["window"]["requests"]):
        yield {"what": "requests", "count": max(requests, failed), "failed": max(0, failed)}


def _errors(before: dict[str, Any], now: dict[str, Any]) -> Iterator[Row]:
    """New errors with a message, then the others that the window counts: bare ones, and those of a metrics page."""
    known = {sample["fingerprint"]: sample["count"] for sample in before.get("samples", ())}
    kinds, levels = Counter(before["window"]["kinds"]), Counter(before["window"]["levels"])
    is_never_counted = IGNORED in now["window"]["levels"]
    for sample in reversed(now.get("samples", ())):  # the oldest first; the public listener shows none
        new = sample["count"] - known.get(sample["fingerprint"], 0)
        count = sample["count"] if new < 0 else new  # fewer than before are those of another incarnation
        kind, level, message = sample["kind"], sample["level"], sample["message"]
        if level == ErrorLevel.SERVER_ERROR and is_never_counted and kind not in now["window"]["kinds"]:
            level = IGNORED
        if count:
            yield {"what": "error", "count": count, "kind": kind, "level": level, "message": message}
        counts, key = (kinds, kind) if level == ErrorLevel.SERVER_ERROR else (levels, level)
        counts[key] += count
    for kind, total in now["window"]["kinds"].items():
        if (count := total - kinds[kind]) > 0:
            yield {"what": "error", "count": count, "kind": kind, "level": ErrorLevel.SERVER_ERROR.value}
    for level, total in now["window"]["levels"].items():
        if (count := total - levels[level]) > 0:
            yield {"what": "error", "count": count, "kind": "", "level": level}


def as_text(row: Row) -> str:
    """A row as a line for a terminal."""
    line = f"{datetime.fromtimestamp(row['at'], UTC):%H:%M:%S}Z  {plain(_details(row))}"
    return coloured(line, row["state"] if row["what"] == "state" else row["what"])


def _details(row: Row) -> str:
    if row["what"] == "state":
        return f"state     {row['state']}: {row['sentence']}"
    if row["what"] == "requests":
        return f"requests  {row['count']}, of which {row['failed']} failed"
    level = "" if row["level"] == ErrorLevel.SERVER_ERROR else f"({row['level']}: does not count)"
    named = " ".join(part for part in (row["kind"], level) if part)
    message = f": {row['message']}" if row.get("message") else ""
    return f"error     {row['count']} x {named}{message}"
