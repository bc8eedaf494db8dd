"""The report's sentences, the same in the text and in the page, and how times and spans are written in both."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Final

from sidecar.cli.fleet_table import span
from sidecar.cli.report.figures import ALL, SHADOW, Cause, Held, Report, Times
from sidecar.cli.terminal import plain

_SIZES: Final = ((86_400, "day"), (3_600, "hour"), (60, "minute"))


def title(report: Report) -> str:
    """Which service, which time."""
    return (
        f"{plain(report.service) or 'the service'}: {period(report.until - report.since)} until {moment(report.until)}"
    )


def shadow(report: Report) -> str:
    """What an engineer wants to know before the first cull; empty where nothing runs in shadow mode."""
    if report.mode != SHADOW and not report.would_culls:
        return ""
    span_of_it = f"{period(report.until - report.since)} in shadow"
    if not report.would_culls:
        return f"{span_of_it}: none would have been culled"
    recovered = f"{report.would_recover or 'none'} of them recovered by themselves"
    if report.would_culls == 1:
        recovered = "and it recovered by itself" if report.would_recover else "and it did not recover by itself"
    return f"{span_of_it}: {report.would_culls} would have been culled, {recovered}"


def part(report: Report) -> str:
    """Of whom it tells, unless that is the whole service."""
    percent = report.enforce_percent
    is_ramp = 0 < percent < ALL
    if report.mode == SHADOW:
        others = f", {percent} % enforce: ask one of those too" if is_ramp else ""
        return f"of the containers in shadow mode alone{others}"
    return f"of the {percent} % that enforce, the others are in shadow mode: ask one of those too" if is_ramp else ""


def rows(report: Report) -> Iterator[tuple[str, str]]:
    """A word and a sentence for each number that matters."""
    yield "culls", _culls(report)
    if report.replaced_s.count:
        yield "replaced", times(report.replaced_s)
    yield "refusals", _refusals(report)
    yield "near misses", _near_misses(report)
    if report.retirements:
        took = f": {times(report.retired_s)}" if report.retired_s.count else ""
        yield "retired", f"{report.retirements}{took}"
    if report.revived:
        yield "revived", f"{report.revived} without having been replaced"
    yield from _troubles(report)


def _culls(report: Report) -> str:
    if not report.culls:
        return "none"
    helped, unhelped, unclear = (
        sum(getattr(cause, outcome) for cause in report.causes) for outcome in ("helped", "unhelped", "unclear")
    )
    aside = f" ({report.ordered} by order)" if report.ordered else ""
    return f"{report.culls}{aside}: {outcomes(Cause('', report.culls, helped, unhelped, unclear))}"


def outcomes(cause: Cause) -> str:
    """What became of the culls."""
    unjudged = cause.culls - cause.helped - cause.unhelped - cause.unclear
    yet = f", {unjudged} not judged yet" if unjudged > 0 else ""
    return f"{cause.helped} helped, {cause.unhelped} did not, {cause.unclear} unclear{yet}"


def _refusals(report: Report) -> str:
    if not report.refusals:
        return "none"
    return f"{sum(n for _, n in report.refusals)}: {', '.join(f'{plain(reason)} {n}' for reason, n in report.refusals)}"


def _near_misses(report: Report) -> str:
    if not report.near_misses:
        return "none"
    return f"{report.near_misses} of {counted(report.suspects, 'suspect')} recovered before a cull"


def _troubles(report: Report) -> Iterator[tuple[str, str]]:
    """What a person has to look at, if anything."""
    if report.not_honoured:
        yield "not honoured", f"still there long after their cull: {plain(', '.join(report.not_honoured))}"
    if report.paused:
        causes = ", ".join(f"{plain(cause)} {_times(number)}" for cause, number in report.paused)
        yield "paused", f"culls did not help against {causes}"
    if report.duplicates:
        yield "duplicate", f"two lives beat under the instance name {plain(', '.join(report.duplicates))}"
    if report.losses:
        yield "memory", f"Redis lost it {_times(report.losses)}"
    if report.away_s.count:
        yield (
            "redis",
            f"away from single sidecars {_times(report.away_s.count)}, {span(report.away_s.longest)} at most",
        )


def _times(number: int) -> str:
    return "once" if number == 1 else f"{number} times"


def times(took: Times) -> str:
    """The three numbers in words."""
    if took.count == 1:
        return f"in {span(took.longest)}"
    return f"half within {span(took.p50)}, 95 % within {span(took.p95)}, all within {span(took.longest)}"


def hold(held: Held) -> str:
    """Who held what, since when, for how long, and why."""
    whom = f"instance {held.instance}" if held.instance else "the service"
    lasted = held.seconds if held.released_at is None else held.released_at - held.at
    released = "" if held.released_at is None else f" of {span(held.seconds)}"
    return plain(
        f"{moment(held.at)} {held.author or 'somebody'} held {whom} for {span(lasted)}{released}: {held.reason}"
    )


def moment(at: float) -> str:
    """A time in UTC, to the minute."""
    return f"{datetime.fromtimestamp(at, UTC):%Y-%m-%d %H:%M} UTC"


def period(seconds: float) -> str:
    """A stretch of time as people say it: ``7 days``, ``36 hours``."""
    whole = round(seconds)
    for size, name in _SIZES:
        if whole >= size and whole % size == 0:
            return counted(whole // size, name)
    return span(seconds)


def counted(number: int, noun: str) -> str:
    """``1 day``, ``2 days``."""
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"
