"""The fleet drawn by rich: as text of a width, or on a terminal that is drawn anew until a person has seen enough."""

from __future__ import annotations

import io
import sys
from collections.abc import Iterator, Sequence
from typing import Final

from rich.console import Console, Group, RenderableType
from rich.table import Table
from rich.text import Text

from sidecar.cli.fleet_table import Row
from sidecar.cli.terminal import plain

WIDE: Final = 100
"""Columns of a terminal from which on all that is known has room."""

_NARROW: Final = ("instance", "state", "kind", "since", "heard")
_ALL: Final = (*_NARROW, "age", "errors", "weight", "life", "version")
_FOLDED: Final = {"instance": 2, "kind": 5}
"""What is not to be cut off, for people look for it; this part of the width it may take before it is folded."""

_LIFE: Final = 17

_STYLES: Final = {
    "silent": "magenta",
    "gone": "bright_black",
    "duplicate": "magenta",
    "suspect": "yellow",
    "draining": "red",
    "down": "red",
    "retiring": "cyan",
}


def table(rows: Sequence[Row], width: int) -> Table:
    """A table of at most so many columns of the terminal; nothing in it moves the cursor."""
    names = _ALL if width >= WIDE else _NARROW
    drawn = Table(box=None, padding=(0, 2, 0, 0), pad_edge=False, header_style="bold")
    for name in names:
        longest = max((len(getattr(row, name)) for row in rows), default=0)
        drawn.add_column(
            name.upper(),
            no_wrap=name not in _FOLDED,
            overflow="fold" if name in _FOLDED else "ellipsis",
            min_width=min(longest, width // _FOLDED[name]) if name in _FOLDED else None,
            max_width=_LIFE if name == "life" else None,
        )
    for row in rows:
        style = _STYLES.get(row.state, "")
        drawn.add_row(*(Text(plain(getattr(row, name)), style if name == "state" else "") for name in names))
    return drawn


def whole(head: Sequence[str], rows: Sequence[Row], foot: Sequence[str], width: int) -> RenderableType:
    """Everything, one below the other."""
    parts: list[RenderableType] = [Text(line) for line in head]
    if rows:
        parts += [Text(""), table(rows, width)]
    return Group(*parts, *(Text(line) for line in foot))


def lines(rows: Sequence[Row], width: int) -> Iterator[str]:
    """The table as lines of text, without colours."""
    file = io.StringIO()
    console = Console(file=file, width=width, force_terminal=False, color_system=None, legacy_windows=False)
    console.print(table(rows, width))
    return (line.rstrip() for line in file.getvalue().splitlines())


def console() -> Console:
    """The terminal that we are on, which need not know every letter."""
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="replace")
    return Console(highlight=False)
