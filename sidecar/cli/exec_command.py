"""``exec``: any command under a run lock, for the help and for completion; ``cli.main`` runs it without click."""

from __future__ import annotations

import click

from sidecar.cli.terminal import PROGRAM
from sidecar.runlock import execute


class _ExecCommand(click.Command):
    """A command whose words the program of the run locks reads, ``--help`` too."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        ctx.params["words"] = args
        return []


@click.command("exec", cls=_ExecCommand)
def exec(words: list[str]) -> int:  # noqa: A001 - the name of the command
    """Run a command under a lock, with a planned end and standbys."""
    return execute.main(words, f"{PROGRAM} exec")
