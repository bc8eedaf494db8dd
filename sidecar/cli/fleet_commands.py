"""``fleet`` and ``why``: who there is, and why one of them stands as it does."""

from __future__ import annotations

import json
import time
from collections.abc import Sequence
from typing import Any, Final

import click
from rich.live import Live

from sidecar.cli import event_commands, fleet_table, live_table, local_api
from sidecar.cli.exit_codes import EXIT_FAILED
from sidecar.cli.parameters import OK, Command, json_option, refused, settings, show, where
from sidecar.cli.terminal import complain, plain, say
from sidecar.config.settings import Settings
from sidecar.core.types import MANUAL, Presence
from sidecar.server.why_text import written

EVERY_S: Final = 2.0
BACK_S: Final = 7 * 86_400.0
MOST_EVENTS: Final = 20
_FRAME: Final = 3
"""Lines of the terminal beside the rows and the head: a blank one, the names of the columns, the last one."""


# -- fleet ------------------------------------------------------------------------------------------------------


@click.command(cls=Command)
@click.option("--watch", is_flag=True, help="Draw it anew every 2 s, until Ctrl-C; once where there is no terminal.")
@click.option("--all", "is_all", is_flag=True, help="Every container, not only some of those that are well.")
@json_option
@where
@click.pass_context
def fleet(ctx: click.Context, /, *, watch: bool, is_all: bool, as_json: bool) -> int:
    """Show the fleet as the shared bucket knows it, what needs a look first."""
    if watch and as_json:
        raise click.UsageError("--watch: not allowed with --json")
    effective = settings(ctx)
    reply = local_api.ask(effective, "GET", "/fleet")
    if "fleet" not in reply.value:
        return refused(reply, "nothing is known of the fleet")
    console = live_table.console()
    if as_json:
        show(reply.value)
    elif watch and console.is_terminal:
        _Watch(effective, is_all=is_all).run(reply)
        return 0
    else:
        _print(reply.value, console.width, is_all=is_all)
    if reply.status == OK:
        return 0
    complain(f"{reply.value['sentence']}: that is what this sidecar heard last")
    return EXIT_FAILED


def _print(seen: dict[str, Any], width: int, *, is_all: bool) -> None:
    now, most_gone = time.time(), None if is_all else fleet_table.MOST_GONE
    every = fleet_table.rows(seen, now, most_gone)
    shown, left_out = fleet_table.chosen(every, None if is_all else fleet_table.MOST_ROWS)
    body = ["", *live_table.lines(shown, width)] if shown else []
    say("\n".join([*fleet_table.head(seen, now), *body, *fleet_table.foot(seen, left_out, most_gone)]))


class _Watch:
    """Draws the fleet anew until it is interrupted."""

    def __init__(self, effective: Settings, *, is_all: bool) -> None:
        self._settings = effective
        self._is_all = is_all

    def run(self, reply: local_api.Reply) -> None:
        console = live_table.console()
        seen, trouble = reply.value, _trouble(reply)
        with Live(console=console, auto_refresh=False, screen=True) as live:
            try:
                while True:
                    live.update(self._drawn(seen, trouble, console.width, console.height), refresh=True)
                    time.sleep(EVERY_S)
                    seen, trouble = self._asked(seen)
            except KeyboardInterrupt:
                pass
        _print(seen, console.width, is_all=self._is_all)

    def _asked(self, before: dict[str, Any]) -> tuple[dict[str, Any], str]:
        """What is seen now, or was seen last, and what is wrong."""
        try:
            reply = local_api.ask(self._settings, "GET", "/fleet")
        except local_api.NoSidecarError as error:
            return before, plain(error)
        return (reply.value if "fleet" in reply.value else before), _trouble(reply)

    def _drawn(self, seen: dict[str, Any], trouble: str, width: int, height: int) -> Any:
        now, most_gone = time.time(), None if self._is_all else fleet_table.MOST_GONE
        head = [*fleet_table.head(seen, now), *([f"!       {trouble}"] if trouble else [])]
        room = max(1, height - len(head) - _FRAME - 1)
        every = fleet_table.rows(seen, now, most_gone)
        shown, left_out = fleet_table.chosen(every, None if self._is_all else room)
        foot = [*fleet_table.foot(seen, left_out, most_gone), f"{time.strftime('%H:%M:%S')}  Ctrl-C ends"]
        return live_table.whole(head, shown, foot, width)


def _trouble(reply: local_api.Reply) -> str:
    return "" if reply.status == OK else plain(f"{reply.value.get('sentence')}: that is what was heard last")


# -- why --------------------------------------------------------------------------------------------------------


@click.command(cls=Command)
@click.argument("instance", required=False)
@json_option
@where
@click.pass_context
def why(ctx: click.Context, /, *, instance: str | None, as_json: bool) -> int:
    """Tell why the container beside this sidecar stands as it does.

    Of another INSTANCE (or the beginning of its name) it tells what the fleet and the ledger of the last 7 days know;
    its own sidecar knows more. The exit code is 1 when nothing is known of it.
    """
    effective = settings(ctx)
    reply = local_api.ask(effective, "GET", "/why")
    if reply.status != OK:
        return refused(reply, "why is not known")
    if instance is None or instance == reply.value["instance"]:
        if as_json:
            show(reply.value)
        else:
            say("\n".join(map(plain, written(reply.value).splitlines())))
        return 0
    return _of_another(effective, instance, as_json=as_json)


def _of_another(effective: Settings, instance: str, *, as_json: bool) -> int:
    reply = local_api.ask(effective, "GET", "/fleet")
    lines: list[str] = []
    event_commands.events(effective, BACK_S, follow=False, as_json=True, out=lines.append)
    events = [json.loads(line) for line in lines]
    departed = reply.value.get("departed", ())
    known = {one["instance"] for one in (*reply.value.get("members", ()), *departed, *events)} - {""}
    name = _meant(instance, known)
    found = {
        "instance": name,
        "asked": reply.value.get("instance"),
        "service": reply.value.get("service"),
        "known": name in known,
        "member": next((one for one in reply.value.get("members", ()) if one["instance"] == name), None),
        "departed": next((one for one in departed if one["instance"] == name), None),
        "holds": [hold for hold in reply.value.get("holds", ()) if hold["instance"] in ("", name)],
        "events": [event for event in events if event["instance"] == name][-MOST_EVENTS:],
    }
    if as_json:
        show(found)
    elif found["known"]:
        say("\n".join(_told(found, reply.value)))
    if reply.status != OK:
        complain(f"{reply.value.get('sentence')}: that is what this sidecar has heard")
        return EXIT_FAILED
    if not found["known"]:
        complain(f"no such container has been heard of: {instance}")
    return 0 if found["known"] else EXIT_FAILED


def _meant(instance: str, known: set[str]) -> str:
    """The name that is meant: the one that it is, or the only one that begins so."""
    begun = [name for name in known if name.startswith(instance)]
    if instance in known or len(begun) != 1:
        return instance
    return begun[0]


def _told(found: dict[str, Any], seen: dict[str, Any]) -> Sequence[str]:
    now, member = time.time(), found["member"]
    lines = [plain(f"{found['service']}/{found['instance']} {_presence(member, found['departed'])}")]
    if member and member.get("about"):
        lines.append(plain(f"told    {fleet_table.told(member['about'], now)}"))
    lines += [f"hold: {fleet_table.hold_line(hold, now)}" for hold in found["holds"]]
    if seen.get("fleet"):
        lines.append(next(iter(fleet_table.head(seen, now))))
    lines += map(event_commands.as_text, reversed(found["events"]))
    lines.append(
        plain(f"told by the sidecar of {found['asked']}; that of {found['instance']} knows more: ask it there")
    )
    return lines


def _presence(member: dict[str, Any] | None, departed: dict[str, Any] | None) -> str:
    if member is None:
        silent = f", silent for {fleet_table.span(departed['age_s'])}" if departed else ""
        return f"is not a member of the fleet now{silent}"
    age, cause = fleet_table.span(member["age_s"]), _cause(member["kind"])
    if member["presence"] == Presence.DOWN:
        return f"has been down for {age}{cause}"
    double = "; another container beats under its name, so neither may be culled" if member.get("duplicate") else ""
    return f"is {member['presence']}{cause}, heard of {age} ago{double}"


def _cause(kind: str) -> str:
    if kind == MANUAL:
        return ", by a person's order"
    return f" because of {kind}" if kind else ""
