"""The report for a terminal of 80 columns; the HTML page uses its sentences too."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Final

from sidecar.cli.fleet_table import span
from sidecar.cli.report.figures import ALL, DAY_S, SHADOW, Cause, FleetReport, HoldPeriod, Times
from sidecar.cli.terminal import plain
from sidecar.core.explain import reasons

WIDTH: Final = 80
_LABEL: Final = 14
_KIND: Final = 24
NAMES_LIMIT: Final = 5
_MEANING: Final = {
    "not_honoured": "still there long after the cull",
    "action_failed": "`events` says why, and if the sidecar asked again",
    "paused": "a cull did not help, so the next ones waited",
    "revived": "back in service by an order, without a replacement",
    "restarted": "another process of the app in the same place",
    "duplicate": "two containers under one instance name",
    "data_loss": "Redis lost its record of earlier culls",
    "redis_away": "Redis did not answer a sidecar",
}
_UNITS: Final = ((86_400, "day"), (3_600, "hour"), (60, "minute"))


def text(report: FleetReport) -> str:
    """The whole report, without a final newline."""
    return "\n".join(_lines(report))


def _lines(report: FleetReport) -> Iterator[str]:
    for sentence in head(report):
        yield from textwrap.wrap(sentence, WIDTH)
    yield ""
    for label, sentence in rows(report):
        yield from _row(label, sentence)
    yield ""
    yield origin(report)


def _row(label: str, sentence: str) -> list[str]:
    first, rest = label.ljust(_LABEL), " " * _LABEL
    return textwrap.wrap(sentence, WIDTH, initial_indent=first, subsequent_indent=rest)


# -- sentences --------------------------------------------------------------------------------------------------


def head(report: FleetReport) -> list[str]:
    """The service and the time, the containers that the report covers, and what enforce mode would have done."""
    service = plain(report.service) or "the service"
    title = f"{service}: {_period(report.until - report.since)} until {moment(report.until)}"
    return [title, *filter(None, (part(report), shadow(report)))]


def part(report: FleetReport) -> str:
    """The containers that the report covers; empty for the whole service."""
    percent = report.enforce_percent
    is_rollout = 0 < percent < ALL
    if report.mode == SHADOW:
        others = f"; ask one of the {percent} % that enforce too" if is_rollout else ""
        return f"only the containers in shadow mode{others}"
    return f"only the {percent} % that enforce; ask one of the others, in shadow mode, too" if is_rollout else ""


def shadow(report: FleetReport) -> str:
    """What enforce mode would have done; empty where nothing runs in shadow mode."""
    if report.mode != SHADOW and not report.would_culls:
        return ""
    head = f"{_period(report.until - report.since)} in shadow: {report.would_culls or 'none'} would have been culled"
    if not report.would_culls:
        return head
    recovered = f"{report.would_recover or 'none'} of them recovered by themselves"
    if report.would_culls == 1:
        recovered = "and it recovered by itself" if report.would_recover else "and it did not recover by itself"
    return f"{head}, {recovered}"


def rows(report: FleetReport) -> Iterator[tuple[str, str]]:
    """A label and a sentence for each number that matters; without a label it belongs to the one above."""
    if report.mode == SHADOW:
        yield "enforcing", _enforcing(report)
    by_order = f" ({report.ordered} by order)" if report.ordered else ""
    yield "culls", f"{report.culls}{by_order}: {_outcomes(*report.causes)}" if report.culls else "none"
    for cause in report.causes:
        yield "", f"{plain(cause.kind)[:_KIND]:<{_KIND}} {cause.culls}: {_outcomes(cause)}"
    if report.replaced_s.count:
        yield "replaced", _times(report.replaced_s)
    refused = ", ".join(f"{plain(reason)} {count}" for reason, count in report.refusals)
    yield "refusals", f"{sum(count for _, count in report.refusals)}: {refused}" if refused else "none"
    suspects = _counted(report.suspects, "suspect")
    yield "near misses", f"{report.near_misses} of {suspects} recovered before a cull" if report.near_misses else "none"
    if report.retirements:
        took = f": {_times(report.retired_s)}" if report.retired_s.count else ""
        yield "retired", f"{report.retirements}{took}"
    yield from _problems(report)
    for number, held in enumerate(report.holds):
        yield "" if number else "holds", hold(held)


def _enforcing(report: FleetReport) -> str:
    """What enforce mode would have cost: culls per day, tokens at once, and refusals."""
    began = report.since if report.first_at is None else max(report.since, report.first_at)
    days = (report.until - began) / DAY_S
    rate = f"{report.would_culls / days:.2g} culls a day" if days >= 1 else f"{_counted(report.would_culls, 'cull')}"
    tokens = f", at most {_counted(report.would_tokens, 'token')} in 10 minutes" if report.would_culls else ""
    refused = sum(count for _, count in report.refusals)
    return f"{rate}{tokens}, {_counted(refused, 'claim') if refused else 'no claim'} refused"


def _problems(report: FleetReport) -> Iterator[tuple[str, str]]:
    """What an operator has to look at, if anything."""
    for what, times, names in report.others:
        often = "once" if times == 1 else f"{times} times"
        named = f" ({plain(reasons.names(names, NAMES_LIMIT))})" if names else ""
        yield what.replace("_", " "), f"{often}{named}: {_MEANING[what]}"


def hold(held: HoldPeriod) -> str:
    """The author of a hold, what it froze, for how long, and why."""
    scope = f"instance {held.instance}" if held.instance else "the service"
    lasted = held.seconds if held.released_at is None else held.released_at - held.at
    released = "" if held.released_at is None else f" of {span(held.seconds)}"
    author = held.author or "an operator"
    return plain(f"{moment(held.at)} {author} held {scope} for {span(lasted)}{released}: {held.reason}")


def origin(report: FleetReport) -> str:
    """The number of events behind the report, and the first of them."""
    began = f", the first of {moment(report.first_at)}" if report.first_at is not None else ""
    return f"from {_counted(report.entries, 'event')}{began}"


def moment(at: float) -> str:
    """A time in UTC, to the minute."""
    return f"{datetime.fromtimestamp(at, UTC):%Y-%m-%d %H:%M} UTC"


def _outcomes(*causes: Cause) -> str:
    """The outcomes of the culls for these causes."""
    culls, helped, unhelped, unclear = (sum(numbers) for numbers in zip(*(cause[1:] for cause in causes), strict=True))
    unjudged = culls - helped - unhelped - unclear
    yet = f", {unjudged} not judged yet" if unjudged > 0 else ""
    return f"{helped} helped, {unhelped} did not, {unclear} unclear{yet}"


def _times(took: Times) -> str:
    if took.count == 1:
        return f"in {span(took.longest)}"
    return f"half within {span(took.p50)}, 95 % within {span(took.p95)}, all within {span(took.longest)}"


def _period(seconds: float) -> str:
    """A duration in its largest whole unit: ``7 days``, ``36 hours``."""
    whole = round(seconds)
    units = ((whole // size, name) for size, name in _UNITS if whole >= size and whole % size == 0)
    return next((_counted(number, name) for number, name in units), span(seconds))


def _counted(number: int, noun: str) -> str:
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"
