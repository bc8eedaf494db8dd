"""The sorted set in memory against a list that is sorted at every look."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from harness.memory_store import SortedSet

NAMES = st.sampled_from("abcde")
STEPS = st.lists(st.tuples(NAMES, st.none() | st.integers(-2, 2)), max_size=20)
"""A name with its new score, None to remove it."""


@given(STEPS, st.integers(-3, 3), st.integers(-3, 3))
def test_names_are_ordered_by_score_and_then_by_name(
    steps: list[tuple[str, int | None]], least: int, most: int
) -> None:
    found, expected = SortedSet(), dict[str, int]()
    for name, score in steps:
        if score is None:
            assert found.remove(name) == (expected.pop(name, None) is not None)
        else:
            found.put(name, score)
            expected[name] = score
    order = sorted(expected.items(), key=lambda pair: (pair[1], pair[0]))
    within = [(name, score) for name, score in order if least <= score <= most]
    assert list(found) == order
    assert [found.at(place) for place in range(-len(order), len(order))] == order + order
    assert (found.at(len(order)), found.at(-len(order) - 1)) == (None, None)
    assert list(found.within(least, most).items()) == within
    assert list(found.within(least, most, 1).items()) == within[:1]
    assert (found.count(least, most), found.count(least)) == (len(within), sum(score >= least for _, score in order))
    found.remove_within(least, most)
    assert list(found) == [pair for pair in order if pair not in within]
