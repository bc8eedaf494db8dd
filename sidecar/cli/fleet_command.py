"""``fleet``: the state of the fleet."""

from __future__ import annotations

import shutil
import time
from typing import Any

import click

from sidecar.cli import fleet_table
from sidecar.cli.asking_options import asking, where
from sidecar.cli.exit_codes import EXIT_FAILED
from sidecar.cli.local_api import OK, ask, refused
from sidecar.cli.parameters import Command, json_option, tell
from sidecar.cli.terminal import complain


@click.command(cls=Command)
@click.option("--all", "is_all", is_flag=True, help="Every container, not only some of the healthy ones.")
@json_option
@where
@click.pass_context
def fleet(ctx: click.Context, /, *, is_all: bool, as_json: bool) -> int:
    """Show the fleet, the containers that need attention first."""
    reply = ask(asking(ctx), "GET", "/fleet")
    if "fleet" not in reply.value:
        return refused(reply, "nothing is known of the fleet")
    limit, width = None if is_all else fleet_table.ROWS_LIMIT, shutil.get_terminal_size().columns
    lines = fleet_table.as_text(reply.value, time.time(), width, limit)
    tell(_with_settings(reply.value) if as_json else None, "\n".join(lines), as_json=as_json)
    if reply.status == OK:
        return 0
    complain(fleet_table.heard_last(reply.value))
    return EXIT_FAILED


def _with_settings(seen: dict[str, Any]) -> dict[str, Any]:
    """The answer with the settings of each instance by name, in place of the texts that the store keeps.

    An instance whose sidecar has not told its settings has those of the fleet if all are alike, else None.
    """
    from sidecar.cli.doctor import settings_differences  # noqa: PLC0415 - the rules of the fleet, which the table does not need
    from sidecar.core.fleet.members import digest_of  # noqa: PLC0415 - as above

    texts = seen.get("settings", [])
    known: dict[str, Any] = {digest_of(text): settings_differences.settings_of(text) for text in texts}
    common = next(iter(known.values())) if len(known) == 1 else None
    settings = {
        member["instance"]: known.get((member.get("about") or {}).get("settings", ""), common)
        for member in seen.get("members", ())
    }
    return {**seen, "settings": settings}
