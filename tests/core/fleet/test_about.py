"""What sidecars tell of their containers: comes back as it was packed, is short, and is read strictly."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sidecar.core.fleet.members import LONGEST, About, digest_of
from sidecar.core.types import State

WELL = About(State.UP, 1_700_000_000, "2026-11-20T17:00:00Z", 80, 2, 5, "0.9.0", 1_699_990_000)
LINE = "up|1700000000|2026-11-20T17:00:00Z|80|2|5|0.9.0|1699990000"


def test_line_is_packed_and_read_again() -> None:
    assert WELL.dump() == LINE
    assert About.load(LINE) == WELL


def test_node_and_version_of_the_app_stand_where_an_older_version_reads_none() -> None:
    about = WELL._replace(node="n7|", app_version="4\n12", settings="0" * 8)
    line = LINE.replace("0.9.0", "0.9.0\nn7%7C\n4%0A12") + "|" + "0" * 8
    assert about.dump() == line
    assert About.load(line) == about
    assert About.load(line.replace("\nn7%7C", "")) is None


def test_line_of_a_sidecar_that_tells_no_age_is_read_without() -> None:
    assert About.load(LINE.removesuffix("|1699990000")) == WELL._replace(born=0)


@pytest.mark.parametrize(
    "text", ["", "a|b", "%7C", "100%", "||||||", "\0\r\n\x1b[2J\u202e", "\u00e9\U0001f680", "%%|25"]
)
def test_any_text_comes_back(text: str) -> None:
    about = WELL._replace(incarnation=text, version=text)
    assert About.load(about.dump()) == about


@pytest.mark.parametrize("letter", ["x", "|", "%", "\u00e9", "\U0001f680", "\ud800"])
def test_text_without_end_is_cut_where_a_letter_ends(letter: str) -> None:
    line = WELL._replace(incarnation=letter * 100_000, version=letter * 1000).dump()
    assert len(line.encode()) <= LONGEST
    read = About.load(line)
    assert read is not None
    assert set(read.incarnation) == set(read.version) == {"?" if letter == "\ud800" else letter}


@given(
    st.builds(
        About,
        st.sampled_from(State),
        st.integers(),
        st.text(),
        st.integers(),
        st.integers(),
        st.integers(),
        st.text(),
        st.integers(),
        st.just(""),
        st.text(),
        st.text(),
    )
)
def test_whatever_is_packed_is_short_and_can_be_read(about: About) -> None:
    line = about.dump()
    read = About.load(line)
    assert len(line.encode()) <= LONGEST
    assert read is not None
    assert read.dump() == line


@pytest.mark.parametrize(
    "line",
    [
        "",
        "|",
        LINE + "|",
        LINE + "|1",
        LINE.removesuffix("|0.9.0|1699990000"),
        LINE.replace("1699990000", "16999900000.5"),
        LINE.replace("1699990000", ""),
        LINE.replace("up", "UP"),
        LINE.replace("up", "well"),
        LINE.replace("|80|", "|101|"),
        LINE.replace("|80|", "|-1|"),
        LINE.replace("|80|", "| 80|"),
        LINE.replace("|80|", "|8e1|"),
        LINE.replace("|80|", "|\u0668|"),
        LINE.replace("|2|", "||"),
        LINE.replace("|5|", "|1234567890|"),
        LINE.replace("1700000000", "1700000000.5"),
        LINE.replace("1700000000", "170000000000"),
        LINE.replace("0.9.0", "100%"),
        LINE.replace("0.9.0", "%41"),
        LINE.replace("0.9.0", "v" * LONGEST),
        "\n" + LINE,
    ],
)
def test_line_that_was_not_packed_here_says_nothing(line: str) -> None:
    assert About.load(line) is None


def test_settings_of_bytes_that_are_no_text_have_a_digest_of_their_own() -> None:
    """Others write to the store, too, and one bad text must not hide the list of members."""
    assert digest_of("\udcff") not in {digest_of(""), digest_of("{}")}
