"""Shapes of a picture in SVG: steps, bars, dots and runs, in a box that is as wide as the page.

The box is stretched, so its shapes have no text; lines and dots keep their thickness. Colours are classes of the page.
Numbers come from the caller, and text goes through ``escaped``.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import pairwise
from typing import Final

from sidecar.cli.report.page_skeleton import escaped

WIDTH: Final = 1000
"""Units from the left to the right of a box."""

STYLE: Final = """\
figure{margin:1rem 0}figcaption{font-size:.85rem;margin-bottom:.2rem}
svg{display:block;width:100%;overflow:visible;background:var(--field)}
svg *{vector-effect:non-scaling-stroke;fill:none}
.scale{display:flex;justify-content:space-between;font-size:.72rem;opacity:.8;white-space:nowrap}
.each span{flex:1 1 0;min-width:0;display:flex;justify-content:center}
"""

Point = tuple[float, float]


def box(height: float, height_px: float, shapes: Iterable[str], label: str) -> str:
    """A picture of ``WIDTH`` times ``height`` units that is ``height_px`` high; ``label`` says what it shows."""
    return (
        f'<svg viewBox="0 0 {WIDTH} {number(height)}" preserveAspectRatio="none" role="img" '
        f'aria-label="{escaped(label)}" style="height:{number(height_px)}px">{"".join(shapes)}</svg>'
    )


def figure(caption: str, *content: str) -> str:
    """Pictures below their caption, which is escaped here."""
    return f"<figure><figcaption>{escaped(caption)}</figcaption>{''.join(content)}</figure>"


def scale(labels: Sequence[str], kind: str = "") -> str:
    """Labels at equal distances from edge to edge below a picture; of the kind ``each`` one below each bar."""
    return f'<div class="scale {kind}">{"".join(f"<span>{escaped(label)}</span>" for label in labels)}</div>'


def area(steps: Sequence[Point], end: float, base: float, kind: str) -> str:
    """The area between steps (x, y), each of which lasts to the next one, and the line y = ``base``."""
    if not steps:
        return ""
    along = "".join(f"V{number(y)}H{number(x)}" for (_, y), (x, _) in pairwise([*steps, (end, 0.0)]))
    return f'<path class="{kind}" d="M{number(steps[0][0])} {number(base)}{along}V{number(base)}z"/>'


def line(points: Sequence[Point], kind: str) -> str:
    """A line through the points."""
    return f'<path class="{kind}" d="M{"L".join(f"{number(x)} {number(y)}" for x, y in points)}"/>' if points else ""


def bars(rows: Iterable[tuple[float, float, float]], base: float, kind: str) -> str:
    """Bars (x, width, y) that stand on the line y = ``base``."""
    path = "".join(f"M{number(x)} {number(base)}V{number(y)}h{number(width)}V{number(base)}z" for x, width, y in rows)
    return f'<path class="{kind}" d="{path}"/>' if path else ""


def dots(points: Iterable[Point], kind: str, title: str = "") -> Iterator[str]:
    """Dots with an edge in the colour of the page, so that they stand out; the style gives the form."""
    path = "".join(f"M{number(x)} {number(y)}h0" for x, y in points)
    if path:
        said = f"<title>{escaped(title)}</title>" if title else ""
        yield f'<path class="{kind} edge" d="{path}"/><path class="{kind}" d="{path}">{said}</path>'


def number(value: float) -> str:
    """A number in few characters."""
    return f"{value:.2f}".rstrip("0").rstrip(".") if value % 1 else f"{value:.0f}"
