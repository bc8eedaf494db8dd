"""``report``: the ledger of the service summed up, as text for 80 columns, as JSON, or as one HTML page.

The page (``report.html``) is for a mail or a wiki: no script, nothing loaded, and the sentences are those of the text.
"""

from __future__ import annotations

import textwrap
import time
from collections.abc import Iterator
from dataclasses import asdict
from datetime import UTC, datetime
from html import escape
from pathlib import Path
from string import Template
from typing import Final

import click

from sidecar.cli.events_command import LedgerReader, since_option
from sidecar.cli.fleet_command import span
from sidecar.cli.local_api import listener, where
from sidecar.cli.options import Command, json_option, tell
from sidecar.cli.report_figures import Cause, FleetReport, Times, report_of
from sidecar.cli.terminal import plain
from sidecar.config.settings import ALL, SHADOW
from sidecar.core.explain import reasons
from sidecar.core.types import Entry

WIDTH: Final = 80
_LABEL: Final = 14
_KIND: Final = 24
_NAMES_LIMIT: Final = 5
_PAGE: Final = Path(__file__).with_name("report.html")
_MEANING: Final = {
    "retired": "replaced because of their age",
    "not_honoured": "still there long after the cull",
    "action_failed": "`events` says why, and if the sidecar asked again",
    "hold": "a person froze culls; `events` says why, and for how long",
    "paused": "a cull did not help, so the next ones waited",
    "revived": "back in service by an order, without a replacement",
    "restarted": "another process of the app in the same place",
    "duplicate": "two containers under one instance name",
    "data_loss": "Redis lost its record of earlier culls",
    "redis_away": "Redis did not answer a sidecar",
}
_HOUR_S: Final = 3_600.0
_DAY_S: Final = 86_400.0


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
    reader, now = LedgerReader(listener(ctx), since_s), time.time()
    entries = [Entry(**{name: event[name] for name in Entry._fields if name in event}) for event in reader.news()]
    figures = report_of(
        entries,
        now - since_s,
        now,
        service=str(reader.page.get("service", "")),
        mode=str(reader.page.get("mode", "")),
        enforce_percent=int(reader.page.get("enforce_percent", ALL)),
    )
    tell(asdict(figures), html(figures).rstrip("\n") if as_html else text(figures), as_json=as_json)
    return reader.ended()


def text(figures: FleetReport) -> str:
    """The whole report, without a final newline."""
    lines = [line for sentence in head(figures) for line in textwrap.wrap(sentence, WIDTH)]
    lines.append("")
    for label, sentence in rows(figures):
        first, rest = label.ljust(_LABEL), " " * _LABEL
        lines += textwrap.wrap(sentence, WIDTH, initial_indent=first, subsequent_indent=rest)
    return "\n".join([*lines, "", _origin(figures)])


def html(figures: FleetReport) -> str:
    """The whole page. Text from outside has neither markup nor control characters in it."""
    title, *sentences = map(_escaped, head(figures))
    shown = [(_escaped(label), _escaped(sentence)) for label, sentence in rows(figures)]
    return Template(_PAGE.read_text()).substitute(
        title=title,
        sentences="\n".join(f"<p>{sentence}</p>" for sentence in sentences),
        rows="\n".join(f'<tr><th scope="row">{label}</th><td>{sentence}</td></tr>' for label, sentence in shown),
        origin=f"{_escaped(_origin(figures))}; written {_moment(figures.until)}",
    )


def _escaped(sentence: str) -> str:
    return escape(plain(sentence), quote=True)


# -- sentences --------------------------------------------------------------------------------------------------


def head(figures: FleetReport) -> list[str]:
    """The service and the time, and the containers that the report covers unless it covers all."""
    service = plain(figures.service) or "the service"
    title = f"{service}: {_period(figures.until - figures.since)} until {_moment(figures.until)}"
    return [title, *filter(None, [_part(figures)])]


def rows(figures: FleetReport) -> Iterator[tuple[str, str]]:
    """A label and a sentence for each number that matters; without a label it belongs to the one above."""
    if figures.mode == SHADOW or figures.would_culls:
        yield "enforcing", _enforcing(figures)
    by_order = f" ({figures.ordered} by order)" if figures.ordered else ""
    yield "culls", f"{figures.culls}{by_order}: {_outcomes(*figures.causes)}" if figures.culls else "none"
    for cause in figures.causes:
        yield "", f"{plain(cause.kind)[:_KIND]:<{_KIND}} {cause.culls}: {_outcomes(cause)}"
    if figures.replaced_s.count:
        yield "replaced", _times(figures.replaced_s)
    refused = ", ".join(f"{plain(reason)} {count}" for reason, count in figures.refusals.items())
    yield "refusals", f"{sum(figures.refusals.values())}: {refused}" if refused else "none"
    suspects = _counted(figures.suspects, "suspect")
    yield (
        "near misses",
        f"{figures.near_misses} of {suspects} recovered before a cull" if figures.near_misses else "none",
    )
    for other in figures.others:
        often = "once" if other.times == 1 else f"{other.times} times"
        named = f" ({plain(reasons.names(other.names, _NAMES_LIMIT))})" if other.names else ""
        yield other.what.replace("_", " "), f"{often}{named}: {_MEANING[other.what]}"


def _part(figures: FleetReport) -> str:
    """The containers that the report covers; empty for the whole service."""
    percent = figures.enforce_percent
    is_rollout = 0 < percent < ALL
    if figures.mode == SHADOW:
        others = f"; ask one of the {percent} % that enforce too" if is_rollout else ""
        return f"only the containers in shadow mode{others}"
    return f"only the {percent} % that enforce; ask one of the others, in shadow mode, too" if is_rollout else ""


def _enforcing(figures: FleetReport) -> str:
    """What enforce mode would have cost: culls, tokens at once, and refusals."""
    culls, refused = figures.would_culls, sum(figures.refusals.values())
    began = figures.since if figures.first_at is None else max(figures.since, figures.first_at)
    days = (figures.until - began) / _DAY_S
    rate = f" ({culls / days:.2g} a day)" if culls and days >= 1 else ""
    tokens = ""
    if culls:
        recovered = f", {figures.would_recover or 'none'} of them recovered without it"
        tokens = f"{recovered}, at most {_counted(figures.would_tokens, 'token')} in 10 minutes"
    return f"{_counted(culls, 'cull')}{rate}{tokens}, {_counted(refused, 'claim') if refused else 'no claim'} refused"


def _origin(figures: FleetReport) -> str:
    """The number of events behind the report, and the first of them."""
    began = f", the first of {_moment(figures.first_at)}" if figures.first_at is not None else ""
    return f"from {_counted(figures.entries, 'event')}{began}"


def _outcomes(*causes: Cause) -> str:
    """The outcomes of the culls for these causes."""
    helped, unhelped = sum(cause.helped for cause in causes), sum(cause.unhelped for cause in causes)
    unclear = sum(cause.unclear for cause in causes)
    unjudged = sum(cause.culls for cause in causes) - helped - unhelped - unclear
    yet = f", {unjudged} not judged yet" if unjudged > 0 else ""
    return f"{helped} helped, {unhelped} did not, {unclear} unclear{yet}"


def _times(took: Times) -> str:
    return f"half within {span(took.median)}, all within {span(took.longest)}"


def _moment(at: float) -> str:
    """A time in UTC, to the minute."""
    return f"{datetime.fromtimestamp(at, UTC):%Y-%m-%d %H:%M} UTC"


def _period(seconds: float) -> str:
    """A duration in days, hours or less: ``7 days``, ``36 hours``."""
    for unit_s, noun in ((_DAY_S, "day"), (_HOUR_S, "hour")):
        if seconds >= unit_s and seconds % unit_s == 0:
            return _counted(int(seconds // unit_s), noun)
    return span(seconds)


def _counted(number: int, noun: str) -> str:
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"
