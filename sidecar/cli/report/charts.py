"""Charts of the report as SVG that stands within a page: rectangles and text, without script or anything from outside.

Colours come from the page's style, by class.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from datetime import UTC, datetime
from html import escape
from typing import Final

from sidecar.cli.report.figures import DAY_S, Bin, Cause
from sidecar.cli.terminal import plain

SERIES: Final = (
    ("culls", "culled"),
    ("would_culls", "would have been culled"),
    ("refusals", "refused"),
    ("near_misses", "recovered"),
)
OUTCOMES: Final = (
    ("helped", "helped"),
    ("unhelped", "did not help"),
    ("unclear", "unclear"),
    ("unjudged", "not judged"),
)
_WIDTH: Final = 640
_HEIGHT: Final = 140
_FOOT: Final = 18
_LABEL: Final = 160
_ROW: Final = 24
_MOST_ROWS: Final = 20
_MOST_DATES: Final = 8
_LONGEST: Final = 22


def escaped(text: object) -> str:
    """Text from outside as it may stand anywhere in a page: nothing in it is markup, or moves what follows."""
    return escape(plain(text), quote=True)


def over_time(bins: Sequence[Bin]) -> str:
    """A stacked bar for each hour or day; empty when nothing happened in any."""
    most = max((sum(one[1:]) for one in bins), default=0)
    if not most:
        return ""
    width = _WIDTH / len(bins)
    parts = [part for number, one in enumerate(bins) for part in _bar(one, number * width, width, most)]
    parts += _dates(bins, width)
    parts.append(_text(_WIDTH, 10, str(most), "end"))
    return _svg(_HEIGHT + _FOOT, "what happened when", parts)


def _bar(one: Bin, x: float, width: float, most: int) -> Iterator[str]:
    y = float(_HEIGHT)
    when = _hour(one.at)
    for name, label in SERIES:
        if count := getattr(one, name):
            height = (_HEIGHT - 14) * count / most
            y -= height
            yield _rect(name, (x + width * 0.1, y, width * 0.8, height), f"{when}: {count} {label}")


def _dates(bins: Sequence[Bin], width: float) -> Iterator[str]:
    is_daily = len(bins) > 1 and bins[1].at - bins[0].at >= DAY_S
    shown: Callable[[float], str] = _day if is_daily else _hour
    for number in range(0, len(bins), -(-len(bins) // _MOST_DATES)):
        yield _text((number + 0.5) * width, _HEIGHT + 13, shown(bins[number].at)[5:], "middle")


def by_cause(causes: Sequence[Cause]) -> str:
    """A bar for each kind, by what became of its culls; empty without causes."""
    shown = causes[:_MOST_ROWS]
    most = max((max(cause.culls, _judged(cause)) for cause in shown), default=0)
    if not most:
        return ""
    parts = [part for number, cause in enumerate(shown) for part in _cause(cause, number * _ROW, most)]
    return _svg(len(shown) * _ROW, "culls by cause", parts)


def _cause(cause: Cause, y: float, most: int) -> Iterator[str]:
    kind = plain(cause.kind)
    yield _text(_LABEL - 8, y + 16, kind if len(kind) <= _LONGEST else f"{kind[: _LONGEST - 1]}…", "end")
    x, scale = float(_LABEL), (_WIDTH - _LABEL - 40) / most
    unjudged = max(0, cause.culls - _judged(cause))
    for (name, label), count in zip(OUTCOMES, (*cause[2:], unjudged), strict=True):
        if count:
            yield _rect(name, (x, y + 4, count * scale, _ROW - 8), f"{kind}: {count} {label}")
            x += count * scale
    yield _text(x + 6, y + 16, str(cause.culls), "start")


def _judged(cause: Cause) -> int:
    return cause.helped + cause.unhelped + cause.unclear


def _svg(height: float, label: str, parts: Sequence[str]) -> str:
    head = f'<svg viewBox="0 0 {_WIDTH} {height:g}" width="100%" role="img" aria-label="{label}">'
    return f"{head}{''.join(parts)}</svg>"


def _rect(name: str, box: tuple[float, float, float, float], told: str) -> str:
    x, y, width, height = box
    place = f'x="{x:.1f}" y="{y:.1f}" width="{width:.1f}" height="{height:.1f}"'
    return f'<rect class="{name}" {place}><title>{escaped(told)}</title></rect>'


def _text(x: float, y: float, text: str, anchor: str) -> str:
    return f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}">{escaped(text)}</text>'


def _day(at: float) -> str:
    return f"{datetime.fromtimestamp(at, UTC):%Y-%m-%d}"


def _hour(at: float) -> str:
    return f"{datetime.fromtimestamp(at, UTC):%Y-%m-%d %H:%M}"
