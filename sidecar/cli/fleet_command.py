"""``fleet``: the state of the fleet."""

from __future__ import annotations

import shutil
import sys
import time
from typing import Any, Final

import click

from sidecar.cli import fleet_table
from sidecar.cli.asking_options import Asking, asking, where
from sidecar.cli.exit_codes import EXIT_FAILED
from sidecar.cli.local_api import OK, NoSidecarError, Reply, ask, refused
from sidecar.cli.parameters import Command, json_option, show
from sidecar.cli.terminal import complain

REFRESH_S: Final = 2.0
_FRAME: Final = 4
"""Lines of the terminal beside the rows and those about the fleet."""


@click.command(cls=Command)
@click.option("--watch", is_flag=True, help="Draw it anew every 2 s, until Ctrl-C; once where there is no terminal.")
@click.option("--all", "is_all", is_flag=True, help="Every container, not only some of the healthy ones.")
@json_option
@where
@click.pass_context
def fleet(ctx: click.Context, /, *, watch: bool, is_all: bool, as_json: bool) -> int:
    """Show the fleet, the containers that need attention first."""
    if watch and as_json:
        raise click.UsageError("--watch: not allowed with --json")
    sidecar = asking(ctx)
    reply = ask(sidecar, "GET", "/fleet")
    if "fleet" not in reply.value:
        return refused(reply, "nothing is known of the fleet")
    if watch and sys.stdout.isatty():
        _watch(sidecar, reply, is_all=is_all)
        return 0
    if as_json:
        show(_with_settings(reply.value))
    else:
        limit = None if is_all else fleet_table.ROWS_LIMIT
        width = shutil.get_terminal_size().columns
        click.echo("\n".join(fleet_table.as_text(reply.value, time.time(), width, limit=limit)))
    if reply.status == OK:
        return 0
    complain(fleet_table.heard_last(reply.value))
    return EXIT_FAILED


def _watch(sidecar: Asking, reply: Reply, *, is_all: bool) -> None:
    """Draw the fleet anew until the operator interrupts it."""
    seen, problem = reply.value, "" if reply.status == OK else fleet_table.heard_last(reply.value)
    try:
        while True:
            _draw(seen, problem, is_all=is_all)
            time.sleep(REFRESH_S)
            try:
                reply = ask(sidecar, "GET", "/fleet")
            except NoSidecarError as error:
                problem = error.message
                continue
            seen = reply.value if "fleet" in reply.value else seen
            problem = "" if reply.status == OK else fleet_table.heard_last(reply.value)
    except KeyboardInterrupt:
        return


def _draw(seen: dict[str, Any], problem: str, *, is_all: bool) -> None:
    now, size = time.time(), shutil.get_terminal_size()
    about_fleet = len([*fleet_table.head(seen, now)]) + bool(problem)
    limit = None if is_all else max(1, size.lines - about_fleet - _FRAME)
    lines = fleet_table.as_text(seen, now, size.columns, limit=limit, problem=problem)
    click.clear()
    click.echo("\n".join([*lines, f"{time.strftime('%H:%M:%S')}  Ctrl-C ends"]))


def _with_settings(seen: dict[str, Any]) -> dict[str, Any]:
    """The answer with the settings of each instance by name, in place of the texts that the store keeps.

    An instance whose sidecar has not told its settings has those of the fleet if all are alike, else None.
    """
    from sidecar.cli.doctor import settings_differences  # noqa: PLC0415 - the rules of the fleet, which the table does not need
    from sidecar.core.fleet.members import digest_of  # noqa: PLC0415 - as above

    texts = seen.get("policies", [])
    known: dict[str, Any] = {digest_of(text): settings_differences.settings_of(text) for text in texts}
    common = next(iter(known.values())) if len(known) == 1 else None
    settings = {
        member["instance"]: known.get((member.get("about") or {}).get("settings", ""), common)
        for member in seen.get("members", ())
    }
    return {**{name: value for name, value in seen.items() if name != "policies"}, "settings": settings}
