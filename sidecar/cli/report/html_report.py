"""The report as one HTML file for a mail or a wiki: no script, nothing loaded, in light and in dark colours."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

from sidecar.cli.report import text_report
from sidecar.cli.report.figures import DAY_S, Bin, Cause, FleetReport
from sidecar.cli.report.page_skeleton import escaped, page, table

SERIES: Final = {
    "culls": "culled",
    "would_culls": "would have been culled",
    "refusals": "refused",
    "near_misses": "recovered",
}
OUTCOMES: Final = {"helped": "helped", "unhelped": "did not help", "unclear": "unclear", "unjudged": "not judged"}
HEIGHT_PX: Final = 120
"""Height of the chart over time."""

_DATES_LIMIT: Final = 8
_COLOURS: Final = """\
culls #c2362f #ff7b72
would_culls #d98a1f #e3a14a
refusals #6e7781 #8b949e
near_misses #2f7dc2 #6cb6ff
helped #2e8b57 #57ab5a
unhelped #c2362f #ff7b72
unclear #d98a1f #e3a14a
unjudged #b6bdc4 #57606a"""
_LIGHT, _DARK = (
    "".join(f".{row.split()[0]}{{background:{row.split()[place]}}}" for row in _COLOURS.splitlines())
    for place in (1, 2)
)
_STYLE: Final = f"""\
.bar{{width:40%}}
.bar i{{display:inline-block;height:1em;vertical-align:middle}}
.when{{table-layout:fixed;font-size:.75rem}}.when td{{vertical-align:bottom;padding:0 1px 0 0;border:0}}
.when i{{display:block}}
.key i{{display:inline-block;width:.8em;height:.8em;margin:0 .3em 0 1em;border-radius:2px}}
{_LIGHT}
@media (prefers-color-scheme:dark){{{_DARK}}}"""


def html(report: FleetReport) -> str:
    """The whole page."""
    title = escaped(text_report.title(report))
    return page(title, _STYLE, _body(report, title))


def _body(report: FleetReport, title: str) -> Iterator[str]:
    yield f"<h1>{title}</h1>"
    if sentence := text_report.part(report):
        yield f"<p>{escaped(sentence)}</p>"
    if sentence := text_report.shadow(report):
        yield f'<p class="shadow">{escaped(sentence)}</p>'
    yield table(f'<th scope="row">{label}</th><td>{escaped(said)}</td>' for label, said in text_report.rows(report))
    yield from _over_time(report.bins)
    if report.causes:
        yield from ("<h2>Culls by cause</h2>", table(_by_cause(report.causes)), _key(OUTCOMES))
    if report.holds:
        yield "<h2>Holds</h2>"
        yield f"<ul>{''.join(f'<li>{escaped(text_report.hold(held))}</li>' for held in report.holds)}</ul>"
    origin = f"F{text_report.origin(report)[1:]}. Written {text_report.moment(report.now)}."
    yield f"<footer>{escaped(origin)}</footer>"


def _over_time(bins: Sequence[Bin]) -> Iterator[str]:
    """A stacked bar for each hour or day, and dates below; nothing if all are empty."""
    most = max((sum(one[1:]) for one in bins), default=0)
    if not most:
        return
    bars = "".join(f"<td>{_stack(one, HEIGHT_PX / most)}</td>" for one in bins)
    is_daily = len(bins) > 1 and bins[1].at - bins[0].at >= DAY_S
    step = -(-len(bins) // _DATES_LIMIT)
    dates = "".join(
        f'<td colspan="{len(bins[first : first + step])}">{_hour(bins[first])[5 : 10 if is_daily else 16]}</td>'
        for first in range(0, len(bins), step)
    )
    yield f'<h2>When</h2>\n<table class="when"><tr>{bars}</tr><tr>{dates}</tr></table>'
    yield f"{_key(SERIES)}\n<p>The highest bar is {most}.</p>"


def _stack(one: Bin, scale_px: float) -> str:
    counts = [(name, getattr(one, name)) for name in reversed(SERIES)]
    return "".join(
        f'<i class="{name}" style="height:{count * scale_px:.1f}px" title="{_hour(one)}: {count} {SERIES[name]}"></i>'
        for name, count in counts
        if count
    )


def _hour(one: Bin) -> str:
    return text_report.moment(one.at).removesuffix(" UTC")


def _by_cause(causes: Sequence[Cause]) -> Iterator[str]:
    """A row for each kind: its numbers, and a bar divided by outcome."""
    numbers = "".join(f'<th class="n">{name}</th>' for name in ("culls", "helped", "did not", "unclear"))
    yield f"<th>kind</th>{numbers}<th></th>"
    most = max(max(cause.culls, sum(cause[2:])) for cause in causes)
    for cause in causes:
        kind, unjudged = escaped(cause.kind), max(0, cause.culls - sum(cause[2:]))
        bar = "".join(
            f'<i class="{name}" style="width:{100 * count / most:.1f}%" title="{kind}: {count} {label}"></i>'
            for (name, label), count in zip(OUTCOMES.items(), (*cause[2:], unjudged), strict=True)
            if count
        )
        yield f'<td>{kind}</td>{"".join(f"""<td class="n">{n}</td>""" for n in cause[1:])}<td class="bar">{bar}</td>'


def _key(names: dict[str, str]) -> str:
    return f'<p class="key">{"".join(f"""<i class="{name}"></i>{label}""" for name, label in names.items())}</p>'
