"""The limit that learns, row by row, and the slots under it."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sidecar.client.adaptive_limit import AdaptiveLimit, Ending

MOVES = [
    # A success proves something only when the limit was in use.
    ("half in use grows by one", 10, Ending.SUCCESS, 5, 11),
    ("less than half in use proves nothing", 10, Ending.SUCCESS, 4, 10),
    ("an odd limit rounds against growth", 9, Ending.SUCCESS, 4, 9),
    ("the smallest limit can grow", 1, Ending.SUCCESS, 1, 2),
    ("and not beyond the highest", 200, Ending.SUCCESS, 200, 200),
    # A lost call shrinks it, whatever was in use.
    ("a tenth less", 100, Ending.DROPPED, 1, 90),
    ("rounded down", 15, Ending.DROPPED, 1, 13),
    ("at least one less", 2, Ending.DROPPED, 2, 1),
    ("never below one", 1, Ending.DROPPED, 1, 1),
    # An error that came back says nothing of the load.
    ("ignored when in use", 10, Ending.IGNORED, 10, 10),
]


@pytest.mark.parametrize(
    ("before", "ending", "in_flight", "after"), [row[1:] for row in MOVES], ids=[row[0] for row in MOVES]
)
def test_limit_moves(before: int, ending: Ending, in_flight: int, after: int) -> None:
    limit = AdaptiveLimit(before)
    limit.acquire()
    limit.end(ending, in_flight)
    assert (limit.limit, limit.in_flight) == (after, 0)


@pytest.mark.parametrize(("initial", "highest", "backoff"), [(0, 5, 0.9), (6, 5, 0.9), (1, 5, 1.0), (1, 5, 0.4)])
def test_limit_that_makes_no_sense_is_refused(initial: int, highest: int, backoff: float) -> None:
    with pytest.raises(ValueError, match=r"limit begins|back-off"):
        AdaptiveLimit(initial, highest=highest, backoff=backoff)


@given(
    initial=st.integers(1, 20),
    backoff=st.sampled_from([0.5, 0.9, 0.99]),
    steps=st.lists(st.tuples(st.integers(0, 30), st.none() | st.sampled_from(Ending)), max_size=80),
)
def test_slots_never_outnumber_the_limit_they_were_given_under(
    initial: int, backoff: float, steps: list[tuple[int, Ending | None]]
) -> None:
    limit, slots = AdaptiveLimit(initial, highest=20, backoff=backoff), list[int]()
    for number, ending in steps:
        if ending is not None and slots:
            limit.end(ending, slots.pop(number % len(slots)))
        elif ending is None:
            has_room = limit.in_flight < limit.limit
            slot = limit.acquire()
            assert slot == (len(slots) + 1 if has_room else None)
            slots += [slot] if slot else []
        assert limit.in_flight == len(slots)
        assert 1 <= limit.limit <= 20
