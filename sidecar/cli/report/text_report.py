"""The report for a terminal of 80 columns."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator
from typing import Final

from sidecar.cli.report import phrases
from sidecar.cli.report.figures import Report
from sidecar.cli.terminal import plain

WIDTH: Final = 80
_LABEL: Final = 14
_KIND: Final = 24


def text(report: Report) -> str:
    """The whole report, without a final newline."""
    return "\n".join(_lines(report))


def _lines(report: Report) -> Iterator[str]:
    yield from textwrap.wrap(phrases.title(report), WIDTH)
    for sentence in filter(None, (phrases.part(report), phrases.shadow(report))):
        yield from textwrap.wrap(sentence, WIDTH)
    yield ""
    for label, sentence in phrases.rows(report):
        yield from _row(label, sentence)
        if label == "culls":
            for cause in report.causes:
                yield from _row("", f"{plain(cause.kind)[:_KIND]:<{_KIND}} {cause.culls}: {phrases.outcomes(cause)}")
    for number, held in enumerate(report.holds):
        yield from _row("" if number else "holds", phrases.hold(held))
    yield ""
    began = f", the first of {phrases.moment(report.first_at)}" if report.first_at is not None else ""
    yield f"from {phrases.counted(report.entries, 'event')}{began}"


def _row(label: str, sentence: str) -> list[str]:
    first, rest = label.ljust(_LABEL), " " * _LABEL
    return textwrap.wrap(sentence, WIDTH, initial_indent=first, subsequent_indent=rest, drop_whitespace=True)
