"""The table as a person sees it: at the width of a small terminal, of a wide one, and with names that are traps."""

from __future__ import annotations

import io

import pytest
from rich.console import Console

from sidecar.cli import live_table
from sidecar.cli.fleet_table import Row

ALLOCATION = "5cfd2a7c-0a1b-4a0e-9a9d-3f7d8c1f9c11"
ROWS = [
    Row("web-2", "silent", heard="40s ago"),
    Row(
        ALLOCATION, "suspect", "redis", "1m30s", "3s ago", "7/5", "40%", "2026-11-20T17:00:00.123456Z", "0.9.0", "6h 2m"
    ),
    Row("web-3", "down", "mysql", "12m"),
    Row("web-1", "well", heard="1s ago"),
]


def test_small_terminal_shows_what_matters() -> None:
    assert list(live_table.lines(ROWS, 80)) == [
        "INSTANCE                              STATE    KIND   SINCE  HEARD",
        "web-2                                 silent   -      -      40s ago",
        "5cfd2a7c-0a1b-4a0e-9a9d-3f7d8c1f9c11  suspect  redis  1m30s  3s ago",
        "web-3                                 down     mysql  12m    -",
        "web-1                                 well     -      -      1s ago",
    ]


def test_wide_terminal_shows_all_that_is_known_and_cuts_the_life_first() -> None:
    first, second, third, *_ = live_table.lines(ROWS, 120)
    assert first.split() == [
        "INSTANCE",
        "STATE",
        "KIND",
        "SINCE",
        "HEARD",
        "AGE",
        "ERRORS",
        "WEIGHT",
        "LIFE",
        "VERSION",
    ]
    assert second.split() == ["web-2", "silent", "-", "-", "40s", "ago", "-", "-", "-", "-", "-"]
    assert third == (f"{ALLOCATION}  suspect  redis  1m30s  3s ago   6h 2m  7/5     40%     2026-11-20T17:00…  0.9.0")


@pytest.mark.parametrize("width", [48, 80, 120])
def test_long_name_is_folded_and_not_cut_off(width: int) -> None:
    name = "n" * 128
    told = "\n".join(live_table.lines([Row(name, "well", "k" * 64)], width))
    assert told.count("n") == 128
    assert told.count("k") == 64
    assert max(map(len, told.splitlines())) <= width


HOSTILE = [
    "\x1b[2J\x1b[31mred",
    "[bold red]markup[/]",
    "a\nb\rc\x07",
    "\u202eturned",
    "\x9b2J",
    "\ud800",
    "[/]",
    "🚀" * 30,
]


@pytest.mark.parametrize("name", HOSTILE)
@pytest.mark.parametrize("color", [None, "truecolor"])
def test_no_letter_of_others_moves_the_cursor_or_is_taken_for_markup(name: str, color: str | None) -> None:
    file = io.StringIO()
    console = Console(file=file, width=120, force_terminal=color is not None, color_system=color)  # type: ignore[arg-type]  # a table
    console.print(live_table.whole(["head"], [Row(name, "suspect", name, life=name)], ["foot"], 120))
    told = file.getvalue()
    for style in ("\x1b[33m", "\x1b[1m", "\x1b[0m"):
        told = told.replace(style, "")  # rich's own
    assert all(letter.isprintable() or letter == "\n" for letter in told)
    assert ("[bold red]" in told) == name.startswith("[bold red]")


def test_five_hundred_rows_are_drawn_without_delay() -> None:
    assert len(list(live_table.lines([Row(f"web-{number:03}", "well") for number in range(500)], 80))) == 501
