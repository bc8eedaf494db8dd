"""The report as one HTML file for a mail or a wiki: no script, nothing loaded, in light and in dark colours.

``report.html`` is the page. All text from outside goes through ``escaped``.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from html import escape
from pathlib import Path
from string import Template
from typing import Final

from sidecar.cli.report import text_report
from sidecar.cli.report.figures import FleetReport
from sidecar.cli.terminal import plain

_PAGE: Final = Path(__file__).with_name("report.html")


def html(report: FleetReport) -> str:
    """The whole page."""
    sentences = {"": text_report.part(report), ' class="shadow"': text_report.shadow(report)}
    origin = f"F{text_report.origin(report)[1:]}. Written {text_report.moment(report.now)}."
    return Template(_PAGE.read_text()).substitute(
        title=escaped(text_report.title(report)),
        sentences="\n".join(f"<p{style}>{escaped(said)}</p>" for style, said in sentences.items() if said),
        rows="".join(
            f'<tr><th scope="row">{label}</th><td>{escaped(said)}</td></tr>' for label, said in text_report.rows(report)
        ),
        causes=_table("Culls by cause", ("kind", "culls", "helped", "did not help", "unclear"), report.causes),
        times=_table(
            "When",
            ("from (UTC)", "culled", "would have been culled", "refused", "recovered"),
            [(text_report.moment(one.at).removesuffix(" UTC"), *one[1:]) for one in report.bins if any(one[1:])],
        ),
        holds=_table("Holds", ("hold",), [(text_report.hold(held),) for held in report.holds]),
        origin=escaped(origin),
    )


def escaped(text: object) -> str:
    """Text from outside, safe anywhere in a page: without markup and control characters."""
    return escape(plain(text), quote=True)


def _table(title: str, names: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    """A heading and a table, whose numbers stand at the right; empty without rows."""
    body = "".join(f"<tr>{''.join(map(_cell, row))}</tr>" for row in rows)
    head = "".join(
        f"<th>{name}</th>" if not place else f'<th class="n">{name}</th>' for place, name in enumerate(names)
    )
    return f"<h2>{title}</h2>\n<table><tr>{head}</tr>{body}</table>" if body else ""


def _cell(value: object) -> str:
    return f'<td class="n">{value}</td>' if isinstance(value, int) else f"<td>{escaped(value)}</td>"
