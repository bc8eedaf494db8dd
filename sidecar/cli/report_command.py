"""``report``: the ledger of the service summed up, as text, JSON or one HTML file."""

from __future__ import annotations

import json
import time
from dataclasses import asdict
from pathlib import Path
from typing import Final

import click

from sidecar.cli.asking_options import asking, where
from sidecar.cli.exit_codes import EXIT_FAILED
from sidecar.cli.ledger_reader import Event, LedgerReader, since_option
from sidecar.cli.parameters import Command
from sidecar.cli.report.figures import FleetReport, report_of
from sidecar.cli.report.html_report import html
from sidecar.cli.report.text_report import text
from sidecar.cli.terminal import cause, complain
from sidecar.core.types import Entry

STDOUT: Final = "-"
FORMATS: Final = ("text", "json", "html")


@click.command(cls=Command)
@since_option(default="7d")
@click.option("--format", "form", type=click.Choice(FORMATS), show_default="text", help="Format.")
@click.option("--output", default=STDOUT, metavar="FILE", help="Where the report goes; - is the terminal.")
@click.option("--json", "as_json", is_flag=True, help="The same as --format json.")
@where
@click.pass_context
def report(ctx: click.Context, /, *, since_s: float, form: str | None, output: str, as_json: bool) -> int:
    """Sum up what happened to the service.

    It counts culls by cause, what helped, time to replace, refusals, and near misses in shadow mode. The HTML page
    needs nothing beside itself, so it can be sent by mail.
    """
    if as_json and form not in (None, "json"):
        raise click.UsageError("--json: not allowed with another --format")
    reader = LedgerReader(asking(ctx), since_s)
    entries = [Entry(**{name: event[name] for name in Entry._fields if name in event}) for event in reader.news()]
    now = time.time()
    added = report_of(
        entries,
        now - since_s,
        now,
        now,
        service=reader.service,
        mode=reader.mode,
        enforce_percent=reader.enforce_percent,
    )
    document = _document(added, "json" if as_json else form or "text")
    try:
        _write(output, document)
    except OSError as error:
        complain(f"{output} cannot be written: {cause(error)}")
        return EXIT_FAILED
    return reader.ended()


def _document(added: FleetReport, form: str) -> str:
    if form == "json":
        return json.dumps(_named(added), indent=2)
    return html(added).rstrip("\n") if form == "html" else text(added)


def _named(added: FleetReport) -> Event:
    """The report as JSON values, rows with the names of their fields."""
    fields = asdict(added)
    for name in ("causes", "recurring", "holds", "others"):
        fields[name] = [row._asdict() for row in getattr(added, name)]
    return {**fields, "refusals": dict(added.refusals)}


def _write(output: str, document: str) -> None:
    """Write a file as a whole, or not at all; a pipe or a device as it is."""
    path = Path(output)
    if output == STDOUT:
        click.echo(document)
    else:
        is_new = path.is_file() or not path.exists()
        with click.open_file(output, "w", encoding="utf-8", atomic=is_new) as file:
            file.write(f"{document}\n")
