"""The commands that ``cli`` runs itself, here for the help and the completion alone; and ``doctor``, which has both."""

from __future__ import annotations

from functools import partial
from typing import Any, Final

import click
from click.shell_completion import CompletionItem

from sidecar.cli import flags, main
from sidecar.cli.parameters import Command, json_option

CODES: Final = "Exit codes: 0 nothing fails; 1 something does; 2 settings, a flag or a job file that cannot be used."


class SettingsCommand(Command):
    """A command that takes every setting as a flag; ``cli`` reads them."""

    ignore_unknown_options = True

    def shell_complete(self, ctx: click.Context, incomplete: str) -> list[CompletionItem]:
        """The flags of the settings, besides its own."""
        own = super().shell_complete(ctx, incomplete)
        known = flags.flag_table() if incomplete.startswith("-") else []
        return [*own, *(CompletionItem(flag, help=text) for flag, text in known if flag.startswith(incomplete))]


@click.command(cls=SettingsCommand, codes=CODES)
@click.option("--job", metavar="FILE", default=None, help="Also look at this job file of Nomad: JSON, or HCL.")
@json_option
@click.argument("rest", nargs=-1, type=click.UNPROCESSED, metavar="[--SETTING VALUE]...")
def doctor(*, job: str | None, as_json: bool, rest: tuple[str, ...]) -> int:
    """Look at every Redis server, at the sidecar on this machine, and at what is round it; tell what is wrong.

    Every setting is a flag as well, as with check-config. It leaves nothing behind.
    """
    from sidecar.cli.doctor import examination as room  # noqa: PLC0415 - the client of Redis

    return main.with_settings(["doctor", *rest], partial(room.main, as_json=as_json, job=job))


def _elsewhere(*_: Any, **__: Any) -> int:
    raise click.UsageError("first comes the command, then its flags")


def _listed(name: str, text: str) -> click.Command:
    return SettingsCommand(name, callback=_elsewhere, help=text)


run: Final = _listed("run", "Serve, which is what happens without a command.")
check_config: Final = json_option(_listed("check-config", "Print the effective settings, and exit."))
execute: Final = Command("exec", callback=_elsewhere, help="Run a command under a lock, with a planned end.")
