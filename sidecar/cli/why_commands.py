"""``why``: the reasons for the state of one container; ``watch``: what is new in them, second by second.

``watch`` is for a developer who waits for the first error of the app: whether it arrives, and as what.
"""

from __future__ import annotations

import json
import math
import shutil
import time
from collections import Counter
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any, Final

import click

from sidecar.cli import fleet_command
from sidecar.cli.events_command import LedgerReader, as_text
from sidecar.cli.local_api import OK, Listener, ask, listener, refused, where
from sidecar.cli.options import DURATION, Command, json_option, tell
from sidecar.cli.terminal import EXIT_FAILED, coloured, complain, plain
from sidecar.core.app_reports import ErrorLevel
from sidecar.core.measure.measurements import IGNORED
from sidecar.server import why_text

LOOK_BACK_S: Final = 7 * 86_400.0
EVENTS_LIMIT: Final = 20

PAUSE_S: Final = 1.0
Row = dict[str, Any]
"""A line of ``watch``: ``at`` (Unix seconds), ``what`` (``state``, ``error``, ``requests``), and the fields of that."""


@click.command(cls=Command)
@click.argument("instance", required=False)
@json_option
@where
@click.pass_context
def why(ctx: click.Context, /, *, instance: str | None, as_json: bool) -> int:
    """Explain the state of the container here, or of another.

    For another INSTANCE (or the beginning of its name) it tells what the fleet and the ledger of the last 7 days know;
    its own sidecar knows more. A beginning that several names share lists them. The exit code is 1 when nothing is
    known of it, or when there are several.
    """
    sidecar = listener(ctx)
    reply = ask(sidecar, "GET", "/why")
    if reply.status != OK:
        return refused(reply, "the state of the container is not known")
    if instance is not None and instance != reply.value["instance"]:
        return _of_another(sidecar, instance, as_json=as_json)
    text = why_text.as_text(reply.value).rstrip("\n")
    tell(reply.value, coloured(text, reply.value["state"]), as_json=as_json)
    return 0


def _of_another(sidecar: Listener, instance: str, *, as_json: bool) -> int:
    status, fleet = ask(sidecar, "GET", "/fleet")
    events = list(LedgerReader(sidecar, LOOK_BACK_S).news())
    members, departed = fleet.get("members", ()), fleet.get("departed", ())
    listed = [each["instance"] for each in (*members, *departed, *events)]
    names = {instance} if instance in listed else {name for name in listed if name.startswith(instance)}
    explained = {
        "asked": fleet.get("instance"),
        "service": fleet.get("service"),
        "instances": sorted(names),
        "members": [member for member in members if member["instance"] in names],
        "departed": [member for member in departed if member["instance"] in names],
        "holds": [hold for hold in fleet.get("holds", ()) if hold["instance"] in ("", *names)],
        "events": [event for event in events if event["instance"] in names][-EVENTS_LIMIT:],
    }
    if as_json or names:
        tell(explained, "\n".join(_lines(explained)), as_json=as_json)
    if status != OK:
        unknown = f"{fleet.get('sentence')}: nothing is known of {instance} here; ask the sidecar beside it"
        complain(fleet_command.heard_last(fleet) if names else unknown)
    elif not names:
        complain(f"the fleet does not know this container: {instance}")
    elif len(names) > 1:
        complain(f"{len(names)} containers begin with {instance}: give the name of one")
    return 0 if status == OK and len(names) == 1 else EXIT_FAILED


def _lines(explained: dict[str, Any]) -> Iterator[str]:
    """The rows of ``fleet``; of a single container also holds and events, the newest first."""
    now, names = time.time(), explained["instances"]
    rows = fleet_command.rows(explained, now)
    living = {row["instance"] for row in rows}
    rows += [{"instance": name, "state": fleet_command.GONE} for name in names if name not in living]
    yield from fleet_command.table(rows, shutil.get_terminal_size().columns)
    if len(names) > 1:
        return
    yield from (f"hold: {fleet_command.hold_line(hold, now)}" for hold in explained["holds"])
    yield from (coloured(as_text(event), event["what"]) for event in reversed(explained["events"]))
    yield plain(f"This is what the sidecar of {explained['asked']} knows; ask that of {names[0]} for more.")


@click.command(cls=Command)
@click.option("--for", "limit_s", type=DURATION, default=None, metavar="DURATION", help="End after this time.")
@json_option
@where
@click.pass_context
def watch(ctx: click.Context, /, *, limit_s: float | None, as_json: bool) -> int:
    """Show the app's errors as they come, until Ctrl-C.

    It looks once a second, and shows the container's state, too. Errors of one kind and message are one line, and
    messages are redacted. Of the requests it shows the first, and those that failed. With --json each line is a JSON
    object. The exit code is 1 when --for ends before an error or a request came.
    """
    has_come = False
    try:
        for row in _rows(listener(ctx), limit_s):
            click.echo(json.dumps(row) if as_json else line_of(row))
            has_come |= row["what"] != "state"
    except KeyboardInterrupt:
        return 0
    if not has_come:
        complain(f"no error and no request came within {limit_s:g} s")
    return 0 if has_come else EXIT_FAILED


def _rows(sidecar: Listener, limit_s: float | None) -> Iterator[Row]:
    """The state now, then all that is new. Raises NoSidecarError, and UsageError if the sidecar refuses."""
    end = time.monotonic() + limit_s if limit_s else math.inf
    before: dict[str, Any] | None = None
    while True:
        reply = ask(sidecar, "GET", "/why")
        if reply.status != OK:
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
    counted = {sample["fingerprint"]: sample["count"] for sample in before.get("samples", ())}
    kinds, levels = Counter(before["window"]["kinds"]), Counter(before["window"]["levels"])
    is_never_counted = IGNORED in now["window"]["levels"]
    for sample in reversed(now.get("samples", ())):  # the oldest first; the public listener shows none
        new = sample["count"] - counted.get(sample["fingerprint"], 0)
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


def line_of(row: Row) -> str:
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
