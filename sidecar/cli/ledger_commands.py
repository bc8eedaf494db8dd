"""``events``, ``report`` and ``message``: what has happened, what it adds up to, and whether people would be told."""

from __future__ import annotations

import contextlib
import io
from functools import partial
from typing import Final

import click

from sidecar.cli import event_commands
from sidecar.cli.parameters import Command, duration, json_option, settings, show, where

_SINCE: Final = partial(
    click.option, "--since", callback=duration, metavar="DURATION", show_default=True, help="How far back."
)


@click.command(cls=Command)
@_SINCE(default="24h")
@click.option("--follow", is_flag=True, help="Go on with what comes, until Ctrl-C.")
@json_option
@where
@click.pass_context
def events(ctx: click.Context, /, *, since: float, follow: bool, as_json: bool) -> int:
    """Print what happened to the service, as the ledger has it; with --json a line of JSON for each event.

    While the shared bucket is away it is what this sidecar has seen itself, and the exit code is 1.
    """
    return event_commands.events(settings(ctx), since, follow, as_json)


@click.command(cls=Command)
@_SINCE(default="7d")
@click.option(
    "--format", "form", type=click.Choice(event_commands.FORMATS), default=None, help="What it is written as. [text]"
)
@click.option("--output", default=event_commands.STDOUT, metavar="FILE", help="Where to; - is the terminal. [-]")
@click.option("--json", "as_json", is_flag=True, help="The same as --format json.")
@where
@click.pass_context
def report(ctx: click.Context, /, *, since: float, form: str | None, output: str, as_json: bool) -> int:
    """Add up what happened: culls by cause, what helped, time to replace, refusals, near misses in shadow mode.

    The HTML page needs nothing beside itself and is fit for a mail.
    """
    if as_json and form not in (None, "json"):
        raise click.UsageError("--json: not allowed with another --format")
    return event_commands.report(settings(ctx), since, "json" if as_json else form or "text", output)


@click.command(cls=Command)
@click.option("--test", is_flag=True, help="Send a test to everybody that the settings name, and its end.")
@json_option
@where
@click.pass_context
def message(ctx: click.Context, /, *, test: bool, as_json: bool) -> int:
    """Try the messages for people: with --test, tell all receivers, and print what each of them said.

    The exit code is 1 when one could not be told, 2 when there is none.
    """
    from sidecar.app import notify_parts  # noqa: PLC0415 - the client of HTTP, which no other command needs

    if not test:
        raise click.UsageError("--test: is missing, and there is nothing else to do")
    if not as_json:
        return notify_parts.test_message(settings(ctx))
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        code = notify_parts.test_message(settings(ctx))
    told = (line.partition(": ") for line in printed.getvalue().splitlines())
    show({"receivers": [{"receiver": receiver, "outcome": outcome} for receiver, _, outcome in told]})
    return code
