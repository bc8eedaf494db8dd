"""What sidecars tell of their containers: comes back as it was written, is short, and any other text is none."""

from __future__ import annotations

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from sidecar.core.fleet.members import About, digest_of
from sidecar.core.types import State

WELL = About(State.UP, 1_700_000_000, "2026-11-20T17:00:00Z", 80, 2, 5, "0.9.0", 1_699_990_000)
LINE = "up|1700000000|2026-11-20T17:00:00Z|80|2|5|0.9.0|1699990000"
MOST_BYTES = 4096


@pytest.mark.parametrize(
    ("about", "line"),
    [
        (WELL, LINE),
        (WELL._replace(settings="0" * 8), f"{LINE}|{'0' * 8}"),
        (WELL._replace(node="n7|", app_version="4\n12"), LINE.replace("0.9.0", "0.9.0\nn7%7C\n4%0A12")),
    ],
    ids=["bare", "settings", "node and version of the app, where 0.2 reads none"],
)
def test_line_is_written_and_read_again(about: About, line: str) -> None:
    assert about.dump() == line
    assert About.load(line) == about


def test_line_of_a_sidecar_that_tells_no_age_is_read_without() -> None:
    assert About.load(LINE.removesuffix("|1699990000")) == WELL._replace(born=0)


@example("%7C|", "%25%", "\n%0A", "%")
@given(st.text(max_size=120), st.text(max_size=50), st.text(max_size=64), st.text(max_size=64))
def test_any_text_comes_back(incarnation: str, version: str, node: str, app_version: str) -> None:
    about = WELL._replace(incarnation=incarnation, version=version, node=node, app_version=app_version)
    assert About.load(about.dump()) == about


@pytest.mark.parametrize("letter", ["x", "|", "%", "\u00e9", "\U0001f680", "\ud800"])
def test_text_without_end_is_cut_where_a_letter_ends(letter: str) -> None:
    text = letter * 100_000
    line = About(State.UP, 1, text, 1, 1, 1, text, node=text, app_version=text).dump()
    assert len(line.encode()) <= MOST_BYTES
    read = About.load(line)
    assert read is not None
    texts = read.incarnation + read.version + read.node + read.app_version
    assert set(texts) == {"?" if letter == "\ud800" else letter}


@pytest.mark.parametrize(
    "line",
    [
        *("", "|", "news", "\n" + LINE, LINE + "|" + "0" * 8 + "|1"),
        LINE.removesuffix("|0.9.0|1699990000"),
        LINE.replace("up", "well"),
        LINE.replace("|80|", "|8e1|"),
        LINE.replace("|2|", "||"),
        LINE.replace("1700000000", "170000000000"),
        LINE.replace("1699990000", "-1"),
    ],
)
def test_line_of_another_kind_says_nothing(line: str) -> None:
    assert About.load(line) is None


def test_settings_of_bytes_that_are_no_text_have_a_digest_of_their_own() -> None:
    """Others write to the store, too, and one bad text must not hide the list of members."""
    assert digest_of("\udcff") not in {digest_of(""), digest_of("{}")}
