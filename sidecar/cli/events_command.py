"""``events``: the ledger of the service, as the sidecar of this machine tells it.

While the shared store is away the sidecar answers with its own events; then the exit code is 1.
"""

from __future__ import annotations

import contextlib
import json
import time
from collections import deque
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from functools import partial
from itertools import chain
from operator import itemgetter
from typing import Any, Final
from urllib.parse import urlencode

import click

from sidecar.cli.fleet_command import span
from sidecar.cli.local_api import OK, Listener, NoSidecarError, ask, listener, where
from sidecar.cli.options import DURATION, Command, json_option
from sidecar.cli.terminal import EXIT_FAILED, coloured, complain, plain

PAGE: Final = 500
PAGES_LIMIT: Final = 1000
FOLLOW_S: Final = 1.0
DETAIL_LINES: Final = 24
"""Maximum number of lines of a detail below the first: a hook may have printed hundreds."""

_COLUMNS: Final = "{:<20}  {:<13}  {:<20}  {:<10}  {:<10}  "
HEADER: Final = _COLUMNS.format("TIME (UTC)", "WHAT", "INSTANCE", "KIND", "REASON") + "DETAILS"
_TOOK: Final = {"hold": "for", "hold_lost": "with a rest of", "paused": "for", "denied": "ask again in"}
"""What the seconds of an entry are, by its word; of any other the time since what came before."""

_TRAITS: Final = {"node": "node", "app_version": "app version"}
"""Fields of a cull, by which culled containers may be compared."""

_REMEMBERED: Final = 2000
since_option: Final = partial(
    click.option, "--since", "since_s", type=DURATION, metavar="DURATION", help="How far back."
)

Event = dict[str, Any]
"""An entry of the ledger, as ``GET /events`` has it."""


class LedgerReader:
    """Reads the ledger page by page; each call of ``news`` continues after the last one."""

    def __init__(self, sidecar: Listener, since_s: float) -> None:
        self.problem = ""
        """Why the last events are those of this sidecar alone; empty if they are the service's."""
        self.page: dict[str, Any] = {}
        """The last answer, with the service and its mode."""
        self._sidecar = sidecar
        self._since_s = since_s
        self._after = ""
        self._of_sidecar: deque[tuple[Any, ...]] = deque(maxlen=_REMEMBERED)
        """Events that came from the sidecar alone: the store may have them later, under ids."""

    def news(self) -> Iterator[Event]:
        """The events since the last call. Raises NoSidecarError and UsageError."""
        for _ in range(PAGES_LIMIT):
            events = self._read()
            yield from self._fresh(events)
            if self.problem or not events:
                return
            self._after = events[-1]["id"]

    def follow(self, pause: Callable[[float], None] = time.sleep) -> Iterator[Event]:
        """New events, without end. While the sidecar is away, for example replaced, there are none."""
        while True:
            pause(FOLLOW_S)
            with contextlib.suppress(NoSidecarError):
                yield from list(self.news())

    def _read(self) -> list[Event]:
        query = {"since": f"{self._since_s:.3f}", "after": self._after, "most": PAGE}
        status, page = ask(self._sidecar, "GET", f"/events?{urlencode(query)}")
        if status != OK or not isinstance(page.get("events"), list):
            raise click.UsageError(str(page.get("error", "the sidecar did not answer with events")))
        self.page = page
        self.problem = "" if page.get("stored") else f"{page.get('sentence', '')}: these are this sidecar's own events"
        return list(page["events"])

    def _fresh(self, events: list[Event]) -> Iterator[Event]:
        """The events without those that came from the sidecar alone before."""
        for event in events:
            content = (round(event["at"], 3), *(event[name] for name in ("what", "instance", "kind", "reason")))
            if content in self._of_sidecar:
                continue
            if self.problem:
                self._of_sidecar.append(content)
            yield event

    def ended(self) -> int:
        """Print the problem, if any, and return the exit code."""
        if self.problem:
            complain(self.problem)
        return EXIT_FAILED if self.problem else 0


def as_text(event: Event) -> str:
    """One event for a terminal: a line, and the rest of its detail indented below, without control characters."""
    at, what = f"{datetime.fromtimestamp(event['at'], UTC):%Y-%m-%d %H:%M:%S}Z", event["what"]
    took = "" if event["seconds"] is None else f"{_TOOK.get(what, 'after')} {span(event['seconds'])}"
    detail, *rest = event["detail"].splitlines() or [""]
    # The reason of these orders is a person's text, also if it is a single word; that of others is a word of the table.
    is_by_person = what in {"hold", "hold_lost", "revived"} and bool(event["author"])
    columns = [event["instance"], event["kind"], "" if is_by_person else event["reason"]]
    author = f"by {event['author']}" if event["author"] else ""
    traits = [f"{name} {event[field]}" for field, name in _TRAITS.items() if event.get(field)]
    details = "  ".join(filter(None, [author, took, *traits, event["reason"] if is_by_person else "", detail]))
    lines = [plain(_COLUMNS.format(at, what, *(column or "-" for column in columns)) + details)]
    lines += [f"    {plain(line.expandtabs())}" for line in rest[:DETAIL_LINES]]
    if (left_out := len(rest) - DETAIL_LINES) > 0:
        lines.append(f"    and {left_out} more line{'s' * (left_out > 1)}: --json")
    return "\n".join(map(str.rstrip, lines))


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
    reader = LedgerReader(listener(ctx), since_s)
    entries = sorted(reader.news(), key=itemgetter("at"))  # what was kept while the store was away comes late
    if not as_json and (entries or follow):
        click.secho(HEADER, bold=True)
    elif not as_json:
        click.echo(f"no events in the last {span(since_s)}")
    with contextlib.suppress(KeyboardInterrupt):
        for event in chain(entries, reader.follow() if follow else ()):
            click.echo(json.dumps(event) if as_json else coloured(as_text(event), event["what"]))
    return 0 if follow else reader.ended()
