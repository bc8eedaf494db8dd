"""What the report counts, in tables."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness.weeks import DAY_S, SINCE_S, UNTIL_S, busy_week, shadow_week
from sidecar.cli.report.figures import Bin, Cause, Held, Report, Times, report
from sidecar.core.explain.ledger_entries import WHATS
from sidecar.core.types import Entry

HOUR_S = 3600.0


def added(*entries: Entry, since: float = 0.0, until: float = 10_000.0) -> Report:
    return report(entries, since, until, until)


def took(what: str, *seconds: float, kind: str = "redis") -> list[Entry]:
    return [Entry(what, float(at), kind=kind, seconds=one) for at, one in enumerate(seconds)]


# -- culls --------------------------------------------------------------------------------------------------


def test_culls_are_counted_by_cause_with_what_became_of_them_and_the_most_frequent_first() -> None:
    told = added(
        Entry("culled", 1, "a", "http"),
        Entry("culled", 2, "b", "redis"),
        Entry("culled", 3, "c", "redis"),
        Entry("helped", 4, kind="redis"),
        Entry("unhelped", 5, kind="redis"),
        Entry("unclear", 6, kind="old"),
        Entry("culled", 7, "d", "", "ordered", "ann"),
    )
    assert told.causes == (Cause("redis", 2, 1, 1, 0), Cause("http", 1), Cause("unknown", 1), Cause("old", 0, 0, 0, 1))
    assert (told.culls, told.ordered) == (4, 1)


@pytest.mark.parametrize(
    ("seconds", "times"),
    [
        ((), Times()),
        ((7.0,), Times(1, 7.0, 7.0, 7.0)),
        ((3.0, 1.0), Times(2, 1.0, 3.0, 3.0)),
        ((1.0, 9.0, 2.0), Times(3, 2.0, 9.0, 9.0)),
        (tuple(map(float, range(1, 101))), Times(100, 50.0, 95.0, 100.0)),
        (tuple(map(float, range(1, 21))), Times(20, 10.0, 19.0, 20.0)),
    ],
    ids=["none", "one", "two", "three", "hundred", "twenty"],
)
def test_times_are_nearest_ranks(seconds: Sequence[float], times: Times) -> None:
    assert added(*took("replaced", *seconds)).replaced_s == times


def test_replacement_of_who_was_retired_is_no_replacement_of_a_cull() -> None:
    told = added(*took("replaced", 5.0, kind=""), *took("replaced", 9.0))
    assert (told.retired_s, told.replaced_s) == (Times(1, 5.0, 5.0, 5.0), Times(1, 9.0, 9.0, 9.0))


@pytest.mark.parametrize(
    ("revived", "count"),
    [
        (Entry("revived", 70.0, "a"), 0),
        (Entry("revived", 103.0, "a"), 0),
        (Entry("revived", 20.0, "a"), 1),
        (Entry("revived", 300.0, "a"), 1),
        (Entry("revived", 70.0, "b"), 1),
    ],
    ids=["since the cull", "by a clock that is ahead", "before the cull", "long after", "somebody else"],
)
def test_who_was_revived_is_another_one_to_the_bucket_and_has_not_been_replaced(revived: Entry, count: int) -> None:
    told = added(Entry("replaced", 100.0, "a", "redis", seconds=60.0), revived)
    assert (told.replaced_s.count, told.revived) == (count, 1)


def test_nobody_is_replaced_by_what_would_have_been() -> None:
    assert report(took("replaced", 5.0), 0.0, 9.0, 9.0, mode="shadow").replaced_s == Times()


def test_what_the_bucket_wrote_tells_how_long_it_took_and_what_helped_against_which_kind() -> None:
    told = added(
        Entry("culled", 1.0, "a", "redis"),
        Entry("replaced", 31.0, "a", "redis", "x", seconds=30.25),
        Entry("helped", 91.0, "x", "redis", seconds=90.25),
        Entry("culled", 2.0, "b", "http"),
        Entry("unclear", 602.0, "b", "http", "not_replaced", seconds=600.0),
    )
    assert told.replaced_s == Times(1, 30.25, 30.25, 30.25)
    assert told.causes == (Cause("http", 1, unclear=1), Cause("redis", 1, helped=1))


def test_replacement_that_does_not_say_how_long_it_took_is_not_in_the_times() -> None:
    assert added(Entry("replaced", 1.0, kind="redis")).replaced_s == Times()


# -- the rest -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("entries", "field", "value"),
    [
        (
            [Entry("denied", at, reason=reason) for at, reason in enumerate(("window", "paused", "window"))],
            "refusals",
            (("window", 2), ("paused", 1)),
        ),
        ([Entry("suspect", 1), Entry("recovered", 2), Entry("suspect", 3)], "near_misses", 1),
        ([Entry("suspect", 1), Entry("recovered", 2), Entry("suspect", 3)], "suspects", 2),
        ([Entry("retired", 1), Entry("retired", 2)], "retirements", 2),
        ([Entry("revived", 1)], "revived", 1),
        ([Entry("not_honoured", at, name) for at, name in enumerate("bab")], "not_honoured", ("a", "b")),
        ([Entry("paused", at, kind=kind) for at, kind in enumerate("bab")], "paused", (("b", 2), ("a", 1))),
        ([Entry("duplicate", at, name) for at, name in enumerate("bab")], "duplicates", ("a", "b")),
        ([Entry("data_loss", 1)], "losses", 1),
        ([Entry("redis_away", 1), Entry("redis_back", 9, seconds=8.0)], "away_s", Times(1, 8.0, 8.0, 8.0)),
    ],
    ids=[
        *("refusals", "near misses", "suspects", "retirements", "revived", "not honoured", "paused"),
        *("duplicates", "lost memory", "redis away"),
    ],
)
def test_number_is_what_the_entries_say(entries: list[Entry], field: str, value: object) -> None:
    assert getattr(added(*entries), field) == value


@pytest.mark.parametrize(
    ("told", "would_culls", "recovered"),
    [
        ("", 0, 0),
        ("Ca Ra", 1, 1),
        ("Ca", 1, 0),
        ("Ra", 0, 0),
        ("Ca Rb", 1, 0),
        ("Ca Ra Ra", 1, 1),
        ("Ca Ca Ra", 2, 1),
        ("Ca Cb Rb Ra", 2, 2),
        ("Ca Ra Ca", 2, 1),
    ],
)
def test_recovery_belongs_to_the_last_cull_that_would_have_been(told: str, would_culls: int, recovered: int) -> None:
    whats = {"C": "would_cull", "R": "would_recover"}
    entries = [Entry(whats[word[0]], float(at), word[1]) for at, word in enumerate(told.split())]
    counted = added(*entries)
    assert (counted.would_culls, counted.would_recover) == (would_culls, recovered)


def test_hold_ends_by_its_release_or_by_itself() -> None:
    told = added(
        Entry("hold", 10, "", "", "deploy", "ann", 100.0),
        Entry("release", 50),
        Entry("hold", 200, "web-1", "", "look", "bob", 100.0),
        Entry("release", 210, "web-2"),
        Entry("release", 400, "web-1"),
    )
    assert told.holds == (
        Held(10, "ann", "deploy", "", 100.0, 50),
        Held(200, "bob", "look", "web-1", 100.0, None),
    )


# -- time ---------------------------------------------------------------------------------------------------


def test_only_what_happened_in_the_time_counts_and_what_is_there_twice_counts_once() -> None:
    entries = [Entry("culled", float(at), "a", id=f"{number}-0") for number, at in enumerate((9, 10, 10, 20, 21))]
    told = added(*entries, since=10, until=20)
    assert (told.culls, told.entries, told.first_at) == (2, 2, 10.0)


def test_order_of_arrival_does_not_matter() -> None:
    week = busy_week()
    reports = [report(entries, SINCE_S, UNTIL_S, UNTIL_S) for entries in (week, week[::-1])]
    assert reports[0] == reports[1]


def test_days_and_hours_are_whole_and_none_is_left_out() -> None:
    daily = added(Entry("culled", 0.5 * DAY_S), Entry("denied", 2 * DAY_S), until=3 * DAY_S)
    assert daily.bins == (Bin(0.0, 1), Bin(DAY_S), Bin(2 * DAY_S, 0, 0, 1), Bin(3 * DAY_S))
    hourly = added(Entry("recovered", HOUR_S), Entry("would_cull", 1.5 * HOUR_S), until=2 * HOUR_S)
    assert hourly.bins == (Bin(0.0), Bin(HOUR_S, 0, 1, 0, 1), Bin(2 * HOUR_S))


def test_of_a_long_time_the_last_days_are_drawn_and_all_are_counted() -> None:
    told = added(Entry("culled", 1.0), since=0.0, until=1000 * DAY_S)
    assert (len(told.bins), told.bins[-1].at, told.culls) == (400, 1000 * DAY_S, 1)


def test_nothing_at_all_is_a_report_of_nothing() -> None:
    told = added()
    assert (told.entries, told.first_at, told.culls, told.causes) == (0, None, 0, ())


# -- weeks --------------------------------------------------------------------------------------------------


def test_busy_week_adds_up() -> None:
    told = report(busy_week(), SINCE_S, UNTIL_S, UNTIL_S)
    assert told.causes == (Cause("redis", 8, 7, 1, 0), Cause("unknown", 1, 0, 0, 1))
    assert told.replaced_s == Times(8, 23.0, 27.0, 27.0)
    assert sum(one.culls for one in told.bins) == told.culls == 9


def test_shadow_week_adds_up() -> None:
    told = report(shadow_week(), SINCE_S, UNTIL_S, UNTIL_S, mode="shadow")
    assert (told.would_culls, told.would_recover, told.culls) == (3, 2, 0)


@given(
    st.lists(
        st.builds(
            Entry,
            st.sampled_from(sorted(WHATS)),
            st.floats(0, 1e11),
            st.sampled_from("ab"),
            st.sampled_from(["", "redis"]),
            seconds=st.none() | st.floats(0, 1e11),
        ),
        max_size=30,
    ),
    st.floats(0, 1e11),
    st.floats(0, 1e9),
)
def test_whatever_the_ledger_has_can_be_added_up(entries: list[Entry], since: float, length: float) -> None:
    told = report(entries, since, since + length, since + length)
    assert told.would_recover <= told.would_culls
    assert sum(cause.culls for cause in told.causes) == told.culls
    assert len(told.bins) <= 400
