"""``why``: the reasons for the state of one container; ``watch``: what is new in them, second by second.

``watch`` is for a developer who waits for the first error of the app: whether it arrives, and as what.
"""

from __future__ import annotations

import json
import math
import time
from collections import Counter
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any, Final

import click

from sidecar.cli import fleet_command
from sidecar.cli.events_command import LedgerReader, as_text
from sidecar.cli.local_api import OK, ask, refused
from sidecar.cli.options import DURATION, Asking, Command, asking, json_option, tell, where
from sidecar.cli.terminal import EXIT_FAILED, coloured, complain, plain
from sidecar.core.app_reports import ErrorLevel
from sidecar.core.claims import MANUAL, Presence
from sidecar.core.measure.measurements import IGNORED
from sidecar.core.types import State
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
    sidecar = asking(ctx)
    reply = ask(sidecar, "GET", "/why")
    if reply.status != OK:
        return refused(reply, "the state of the container is not known")
    if instance is not None and instance != reply.value["instance"]:
        return _of_another(sidecar, instance, as_json=as_json)
    text = why_text.as_text(reply.value).rstrip("\n")
    tell(reply.value, coloured(text, reply.value["state"]), as_json=as_json)
    return 0


def _of_another(sidecar: Asking, instance: str, *, as_json: bool) -> int:
    reply = ask(sidecar, "GET", "/fleet")
    seen, events = reply.value, list(LedgerReader(sidecar, LOOK_BACK_S).news())
    members = {member["instance"]: member for member in seen.get("members", ())}
    departed = {member["instance"]: member for member in seen.get("departed", ())}
    known = {*members, *departed, *(event["instance"] for event in events)} - {""}
    begun = {instance} if instance in known else {each for each in known if each.startswith(instance)}
    if len(begun) > 1:
        return _several(instance, begun, members, departed, as_json=as_json)
    name = next(iter(begun), instance)
    found: dict[str, Any] = {
        "instance": name,
        "asked": seen.get("instance"),
        "service": seen.get("service"),
        "known": name in known,
        "member": members.get(name),
        "departed": departed.get(name),
        "holds": [hold for hold in seen.get("holds", ()) if hold["instance"] in ("", name)],
        "events": [event for event in events if event["instance"] == name][-EVENTS_LIMIT:],
    }
    if as_json or found["known"]:
        tell(found, "\n".join(_explained(found, seen)), as_json=as_json)
    if reply.status != OK:
        unknown = f"{reply.value.get('sentence')}: nothing is known of {instance} here; ask the sidecar beside it"
        complain(fleet_command.heard_last(reply.value) if found["known"] else unknown)
        return EXIT_FAILED
    if not found["known"]:
        complain(f"the fleet does not know this container: {instance}")
    return 0 if found["known"] else EXIT_FAILED


def _several(prefix: str, begun: set[str], members: dict[str, Any], departed: dict[str, Any], *, as_json: bool) -> int:
    """List the containers whose names begin so, because one name is needed."""
    lines = [plain(f"{name} {_presence(members.get(name), departed.get(name))}") for name in sorted(begun)]
    tell({"instance": prefix, "known": False, "matches": sorted(begun)}, "\n".join(lines), as_json=as_json)
    complain(f"{len(begun)} containers begin with {prefix}: give the name of one")
    return EXIT_FAILED


def _explained(found: dict[str, Any], seen: dict[str, Any]) -> Iterator[str]:
    now, member = time.time(), found["member"]
    first = plain(f"{found['service']}/{found['instance']} {_presence(member, found['departed'])}")
    yield coloured(first, member["presence"]) if member else first
    if member and member.get("about"):
        yield plain(f"says    {_says(member['about'], now)}")
    yield from (f"hold: {fleet_command.hold_line(hold, now)}" for hold in found["holds"])
    if seen.get("fleet"):
        yield next(fleet_command.head(seen, now))
    yield from (coloured(as_text(event), event["what"]) for event in reversed(found["events"]))
    yield plain(f"This is what the sidecar of {found['asked']} knows; ask that of {found['instance']} for more.")


def _says(about: dict[str, Any], now: float) -> str:
    """What the sidecar beside a container says of it."""
    since, state = fleet_command.span(now - about["since"]), about["state"]
    figures = f"{about['errors']} errors of {about['limit']}, weight {about['weight']} %"
    named = {"node": about.get("node"), "app version": about.get("app_version")}
    traits = "".join(f", {name} {value}" for name, value in named.items() if value)
    return f"{state} for {since}, {figures}, incarnation {about['incarnation']}, version {about['version']}{traits}"


def _presence(member: dict[str, Any] | None, departed: dict[str, Any] | None) -> str:
    if member is None:
        silent = f", silent for {fleet_command.span(departed['age_s'])}" if departed else ""
        return f"is not a member of the fleet now{silent}"
    age, cause = fleet_command.span(member["age_s"]), _because(member["kind"])
    if member["presence"] == Presence.DOWN:
        draining = (member.get("about") or {}).get("state") == State.DRAINING
        return f"is draining, for {age}{cause}" if draining else f"has been down for {age}{cause}"
    double = "; another container beats under its name, so neither may be culled" if member.get("duplicate") else ""
    return f"is {member['presence']}{cause}, heard of {age} ago{double}"


def _because(kind: str) -> str:
    if kind == MANUAL:
        return ", by an operator's order"
    return f" because of {kind}" if kind else ""


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
        for row in _rows(asking(ctx), limit_s):
            click.echo(json.dumps(row) if as_json else line_of(row))
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
