"""``events``, ``report`` and ``message``: what happened to the service, and whether messages about it arrive.

The sidecar of this machine answers with the ledger of the service, or with its own events while the shared store is
away; then the exit code is 1.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import time
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import asdict
from datetime import UTC, datetime
from functools import partial
from operator import itemgetter
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlencode

import click

from sidecar.cli.colours import first_word
from sidecar.cli.exit_codes import EXIT_FAILED
from sidecar.cli.fleet_table import span
from sidecar.cli.local_api import OK, NoSidecarError, ask
from sidecar.cli.parameters import DURATION, Command, json_option, show
from sidecar.cli.report.figures import FleetReport, report_of
from sidecar.cli.report.html_report import html
from sidecar.cli.report.text_report import text
from sidecar.cli.settings_options import config, where
from sidecar.cli.terminal import cause, complain, plain
from sidecar.config.rollout import ALL
from sidecar.config.slices import Config
from sidecar.core.types import Entry

PAGE: Final = 500
PAGES_LIMIT: Final = 1000
FOLLOW_S: Final = 1.0
STDOUT: Final = "-"
FORMATS: Final = ("text", "json", "html")
DETAIL_LINES: Final = 24
"""Maximum number of lines of a detail below the first: a hook may have printed hundreds."""

_COLUMNS: Final = "{:<20}  {:<13}  {:<20}  {:<10}  {:<10}  "
HEADER: Final = _COLUMNS.format("TIME (UTC)", "WHAT", "INSTANCE", "KIND", "REASON") + "DETAILS"
_TOOK: Final = {
    "hold": "for",
    "hold_lost": "with a rest of",
    "paused": "for",
    "denied": "ask again in",
    "culled": "suspect for",
    "recovered": "suspect for",
    "restarted": "down for",
    "revived": "down for",
    "not_honoured": "down for",
    "redis_back": "away for",
}
"""What the seconds of an entry are, by its word."""

_REMEMBERED: Final = 2000
_SINCE: Final = partial(click.option, "--since", "since_s", type=DURATION, metavar="DURATION", help="How far back.")

Event = dict[str, Any]
"""An entry of the ledger, as ``GET /events`` has it."""


class LedgerReader:
    """Reads the ledger page by page; each call of ``news`` continues after the last one.

    After ``news``, ``problem`` says why the events are those of this sidecar alone, ``""`` if they are the service's.
    """

    def __init__(self, config: Config, since_s: float) -> None:
        self.problem = ""
        self.service, self.mode = config.identity.service, config.identity.mode
        self.enforce_percent = ALL
        self._config = config
        self._since_s = since_s
        self._after = ""
        self._local: deque[tuple[Any, ...]] = deque(maxlen=_REMEMBERED)

    def news(self) -> Iterator[Event]:
        """The events since the last call. Raises NoSidecarError and UsageError."""
        for _ in range(PAGES_LIMIT):
            page = self._page()
            yield from self._fresh(page)
            if self.problem or not page:
                return
            self._after = page[-1]["id"]

    def follow(self, pause: Callable[[float], None] = time.sleep) -> Iterator[Event]:
        """New events, without end. While the sidecar is away, for example replaced, there are none."""
        while True:
            pause(FOLLOW_S)
            with contextlib.suppress(NoSidecarError):
                yield from list(self.news())

    def _page(self) -> list[Event]:
        query = {"since": f"{self._since_s:.3f}", "after": self._after, "most": PAGE}
        status, value = ask(self._config, "GET", f"/events?{urlencode(query)}")
        if status != OK or not isinstance(value.get("events"), list):
            raise click.UsageError(str(value.get("error", "the sidecar did not answer with events")))
        self.problem = (
            "" if value.get("stored") else f"{value.get('sentence', '')}: these are this sidecar's own events"
        )
        self.service, self.mode = str(value.get("service", self.service)), value.get("mode", self.mode)
        self.enforce_percent = int(value.get("enforce_percent", ALL))
        return list(value["events"])

    def _fresh(self, page: list[Event]) -> Iterator[Event]:
        """The events of the page without those that came from the sidecar alone before."""
        for event in page:
            known = (round(event["at"], 3), *(event[name] for name in ("what", "instance", "kind", "reason")))
            if known in self._local:
                continue
            if self.problem:
                self._local.append(known)
            yield event

    def ended(self) -> int:
        """Print the problem, if any, and return the exit code."""
        if self.problem:
            complain(self.problem)
        return EXIT_FAILED if self.problem else 0


# -- events -----------------------------------------------------------------------------------------------------


@click.command(cls=Command)
@_SINCE(default="24h")
@click.option("--follow", is_flag=True, help="Go on with what comes, until Ctrl-C.")
@json_option
@where
@click.pass_context
def events(ctx: click.Context, /, *, since_s: float, follow: bool, as_json: bool) -> int:
    """Print what happened to the service, from its ledger.

    With --json each event is one line of JSON. While the shared store is away it prints what this sidecar has seen,
    and the exit code is 1.
    """
    reader, is_first = LedgerReader(config(ctx), since_s), True

    def print_all(found: Iterator[Event]) -> None:
        nonlocal is_first
        for event in found:
            if is_first and not as_json:
                click.secho(HEADER, bold=True)
            is_first = False
            click.echo(json.dumps(event) if as_json else first_word(as_text(event), event["what"]))

    print_all(iter(sorted(reader.news(), key=itemgetter("at"))))  # what was kept while the store was away comes late
    if is_first and not as_json and not follow:
        click.echo(f"no events in the last {span(since_s)}")
    if not follow:
        return reader.ended()
    with contextlib.suppress(KeyboardInterrupt):
        print_all(reader.follow())
    return 0


def as_text(event: Event) -> str:
    """One event for a terminal: a line, and the rest of its detail indented below, without control characters."""
    at, what = f"{datetime.fromtimestamp(event['at'], UTC):%Y-%m-%d %H:%M:%S}Z", event["what"]
    took = "" if event["seconds"] is None else f"{_TOOK.get(what, 'after')} {span(event['seconds'])}"
    detail, *rest = event["detail"].splitlines() or [""]
    # The reason of a hold is a person's sentence, and that of others one word.
    is_sentence = " " in event["reason"]
    columns = [event["instance"], event["kind"], "" if is_sentence else event["reason"]]
    author = f"by {event['author']}" if event["author"] else ""
    details = "  ".join(filter(None, [author, took, event["reason"] if is_sentence else "", detail]))
    lines = [plain(_COLUMNS.format(at, what, *(column or "-" for column in columns)) + details)]
    lines += [f"    {plain(line.expandtabs())}" for line in rest[:DETAIL_LINES]]
    if (left_out := len(rest) - DETAIL_LINES) > 0:
        lines.append(f"    and {left_out} more line{'s' * (left_out > 1)}: --json")
    return "\n".join(map(str.rstrip, lines))


# -- report -----------------------------------------------------------------------------------------------------


@click.command(cls=Command)
@_SINCE(default="7d")
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
    reader = LedgerReader(config(ctx), since_s)
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
    for name in ("causes", "holds", "bins"):
        fields[name] = [row._asdict() for row in getattr(added, name)]
    return {**fields, "refusals": dict(added.refusals), "paused": dict(added.paused)}


def _write(output: str, document: str) -> None:
    """Write a file as a whole, or not at all; a pipe or a device as it is."""
    path = Path(output)
    if output == STDOUT:
        click.echo(document)
    else:
        is_new = path.is_file() or not path.exists()
        with click.open_file(output, "w", encoding="utf-8", atomic=is_new) as file:
            file.write(f"{document}\n")


# -- message ----------------------------------------------------------------------------------------------------


@click.command(cls=Command)
@click.option("--test", is_flag=True, help="Send a test to the webhook of the settings.")
@json_option
@where
@click.pass_context
def message(ctx: click.Context, /, *, test: bool, as_json: bool) -> int:
    """Send a test message to the webhook.

    It prints the answer. The exit code is 1 when the webhook did not take it, 2 when the settings name none.
    """
    from sidecar.app import build_notify  # noqa: PLC0415 - the client of HTTP, which no other command needs

    if not test:
        raise click.UsageError("--test: is missing, and there is nothing else to do")
    effective = config(ctx)
    if not effective.notify.has_webhook:
        raise click.UsageError("no webhook is set: ARBITER_WEBHOOK_URL or ARBITER_WEBHOOK_URL_FILE")
    outcome, is_sent = asyncio.run(build_notify.send_test_message(effective))
    if as_json:
        show({"outcome": outcome, "sent": is_sent})
    else:
        click.echo(outcome)
    return 0 if is_sent else EXIT_FAILED
