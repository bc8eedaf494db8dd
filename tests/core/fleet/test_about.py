"""What sidecars tell of their containers: comes back as it was packed, is short, and is read strictly."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sidecar.core.fleet.members import LONGEST, About, Member, fleet_json, members_json
from sidecar.core.types import CauseTrial, Fleet, Presence, State

WELL = About(State.UP, 1_700_000_000, "2026-11-20T17:00:00Z", 80, 2, 5, "0.9.0", 1_699_990_000)
LINE = "up|1700000000|2026-11-20T17:00:00Z|80|2|5|0.9.0|1699990000"


def test_line_is_packed_and_read_again() -> None:
    assert WELL.dump() == LINE
    assert About.load(LINE) == WELL


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


def test_number_that_has_no_room_is_the_largest_or_the_least() -> None:
    about = About.load(About(State.DOWN, 10**20, "1", 101, 10**12, 10**12, "", 10**20).dump())
    assert about == About(State.DOWN, 99_999_999_999, "1", 100, 999_999_999, 999_999_999, "", 99_999_999_999)
    assert About.load(WELL._replace(since=-1, weight=-1, errors=-1).dump()) == WELL._replace(
        since=0, weight=0, errors=0
    )


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


def test_members_and_departed_are_shown_as_json_has_them() -> None:
    every = [Member("a", Presence.WELL, "", 1.00049, WELL), Member("b", Presence.SUSPECT, "redis", 3.0, duplicate=True)]
    told = {name: [*rows] for name, rows in members_json(every, [("c", 4.5)]).items()}
    assert told["members"][0]["about"] == WELL._asdict()
    assert told["members"][1] == {
        "instance": "b",
        "presence": "suspect",
        "kind": "redis",
        "age_s": 3.0,
        "about": None,
        "duplicate": True,
    }
    assert (told["members"][0]["age_s"], told["departed"]) == (1.0, [{"instance": "c", "age_s": 4.5}])


def test_trials_are_shown_by_the_names_of_their_fields() -> None:
    paused, tried = CauseTrial("redis", 1, 0, 540.0004, 1), CauseTrial("disk", 2, 1)
    told = fleet_json(Fleet(10, trials=(paused, tried), median_errors=3, median_ratio=0.25))
    assert told["trials"] == [
        {"cause": "redis", "limit": 1, "out": 0, "paused_s": 540.0, "failures": 1, "since": 0.0},
        {"cause": "disk", "limit": 2, "out": 1, "paused_s": 0.0, "failures": 0, "since": 0.0},
    ]
    assert (told["paused"], told["median_errors"], told["median_ratio"]) == (["redis"], 3, 0.25)
    assert json.loads(json.dumps(told))["duplicate"] is False
