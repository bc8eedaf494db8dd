"""What weight follows from a success rate, how fast it gets there, and what leaves it alone."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from harness.cases import cases
from sidecar.core.claims import Fleet, Presence
from sidecar.core.measure.weight import FULL, Weight, share_of_window, soft_drain
from sidecar.core.types import Policy


def settled(rate: float | None, weight: Weight | None = None) -> int:
    """Where the weight is after a minute at this rate."""
    weight = weight or Weight()
    for _ in range(60):
        weight = weight.step(rate, 1.0)
    return weight.percent


@cases(
    "rate, percent",
    {
        "nothing known": (None, 100),
        "all go well": (1.0, 100),
        "a few fail: within the band": (0.97, 100),
        "one in ten fails": (0.9, 73),
        "one in four fails": (0.75, 42),
        "half fail": (0.5, 12),
        "the floor": (0.3, 10),
        "all fail": (0.0, 10),
    },
)
def test_weight_is_the_rate_cubed(rate: float | None, percent: int) -> None:
    assert settled(rate) == percent


@pytest.mark.parametrize(("floor", "percent"), [(1, 1), (10, 10), (50, 50), (100, 100)])
def test_least_weight_is_the_floor_and_one_of_a_hundred_turns_weighing_off(floor: int, percent: int) -> None:
    assert settled(0.0, Weight(floor=floor)) == percent


def steps(percent: int, rate: float, elapsed_s: float = 1.0, count: int = 4) -> list[int]:
    weight, percents = Weight(percent), []
    for _ in range(count):
        weight = weight.step(rate, elapsed_s)
        percents.append(weight.percent)
    return percents


@cases(
    "percent, rate, elapsed_s, percents",
    {
        "it falls fast": (100, 0.5, 1.0, [80, 60, 40, 20]),
        "by the time that has passed": (100, 0.0, 3.0, [40, 10, 10, 10]),
        "it rises slowly": (10, 1.0, 1.0, [15, 20, 25, 30]),
        "to the top": (10, 1.0, 60.0, [100, 100, 100, 100]),
        "and all of the way": (98, 1.0, 1.0, [100, 100, 100, 100]),
        "as to the floor": (12, 0.1, 1.0, [10, 10, 10, 10]),
        "no time, no change": (100, 0.5, 0.0, [100, 100, 100, 100]),
        "a target nearby changes nothing": (73, 0.88, 1.0, [73, 73, 73, 73]),
        "one further away is reached": (73, 0.94, 1.0, [78, 83, 83, 83]),
        "near the floor the band is narrow": (12, 0.51, 1.0, [12, 12, 12, 12]),
        "but not so narrow": (12, 0.53, 1.0, [15, 15, 15, 15]),
    },
)
def test_way_to_the_target(percent: int, rate: float, elapsed_s: float, percents: list[int]) -> None:
    assert steps(percent, rate, elapsed_s) == percents


rates = st.one_of(st.none(), st.floats(0, 1))
walks = st.lists(st.tuples(rates, st.floats(0, 400)), max_size=40)


@settings(deadline=None)
@given(floor=st.integers(1, 100), walk=walks)
def test_any_weight_is_a_whole_percent_between_its_ends_and_never_jumps(
    floor: int, walk: list[tuple[float | None, float]]
) -> None:
    weight = Weight(floor=floor)
    for rate, elapsed_s in walk:
        before, weight = weight, weight.step(rate, elapsed_s)
        assert type(weight.percent) is int
        assert floor <= weight.percent <= FULL
        assert before.percent - 20 * elapsed_s <= weight.percent <= before.percent + 5 * elapsed_s


# -- soft drain -----------------------------------------------------------------------------------------------

SUSPECT = Presence.SUSPECT


@pytest.mark.parametrize(
    ("presence", "rate", "told", "percent"),
    [
        pytest.param(SUSPECT, None, (Fleet(10, 1), True), 0, id="one of ten"),
        pytest.param(SUSPECT, None, (Fleet(10, 2), True), 0, id="two of ten, the others have room for just these"),
        pytest.param(SUSPECT, None, (Fleet(10, 4), True), 50, id="four of ten"),
        pytest.param(SUSPECT, None, (Fleet(10, 5), True), 60, id="half"),
        pytest.param(SUSPECT, None, (Fleet(10, 9), True), 78, id="nearly all"),
        pytest.param(SUSPECT, None, (Fleet(10, 10), True), 100, id="all"),
        pytest.param(SUSPECT, None, (Fleet(10, 4, median_errors=4), True), 50, id="median below the limit"),
        pytest.param(SUSPECT, None, (Fleet(10, 4, median_errors=5), True), 100, id="median at the limit"),
        pytest.param(SUSPECT, None, (Fleet(10, 3), False), 50, id="fourth that is not counted yet"),
        pytest.param(SUSPECT, None, (Fleet(10, 0), True), 0, id="counts itself at least"),
        pytest.param(SUSPECT, None, (Fleet(9, 4, down=1), True), 75, id="one is down, whose load is carried already"),
        pytest.param(SUSPECT, None, (Fleet(3, 1), True), 40, id="one of three"),
        pytest.param(SUSPECT, None, (Fleet(2, 1), True), 100, id="one of two"),
        pytest.param(SUSPECT, None, (Fleet(1, 1), True), 100, id="alone"),
        pytest.param(SUSPECT, None, (Fleet(3, 1, down=8), True), 100, id="the others are down"),
        pytest.param(SUSPECT, None, (None, True), 100, id="fleet not known"),
        pytest.param(SUSPECT, 0.5, (Fleet(10, 1), True), 100, id="requests are known"),
        *(
            pytest.param(presence, None, (Fleet(10, 1), True), 100, id=presence)
            for presence in Presence
            if presence is not SUSPECT
        ),
    ],
)
def test_suspect_keeps_as_little_weight_as_the_others_can_make_up_for(
    presence: Presence, rate: float | None, told: tuple[Fleet | None, bool], percent: int
) -> None:
    """``told``: the fleet, and whether that has heard of this suspect."""
    fleet, is_announced = told
    assert soft_drain(presence, rate, fleet, Policy(), is_announced=is_announced) == percent


def test_lowered_weight_is_set_at_once_not_below_the_floor_and_rises_as_any_other() -> None:
    weight = Weight(floor=7).at(0)
    assert weight == Weight(7, floor=7)
    percents = []
    for _ in range(3):
        weight = weight.step(None, 1.0)
        percents.append(weight.percent)
    assert percents == [12, 17, 22]
    assert Weight(floor=FULL).at(0) == Weight(floor=FULL)
    assert Weight(floor=7).at(60).percent == 60


def test_limit_of_a_drained_container_falls_with_the_window_that_still_holds_earlier_errors() -> None:
    shares, share = [], 1.0
    for _ in range(7):
        shares.append(round(share, 3))
        share = share_of_window(share, 10, 10, 60)
    assert shares == [1.0, 0.833, 0.667, 0.5, 0.333, 0.167, 0.1]
    assert share_of_window(0.1, 50, 1, 60) == 0.5
