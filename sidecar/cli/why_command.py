"""``why``: the reasons for the state of one container."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any, Final

import click

from sidecar.cli import fleet_table
from sidecar.cli.asking_options import Asking, asking, where
from sidecar.cli.colours import coloured
from sidecar.cli.exit_codes import EXIT_FAILED
from sidecar.cli.ledger_reader import LedgerReader, as_text
from sidecar.cli.local_api import OK, ask, refused
from sidecar.cli.parameters import Command, json_option, tell
from sidecar.cli.terminal import complain, plain
from sidecar.core.claims import MANUAL, Presence
from sidecar.core.types import State
from sidecar.server import why_text

LOOK_BACK_S: Final = 7 * 86_400.0
EVENTS_LIMIT: Final = 20


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
        complain(fleet_table.heard_last(reply.value) if found["known"] else unknown)
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
    yield from (f"hold: {fleet_table.hold_line(hold, now)}" for hold in found["holds"])
    if seen.get("fleet"):
        yield next(fleet_table.head(seen, now))
    yield from (coloured(as_text(event), event["what"]) for event in reversed(found["events"]))
    yield plain(f"This is what the sidecar of {found['asked']} knows; ask that of {found['instance']} for more.")


def _says(about: dict[str, Any], now: float) -> str:
    """What the sidecar beside a container says of it."""
    since, state = fleet_table.span(now - about["since"]), about["state"]
    figures = f"{about['errors']} errors of {about['limit']}, weight {about['weight']} %"
    named = {"node": about.get("node"), "app version": about.get("app_version")}
    traits = "".join(f", {name} {value}" for name, value in named.items() if value)
    return f"{state} for {since}, {figures}, incarnation {about['incarnation']}, version {about['version']}{traits}"


def _presence(member: dict[str, Any] | None, departed: dict[str, Any] | None) -> str:
    if member is None:
        silent = f", silent for {fleet_table.span(departed['age_s'])}" if departed else ""
        return f"is not a member of the fleet now{silent}"
    age, cause = fleet_table.span(member["age_s"]), _because(member["kind"])
    if member["presence"] == Presence.DOWN:
        draining = (member.get("about") or {}).get("state") == State.DRAINING
        return f"is draining, for {age}{cause}" if draining else f"has been down for {age}{cause}"
    double = "; another container beats under its name, so neither may be culled" if member.get("duplicate") else ""
    return f"is {member['presence']}{cause}, heard of {age} ago{double}"


def _because(kind: str) -> str:
    if kind == MANUAL:
        return ", by an operator's order"
    return f" because of {kind}" if kind else ""
