"""The report as one HTML file for a mail or a wiki: no script, nothing loaded, legible by day and by night."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from string import Template
from typing import Final

from sidecar.cli.report import charts, phrases
from sidecar.cli.report.charts import escaped
from sidecar.cli.report.figures import Report

_COLOURS: Final = (
    *(
        "culls #c2362f #ff7b72",
        "would_culls #d98a1f #e3a14a",
        "refusals #6e7781 #8b949e",
        "near_misses #2f7dc2 #6cb6ff",
    ),
    *("helped #2e8b57 #57ab5a", "unhelped #c2362f #ff7b72", "unclear #d98a1f #e3a14a", "unjudged #b6bdc4 #57606a"),
)
_DAY: Final = "".join(f".{name}{{fill:{day};background:{day}}}" for name, day, _ in map(str.split, _COLOURS))
_NIGHT: Final = "".join(f".{name}{{fill:{night};background:{night}}}" for name, _, night in map(str.split, _COLOURS))
_STYLE: Final = f"""\
:root{{color-scheme:light dark}}
body{{font:15px/1.5 system-ui,sans-serif;max-width:44rem;margin:2rem auto;padding:0 1rem;color:#1f2328;background:#fff}}
h1{{font-size:1.4rem}}h2{{font-size:1.1rem;margin-top:2rem}}
.shadow{{font-size:1.15rem;border-left:4px solid #d98a1f;padding-left:.8rem;background:none}}
table{{border-collapse:collapse;width:100%}}
th,td{{text-align:left;vertical-align:top;padding:.25rem .8rem .25rem 0;border-bottom:1px solid #d0d7de;\
overflow-wrap:anywhere}}
th{{font-weight:600;white-space:nowrap}}.n{{text-align:right}}
svg text{{font:11px system-ui,sans-serif;fill:currentColor}}
.key i{{display:inline-block;width:.8em;height:.8em;margin:0 .3em 0 1em;border-radius:2px}}
footer{{margin-top:2rem;font-size:.85rem;opacity:.75}}
{_DAY}
@media (prefers-color-scheme:dark){{body{{color:#e6edf3;background:#0d1117}}th,td{{border-color:#30363d}}{_NIGHT}}}"""
_PAGE: Final = Template(
    """\
<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta http-equiv="Content-Security-Policy" content="default-src 'none'; style-src 'unsafe-inline'">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>$title</title>
<style>
$style
</style>
</head>
<body>
$body
</body>
</html>
"""
)


def html(report: Report) -> str:
    """The whole page."""
    title = escaped(phrases.title(report))
    return _PAGE.substitute(title=title, style=_STYLE, body="\n".join(_body(report, title)))


def _body(report: Report, title: str) -> Iterator[str]:
    yield f"<h1>{title}</h1>"
    if sentence := phrases.part(report):
        yield f"<p>{escaped(sentence)}</p>"
    if sentence := phrases.shadow(report):
        yield f'<p class="shadow">{escaped(sentence)}</p>'
    yield _table((), [(label, sentence) for label, sentence in phrases.rows(report)], heads=1)
    yield from _chart("When", charts.over_time(report.bins), charts.SERIES)
    yield from _chart("Culls by cause", charts.by_cause(report.causes), charts.OUTCOMES)
    if report.causes:
        names = ("kind", "culls", "helped", "did not", "unclear")
        yield _table(names, report.causes, numbers=range(1, 5))
    if report.holds:
        yield "<h2>Holds</h2>"
        yield f"<ul>{''.join(f'<li>{escaped(phrases.hold(held))}</li>' for held in report.holds)}</ul>"
    began = f", the first of {phrases.moment(report.first_at)}" if report.first_at is not None else ""
    read = f"From {phrases.counted(report.entries, 'event')}{began}. Written {phrases.moment(report.now)}."
    yield f"<footer>{escaped(read)}</footer>"


def _chart(heading: str, drawn: str, key: Sequence[tuple[str, str]]) -> Iterator[str]:
    if not drawn:
        return
    yield f"<h2>{heading}</h2>"
    yield drawn
    yield f'<p class="key">{"".join(f"""<i class="{name}"></i>{label}""" for name, label in key)}</p>'


def _table(
    names: Sequence[str], rows: Iterable[Sequence[object]], *, heads: int = 0, numbers: Sequence[int] = ()
) -> str:
    """``heads``: so many columns are headings of their rows; ``numbers``: which stand to the right."""
    cells = (f"<th{' class=n' if place in numbers else ''}>{escaped(name)}</th>" for place, name in enumerate(names))
    head = f"<tr>{''.join(cells)}</tr>" if names else ""
    lines = (
        "".join(
            f'<th scope="row">{escaped(cell)}</th>'
            if place < heads
            else f"<td{' class=n' if place in numbers else ''}>{escaped(cell)}</td>"
            for place, cell in enumerate(row)
        )
        for row in rows
    )
    return f"<table>{head}{''.join(f'<tr>{line}</tr>' for line in lines)}</table>"
