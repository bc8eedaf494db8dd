"""Counts and parts of the fleet, as people write them."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sidecar.config import syntax


@pytest.mark.parametrize(
    ("value", "share", "written"),
    [
        ("10", (10, False), "10"),
        (10, (10, False), "10"),
        (" 007 ", (7, False), "7"),
        ("999999", (999_999, False), "999999"),
        ("5 %", (50, True), "5%"),
        ("0.1%", (1, True), "0.1%"),
        ("050.0%", (500, True), "50%"),
        ("100%", (1000, True), "100%"),
    ],
)
def test_share_is_a_count_or_thousandths_of_the_fleet(value: object, share: tuple[int, bool], written: str) -> None:
    assert syntax.parse_share(value) == share
    assert syntax.checked_share(value) == syntax.write_share(share[0], is_part=share[1]) == written


@pytest.mark.parametrize(
    "value",
    ["", "-1", "+1", "1.5", "1e3", "5%%", "%", ".5%", "5.%", "12.25%", "five", "5\n6", "\u0665", True, None, 5.0, [10]],
)
def test_anything_else_is_told_how_to_write_it(value: object) -> None:
    with pytest.raises(ValueError, match=re.escape("must be a whole number, or a percentage such as 5% or 12.5%")):
        syntax.checked_share(value)


@pytest.mark.parametrize(("value", "most"), [("100.1%", "100%"), ("101%", "100%"), ("1000000", "999999")])
def test_nothing_is_more_than_the_whole_fleet(value: str, most: str) -> None:
    with pytest.raises(ValueError, match=f"must be at most {most}"):
        syntax.parse_share(value)


@given(st.integers(0, 999_999) | st.integers(0, 1000).map(lambda part: f"{part / 10}%"))
def test_what_is_written_is_read_as_the_same_share(value: object) -> None:
    assert syntax.parse_share(syntax.checked_share(value)) == syntax.parse_share(value)
