"""The report as one HTML file for a mail or a wiki: no script, nothing loaded, in light and in dark colours.

``report.html`` is the page, and the sentences are those of the text.
"""

from __future__ import annotations

from html import escape
from pathlib import Path
from string import Template
from typing import Final

from sidecar.cli.report import text_report
from sidecar.cli.report.figures import FleetReport
from sidecar.cli.terminal import plain

_PAGE: Final = Path(__file__).with_name("report.html")


def html(report: FleetReport) -> str:
    """The whole page. Text from outside has neither markup nor control characters in it."""
    title, *sentences = map(_escaped, text_report.head(report))
    rows = [(_escaped(label), _escaped(sentence)) for label, sentence in text_report.rows(report)]
    return Template(_PAGE.read_text()).substitute(
        title=title,
        sentences="\n".join(f"<p>{sentence}</p>" for sentence in sentences),
        rows="\n".join(f'<tr><th scope="row">{label}</th><td>{sentence}</td></tr>' for label, sentence in rows),
        origin=f"{_escaped(text_report.origin(report))}; written {text_report.moment(report.until)}",
    )


def _escaped(text: str) -> str:
    return escape(plain(text), quote=True)
