"""``report``: the ledger of the service summed up, as text, JSON or one HTML page."""

from __future__ import annotations

import time
from dataclasses import asdict

import click

from sidecar.cli.asking_options import asking, where
from sidecar.cli.ledger_reader import Event, LedgerReader, since_option
from sidecar.cli.parameters import Command, json_option, tell
from sidecar.cli.report.figures import FleetReport, report_of
from sidecar.cli.report.html_report import html
from sidecar.cli.report.text_report import text
from sidecar.core.types import Entry


@click.command(cls=Command)
@since_option(default="7d")
@click.option("--html", "as_html", is_flag=True, help="Print one HTML page, which needs nothing beside itself.")
@json_option
@where
@click.pass_context
def report(ctx: click.Context, /, *, since_s: float, as_html: bool, as_json: bool) -> int:
    """Sum up what happened to the service.

    It counts culls by cause, what helped, time to replace, refusals, and near misses in shadow mode.
    """
    if as_html and as_json:
        raise click.UsageError("--html: not allowed with --json")
    reader, now = LedgerReader(asking(ctx), since_s), time.time()
    entries = [Entry(**{name: event[name] for name in Entry._fields if name in event}) for event in reader.news()]
    added = report_of(
        entries, now - since_s, now, service=reader.service, mode=reader.mode, enforce_percent=reader.enforce_percent
    )
    tell(_named(added), html(added).rstrip("\n") if as_html else text(added), as_json=as_json)
    return reader.ended()


def _named(added: FleetReport) -> Event:
    """The report as JSON values, rows with the names of their fields."""
    fields = asdict(added)
    for name in ("causes", "holds", "others"):
        fields[name] = [row._asdict() for row in getattr(added, name)]
    return {**fields, "refusals": dict(added.refusals)}
