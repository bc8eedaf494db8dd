"""``events``: what happened to the service."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterator
from operator import itemgetter

import click

from sidecar.cli.asking_options import asking, where
from sidecar.cli.colours import coloured
from sidecar.cli.fleet_table import span
from sidecar.cli.ledger_reader import HEADER, Event, LedgerReader, as_text, since_option
from sidecar.cli.parameters import Command, json_option


@click.command(cls=Command)
@since_option(default="24h")
@click.option("--follow", is_flag=True, help="Go on with what comes, until Ctrl-C.")
@json_option
@where
@click.pass_context
def events(ctx: click.Context, /, *, since_s: float, follow: bool, as_json: bool) -> int:
    """Print what happened to the service, from its ledger.

    With --json each event is one line of JSON. While the shared store is away it prints what this sidecar has seen,
    and the exit code is 1.
    """
    reader, is_first = LedgerReader(asking(ctx), since_s), True

    def print_all(found: Iterator[Event]) -> None:
        nonlocal is_first
        for event in found:
            if is_first and not as_json:
                click.secho(HEADER, bold=True)
            is_first = False
            click.echo(json.dumps(event) if as_json else coloured(as_text(event), event["what"]))

    print_all(iter(sorted(reader.news(), key=itemgetter("at"))))  # what was kept while the store was away comes late
    if is_first and not as_json and not follow:
        click.echo(f"no events in the last {span(since_s)}")
    if not follow:
        return reader.ended()
    with contextlib.suppress(KeyboardInterrupt):
        print_all(reader.follow())
    return 0
