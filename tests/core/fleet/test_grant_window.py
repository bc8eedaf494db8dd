"""What the three rules promise, and that no schedule talks the log out of its promise."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Sequence
from fractions import Fraction
from math import ceil

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sidecar.core.fleet.grant_window import RULES, Quota
from sidecar.core.types import US_PER_S

TEN_MINUTES_US = 600 * US_PER_S
ARTICLE = Quota(10, TEN_MINUTES_US)

any_rule = pytest.mark.parametrize("rule", RULES)
thorough = settings(max_examples=100)


def granted_of(rule: str, quota: Quota, asked: Iterable[int]) -> list[int]:
    """Of those that ask at these instants, one after the other, the instants of those that the rule lets pass."""
    times: list[int] = []
    for now_us in asked:
        if not RULES[rule](times, now_us, quota).wait_us:
            times.append(now_us)
    return times


def most_in_a_window(times: Sequence[int], window_us: int) -> int:
    """The largest number of times in any closed window [t, t + W]; one that starts at a time is the fullest."""
    return max((bisect_right(times, first + window_us) - at for at, first in enumerate(times)), default=0)


quotas = st.builds(Quota, st.integers(1, 5), st.integers(1, 20))


def schedules(quota: Quota) -> st.SearchStrategy[list[int]]:
    window = quota.window_us
    near = st.sampled_from([0, 1, window - 1, window, window + 1, 2 * window]) | st.integers(0, 3 * window)
    return st.lists(near, max_size=60).map(walked)


def walked(steps: list[int]) -> list[int]:
    return [1_000 + sum(steps[: at + 1]) for at in range(len(steps))]


# -- never more than so many ----------------------------------------------------------------------------------


@thorough
@given(data=st.data(), quota=quotas)
def test_rules_keep_to_what_they_promise_for_every_window(data: st.DataObject, quota: Quota) -> None:
    asked = data.draw(schedules(quota))
    most = {rule: most_in_a_window(granted_of(rule, quota, asked), quota.window_us) for rule in RULES}
    assert most["log"] <= quota.capacity
    assert most["previous"] <= 2 * quota.capacity - 1
    assert most["fixed"] <= 2 * quota.capacity


# -- across a boundary: 20, 19 and 10 of 10 -------------------------------------------------------------------

BURST = [TEN_MINUTES_US - 1] * 10
"""Ten claims in the last microsecond of a period."""

AT_THE_BOUNDARY = [TEN_MINUTES_US] * 10
AS_OVERLAP_SHRINKS = [TEN_MINUTES_US + TEN_MINUTES_US * tenth // 10 for tenth in range(1, 10)]
"""Each tenth of the next period frees the share of one grant of the period before."""


@pytest.mark.parametrize(
    ("rule", "asked", "granted"),
    [
        ("fixed", [*BURST, *AT_THE_BOUNDARY], 20),
        ("previous", [*BURST, *AT_THE_BOUNDARY], 10),
        ("log", [*BURST, *AT_THE_BOUNDARY], 10),
        ("fixed", [*BURST, *AS_OVERLAP_SHRINKS], 19),
        ("previous", [*BURST, *AS_OVERLAP_SHRINKS], 19),
        ("previous", [*BURST, *(at - 1 for at in AS_OVERLAP_SHRINKS)], 18),
        ("previous", [*BURST, *AS_OVERLAP_SHRINKS, 2 * TEN_MINUTES_US - 1], 19),
        ("log", [*BURST, *AS_OVERLAP_SHRINKS], 10),
    ],
    ids=[
        "fixed gives twice the capacity in a microsecond",
        "previous gives nothing at the boundary itself",
        "log gives nothing at the boundary",
        "fixed gives all that comes",
        "previous gives one less than twice at worst",
        "previous gives each a microsecond too early to the next",
        "previous gives no twentieth",
        "log gives nothing for a whole window",
    ],
)
def test_grants_of_ten_across_a_boundary(rule: str, asked: list[int], granted: int) -> None:
    times = granted_of(rule, ARTICLE, asked)
    assert len(times) == most_in_a_window(times, TEN_MINUTES_US) == granted


# -- when the next one comes ----------------------------------------------------------------------------------


@any_rule
@thorough
@given(quota=quotas, start=st.integers(1, 100), gaps=st.lists(st.integers(0, 12), min_size=1, max_size=30))
def test_wait_ends_at_the_first_instant_that_grants(rule: str, quota: Quota, start: int, gaps: list[int]) -> None:
    times: list[int] = []
    for now_us in [start + sum(gaps[: at + 1]) for at in range(len(gaps))]:
        wait_us = RULES[rule](times, now_us, quota).wait_us
        if not wait_us:
            times.append(now_us)
            continue
        assert RULES[rule](times, now_us + wait_us - 1, quota).wait_us == 1
        assert RULES[rule](times, now_us + wait_us, quota).wait_us == 0


# -- used: against definitions that are not clever ------------------------------------------------------------


def naive_log(times: list[int], now_us: int, quota: Quota) -> int:
    return sum(now_us - quota.window_us <= at <= now_us for at in times)


def naive_fixed(times: list[int], now_us: int, quota: Quota) -> int:
    return sum(at // quota.window_us == now_us // quota.window_us for at in times)


def naive_previous(times: list[int], now_us: int, quota: Quota) -> int:
    window = quota.window_us
    period = now_us // window
    current = sum(at // window == period for at in times)
    previous = sum(at // window == period - 1 for at in times)
    return current + ceil(previous * (1 - Fraction(now_us % window, window)))


NAIVE = {"log": naive_log, "fixed": naive_fixed, "previous": naive_previous}


@any_rule
@given(quota=quotas, gaps=st.lists(st.integers(0, 12), max_size=12), later_us=st.integers(0, 45))
def test_used_and_decision_agree_with_the_plain_definition(
    rule: str, quota: Quota, gaps: list[int], later_us: int
) -> None:
    times: list[int] = []
    for now_us in walked([*gaps, later_us]):
        used = NAIVE[rule](times, now_us, quota)
        usage = RULES[rule](times, now_us, quota)
        assert usage.used == used
        assert (usage.wait_us == 0) is (used + 1 <= quota.capacity)
        if not usage.wait_us:
            times.append(now_us)
