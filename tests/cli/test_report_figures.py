"""What the report counts, in tables."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness.ledger_weeks import SINCE_S, UNTIL_S, busy_week, shadow_week
from sidecar.cli.report_figures import Cause, FleetReport, Notable, Times, report_of
from sidecar.core.types import ENTRY_WORDS, Entry


def report(*entries: Entry, since: float = 0.0, until: float = 10_000.0, mode: str = "enforce") -> FleetReport:
    return report_of(entries, since, until, mode=mode)


def took(what: str, *seconds: float, kind: str = "redis") -> list[Entry]:
    return [Entry(what, float(at), kind=kind, seconds=one) for at, one in enumerate(seconds)]


CULLS = [
    Entry("culled", 1, "a", "http"),
    Entry("culled", 2, "b", "redis"),
    Entry("culled", 3, "c", "redis"),
    Entry("helped", 4, kind="redis"),
    Entry("unhelped", 5, kind="redis"),
    Entry("unclear", 6, kind="old"),
    Entry("culled", 7, "d", "", "ordered", "ann"),
]
BY_CAUSE = (Cause("redis", 2, 1, 1, 0), Cause("http", 1), Cause("unknown", 1), Cause("old", 0, 0, 0, 1))
SUSPECTS = [Entry("suspect", 1), Entry("recovered", 2), Entry("suspect", 3)]
ONCE = Times(1, 60.0, 60.0)
REFUSALS = [Entry("denied", at, reason=reason) for at, reason in enumerate(("window", "paused", "window"))]
COUNTED: dict[str, tuple[list[Entry], dict[str, Any]]] = {
    "nothing": ([], {"entries": 0, "first_at": None, "culls": 0, "causes": ()}),
    "culls by cause": (CULLS, {"causes": BY_CAUSE, "culls": 4, "ordered": 1}),
    "refusals": (REFUSALS, {"refusals": {"window": 2, "paused": 1}}),
    "near misses": (SUSPECTS, {"near_misses": 1, "suspects": 2}),
    "tokens at once": ([Entry("would_cull", at) for at in (0, 599, 600)], {"would_tokens": 2}),
    "other events": (
        [Entry("not_honoured", at, name) for at, name in enumerate("bab")]
        + [Entry("paused", 4, kind="redis"), Entry("data_loss", 5), Entry("acted", 6, "a"), Entry("retired", 7, "c")]
        + [Entry("hold", 8, "web-1", "", "look", "bob", 100.0)],
        {
            "others": (
                Notable("retired", 1, ("c",)),
                Notable("not_honoured", 3, ("b", "a")),
                Notable("paused", 1, ("redis",)),
                Notable("hold", 1, ("bob",)),
                Notable("data_loss", 1, ()),
            )
        },
    ),
    "times of one": (took("replaced", 60.0), {"replaced_s": ONCE}),
    "times of two": (took("replaced", 3.0, 1.0), {"replaced_s": Times(2, 1.0, 3.0)}),
    "times of three": (took("replaced", 1.0, 9.0, 2.0), {"replaced_s": Times(3, 2.0, 9.0)}),
    "without a time": ([Entry("replaced", 1.0, kind="redis")], {"replaced_s": Times()}),
    "after a retirement": ([*took("replaced", 60.0, kind="")], {"replaced_s": Times()}),
}


@pytest.mark.parametrize(("entries", "expected"), COUNTED.values(), ids=COUNTED)
def test_number_is_what_the_entries_say(entries: list[Entry], expected: dict[str, Any]) -> None:
    counted = report(*entries)
    assert {name: getattr(counted, name) for name in expected} == expected


def test_shadow_mode_replaces_nothing() -> None:
    assert report(*took("replaced", 5.0), mode="shadow").replaced_s == Times()


@pytest.mark.parametrize(
    ("story", "would_culls", "recovered"),
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
def test_recovery_belongs_to_the_last_cull_that_would_have_been(story: str, would_culls: int, recovered: int) -> None:
    whats = {"C": "would_cull", "R": "would_recover"}
    counted = report(*(Entry(whats[word[0]], float(at), word[1]) for at, word in enumerate(story.split())))
    assert (counted.would_culls, counted.would_recover) == (would_culls, recovered)


# -- time ---------------------------------------------------------------------------------------------------


def test_only_entries_of_the_time_count_duplicates_count_once_and_order_does_not_matter() -> None:
    entries = [Entry("culled", float(at), "a", id=f"{number}-0") for number, at in enumerate((9, 10, 10, 20, 21))]
    counted = report(*entries, since=10, until=20)
    assert (counted.culls, counted.entries, counted.first_at) == (2, 2, 10.0)
    week = busy_week()
    assert report_of(week, SINCE_S, UNTIL_S) == report_of(week[::-1], SINCE_S, UNTIL_S)


# -- weeks --------------------------------------------------------------------------------------------------


def test_weeks_add_up() -> None:
    busy = report_of(busy_week(), SINCE_S, UNTIL_S)
    assert busy.causes == (Cause("redis", 8, 7, 1, 0), Cause("unknown", 1, 0, 0, 1))
    assert busy.replaced_s == Times(8, 23.0, 27.0)
    assert busy.culls == 9
    shadow = report_of(shadow_week(), SINCE_S, UNTIL_S, mode="shadow")
    assert (shadow.would_culls, shadow.would_recover, shadow.culls) == (3, 2, 0)


@given(
    st.lists(
        st.builds(
            Entry,
            st.sampled_from(sorted(ENTRY_WORDS)),
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
def test_any_ledger_can_be_summed_up(entries: list[Entry], since: float, length: float) -> None:
    counted = report_of(entries, since, since + length)
    assert counted.would_recover <= counted.would_culls
    assert sum(cause.culls for cause in counted.causes) == counted.culls
