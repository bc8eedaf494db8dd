"""What the three rules promise, and that no schedule talks the log out of its promise."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Sequence
from copy import deepcopy
from fractions import Fraction
from itertools import product
from math import ceil

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sidecar.core.grants import RULES, Bucket, Grants, Quota
from sidecar.core.words import US_PER_S, Denied, Granted

TEN_MINUTES_US = 600 * US_PER_S
ARTICLE = Quota(10, TEN_MINUTES_US)

Claim = tuple[str, int]
"""(claim id, the clock of the bucket at that moment)."""

any_rule = pytest.mark.parametrize("rule", RULES)
thorough = settings(max_examples=500, deadline=None)
brief = settings(max_examples=150, deadline=None)


def bucket(rule: str, capacity: int = 10, window_us: int = TEN_MINUTES_US) -> Bucket:
    return Bucket(RULES[rule], Quota(capacity, window_us))


def fresh_grants(it: Bucket, claims: Iterable[Claim]) -> list[int]:
    """Recorded times of the claims that cost a token; a clock behind the newest grant is recorded as standing."""
    times: list[int] = []
    newest_us: int | None = None
    for claim_id, now_us in claims:
        answer = it.claim(claim_id, now_us)
        if not isinstance(answer, Granted):
            continue
        newest_us = now_us if newest_us is None else max(now_us, newest_us)
        if not answer.replayed:
            times.append(newest_us)
    return times


def most_in_a_window(times: Sequence[int], window_us: int) -> int:
    """The largest number of times in any closed window [t, t + W]; one that starts at a time is the fullest."""
    return max((bisect_right(times, first + window_us) - at for at, first in enumerate(times)), default=0)


# -- (1) the log: never more than N in any closed window ------------------------------------------------------

quotas = st.builds(Quota, st.integers(1, 5), st.integers(1, 20))


def schedules(quota: Quota) -> st.SearchStrategy[list[Claim]]:
    """Few ids, so that many are replayed; a clock that leaps both ways by amounts around the window."""
    window = quota.window_us
    near = st.sampled_from([-1, 0, 1, window - 1, window, window + 1, 2 * window, 2 * window + 1, -window])
    steps = near | st.integers(-3 * window, 3 * window) | st.sampled_from([-(10**12), 10**12])
    claims = st.tuples(st.integers(0, 30).map(str), steps)
    return st.lists(claims, max_size=60).map(walked)


def walked(steps: list[Claim]) -> list[Claim]:
    now_us, claims = 1_000, []
    for claim_id, step_us in steps:
        now_us += step_us
        claims.append((claim_id, now_us))
    return claims


@thorough
@given(data=st.data(), quota=quotas)
def test_no_schedule_gets_more_than_capacity_out_of_the_log(data: st.DataObject, quota: Quota) -> None:
    it = Bucket(RULES["log"], quota)
    times = fresh_grants(it, data.draw(schedules(quota)))
    assert most_in_a_window(times, quota.window_us) <= quota.capacity


@pytest.mark.parametrize(("capacity", "window_us"), [(1, 1), (1, 3), (2, 2), (2, 3)])
def test_log_holds_for_every_schedule_of_five_claims(capacity: int, window_us: int) -> None:
    """Brute force: every sequence of clocks, back and forth, and whether the third claim repeats the first."""
    for clocks in product(range(6), repeat=5):
        for ids in ("abcde", "abade"):
            times = fresh_grants(bucket("log", capacity, window_us), zip(ids, clocks, strict=True))
            assert most_in_a_window(times, window_us) <= capacity, (ids, clocks)


@pytest.mark.parametrize("capacity", [1, 2, 3, 10])
def test_adversary_who_obeys_every_retry_after_gets_no_more_than_capacity(capacity: int) -> None:
    """Asks at the very first instant that a refusal names, replays all it has, and sets the clock back between."""
    it, now_us = bucket("log", capacity, 100), 5
    claims: list[Claim] = []
    times: list[int] = []
    for n in range(20 * capacity):
        answer = it.claim(f"new-{n}", now_us)
        if isinstance(answer, Denied):
            now_us += round(answer.retry_after_s * US_PER_S)
            answer = it.claim(f"new-{n}", now_us)
        assert isinstance(answer, Granted)
        times.append(now_us)
        claims.append((f"new-{n}", now_us))
        assert fresh_grants(it, ((claim_id, now_us - 150) for claim_id, at in claims if at >= now_us - 100)) == []
        now_us += n % 3
    assert most_in_a_window(times, 100) == capacity


@thorough
@given(data=st.data(), quota=quotas)
def test_other_rules_keep_to_what_they_promise(data: st.DataObject, quota: Quota) -> None:
    claims = data.draw(schedules(quota))
    fixed = fresh_grants(Bucket(RULES["fixed"], quota), claims)
    previous = fresh_grants(Bucket(RULES["previous"], quota), claims)
    assert most_in_a_window(fixed, quota.window_us) <= 2 * quota.capacity
    assert most_in_a_window(previous, quota.window_us) <= 2 * quota.capacity - 1


# -- (2) across a boundary: 20, 19 and 10 of 10 ---------------------------------------------------------------

BURST = [TEN_MINUTES_US - 1] * 10
"""Ten claims in the last microsecond of a period."""

AT_THE_BOUNDARY = [TEN_MINUTES_US] * 10
AS_OVERLAP_SHRINKS = [TEN_MINUTES_US + TEN_MINUTES_US * tenth // 10 for tenth in range(1, 10)]
"""Each tenth of the next period frees the share of one grant of the period before."""


@pytest.mark.parametrize(
    ("rule", "schedule", "granted"),
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
def test_grants_of_ten_across_a_boundary(rule: str, schedule: list[int], granted: int) -> None:
    times = fresh_grants(bucket(rule), ((str(n), now_us) for n, now_us in enumerate(schedule)))
    assert len(times) == most_in_a_window(times, TEN_MINUTES_US) == granted


# -- (3) retry_after ------------------------------------------------------------------------------------------


@any_rule
@thorough
@given(quota=quotas, start=st.integers(-100, 100), gaps=st.lists(st.integers(0, 12), min_size=1, max_size=30))
def test_retry_after_is_the_first_instant_that_grants(rule: str, quota: Quota, start: int, gaps: list[int]) -> None:
    it, now_us = Bucket(RULES[rule], quota), start
    for n, gap_us in enumerate(gaps):
        now_us += gap_us
        answer = it.claim(str(n), now_us)
        if isinstance(answer, Denied):
            assert answer.retry_after_s > 0
            first_us = now_us + round(answer.retry_after_s * US_PER_S)
            assert isinstance(deepcopy(it).claim("early", first_us - 1), Denied)
            assert isinstance(deepcopy(it).claim("in time", first_us), Granted)


@any_rule
@pytest.mark.parametrize("behind_us", [1, 100, 10_000])
def test_retry_after_is_as_exact_for_a_clock_behind_the_newest_grant(rule: str, behind_us: int) -> None:
    """The bucket stands still until the clock has caught up, and the wait has to say so."""
    it = bucket(rule, 1, 100)
    it.claim("ahead", 20_050)
    now_us = 20_050 - behind_us
    answer = it.claim("behind", now_us)
    assert isinstance(answer, Denied)
    first_us = now_us + round(answer.retry_after_s * US_PER_S)
    assert isinstance(it.claim("behind", first_us - 1), Denied)
    assert isinstance(it.claim("behind", first_us), Granted)


@pytest.mark.parametrize(
    ("rule", "granted_at_s", "now_s", "retry_after_s"),
    [
        ("log", [0] * 10, 1, 599.000_001),
        ("log", [0, *range(100, 109)], 200, 400.000_001),
        ("log", [0] * 10, 600, 0.000_001),
        ("fixed", [0] * 10, 1, 599),
        ("fixed", [599] * 10, 599, 1),
        ("previous", [0] * 10, 1, 659),
        ("previous", [599] * 10, 600, 60),
        ("previous", [599] * 10, 659, 1),
    ],
)
def test_retry_after_in_the_articles_numbers(
    rule: str, granted_at_s: list[int], now_s: int, retry_after_s: float
) -> None:
    it = bucket(rule)
    fresh_grants(it, ((str(n), at_s * US_PER_S) for n, at_s in enumerate(granted_at_s)))
    answer = it.claim("late", now_s * US_PER_S)
    assert isinstance(answer, Denied)
    assert answer.retry_after_s == pytest.approx(retry_after_s, abs=1e-9)


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
@brief
@given(quota=quotas, gaps=st.lists(st.integers(0, 12), max_size=12), later_us=st.integers(0, 45))
def test_used_and_decision_agree_with_the_plain_definition(
    rule: str, quota: Quota, gaps: list[int], later_us: int
) -> None:
    it, now_us = Bucket(RULES[rule], quota), 7
    times: list[int] = []
    for n, gap_us in enumerate([*gaps, later_us]):
        now_us += gap_us
        used = NAIVE[rule](times, now_us, quota)
        answer = it.claim(str(n), now_us)
        if used + 1 <= quota.capacity:
            assert answer == Granted(used + 1, quota.capacity)
            times.append(now_us)
        else:
            assert isinstance(answer, Denied)
            assert (answer.reason, answer.used, answer.capacity) == ("window", used, quota.capacity)


# -- (4) replay, denial and the clock -------------------------------------------------------------------------


@any_rule
def test_replay_is_free(rule: str) -> None:
    it = bucket(rule, 2)
    assert it.claim("a", 0) == Granted(1, 2)
    assert [it.claim("a", now_us) for now_us in (0, 1, US_PER_S)] == [Granted(1, 2, replayed=True)] * 3
    assert it.claim("b", US_PER_S) == Granted(2, 2)
    assert it.claim("a", US_PER_S) == Granted(2, 2, replayed=True)
    assert isinstance(it.claim("c", US_PER_S), Denied)


@any_rule
@pytest.mark.parametrize("age_us", [0, 99, 100])
def test_replay_is_free_to_the_last_instant_of_the_closed_window(rule: str, age_us: int) -> None:
    it = bucket(rule, 1, 100)
    it.claim("a", 1_000)
    answer = it.claim("a", 1_000 + age_us)
    assert isinstance(answer, Granted)
    assert answer.replayed
    assert len(it._grants.every()) == 1


@pytest.mark.parametrize("rule", ["log", "previous"])
def test_replay_counts_from_its_own_time_for_only_then_the_container_goes_down(rule: str) -> None:
    """Ten granted at 0 whose replies were lost and first used at 600 s, ten fresh ones a microsecond later: no."""
    it = bucket(rule)
    for number in range(10):
        it.claim(f"lost-{number}", 0)
    for number in range(10):
        answer = it.claim(f"lost-{number}", TEN_MINUTES_US)
        assert isinstance(answer, Granted)
        assert answer.replayed
    fresh = [it.claim(f"fresh-{number}", TEN_MINUTES_US + 1) for number in range(10)]
    assert all(isinstance(answer, Denied) for answer in fresh)


@any_rule
def test_grant_that_has_left_the_window_has_to_be_had_anew(rule: str) -> None:
    it = bucket(rule, 1, 100)
    it.claim("a", 1_000)
    assert it.claim("a", 1_300) == Granted(1, 1)
    assert isinstance(it.claim("b", 1_300), Denied)


@any_rule
def test_only_what_was_granted_is_replayed(rule: str) -> None:
    it = bucket(rule, 1, 100)
    it.claim("a", 1_000)
    assert isinstance(it.claim("b", 1_000), Denied)
    assert isinstance(it.claim("b", 1_001), Denied)
    later = it.claim("b", 1_500)
    assert isinstance(later, Granted)
    assert not later.replayed


@any_rule
def test_denied_claim_leaves_no_trace(rule: str) -> None:
    asked, quiet = bucket(rule, 2, 100), bucket(rule, 2, 100)
    for it in (asked, quiet):
        fresh_grants(it, [("a", 1_000), ("b", 1_001)])
    for now_us in range(1_002, 1_060):
        assert isinstance(asked.claim(f"denied-{now_us}", now_us), Denied)
    assert asked._grants.every() == quiet._grants.every()
    assert [asked.claim("c", now_us) for now_us in range(1_060, 1_300)] == [
        quiet.claim("c", now_us) for now_us in range(1_060, 1_300)
    ]


@any_rule
@brief
@given(quota=quotas, times=st.lists(st.integers(0, 60), max_size=20), back_us=st.integers(1, 200))
def test_clock_that_steps_back_never_adds_a_token(rule: str, quota: Quota, times: list[int], back_us: int) -> None:
    """Whatever is asked by a clock behind the newest grant could have been had at the newest grant itself."""
    it = Bucket(RULES[rule], quota)
    granted = fresh_grants(it, ((str(n), now_us) for n, now_us in enumerate(sorted(times))))
    newest_us = max(granted, default=0)
    honest = deepcopy(it)
    behind = fresh_grants(it, ((f"b{n}", newest_us - back_us) for n in range(quota.capacity + 1) if granted))
    at_newest = fresh_grants(honest, ((f"b{n}", newest_us) for n in range(quota.capacity + 1) if granted))
    assert len(behind) == len(at_newest)


@any_rule
def test_memory_is_bounded_by_two_windows_of_grants(rule: str) -> None:
    it = bucket(rule, 3, 100)
    for now_us in range(20_000):
        it.claim(str(now_us), now_us)
    assert len(it._grants.every()) <= 3 * 3


# -- (5) fixed keeps to the wall clock ------------------------------------------------------------------------


@pytest.mark.parametrize(("capacity", "window_us"), [(0, TEN_MINUTES_US), (-1, TEN_MINUTES_US), (10, 0)])
def test_quota_without_a_token_or_a_window_is_refused(capacity: int, window_us: int) -> None:
    with pytest.raises(ValueError, match="quota"):
        Quota(capacity, window_us)


# -- tokens that are used late --------------------------------------------------------------------------------


def test_late_replays_do_not_put_more_containers_down_than_the_window_allows() -> None:
    """Granted too late, recovered, sick again after more than a window: the old grant no longer covers a cull.

    Ten containers hold grants of minute 0 that they never used. In minute 15 they use them, and ten others get
    fresh ones: twenty containers go down within a minute out of a budget of ten.
    """
    it, minute_15_us = bucket("log"), 15 * 60 * US_PER_S
    assert len(fresh_grants(it, ((f"recovered-{n}", 0) for n in range(10)))) == 10
    claims = [*(f"recovered-{n}" for n in range(10)), *(f"other-{n}" for n in range(10))]
    answers = [it.claim(claim_id, minute_15_us + n) for n, claim_id in enumerate(claims)]
    assert sum(isinstance(answer, Granted) for answer in answers) <= 10


# -- spacing --------------------------------------------------------------------------------------------------


@any_rule
@pytest.mark.parametrize(
    ("now_us", "answer"),
    [
        (1_029, Denied("spacing", 1, 3, 1e-6)),
        (1_030, Granted(2, 3)),
        (1_001, Denied("spacing", 1, 3, 29e-6)),
        (990, Denied("spacing", 1, 3, 40e-6)),
    ],
    ids=["a microsecond early", "in time", "at once", "by a clock that is behind"],
)
def test_next_grant_keeps_its_distance_from_the_newest(rule: str, now_us: int, answer: Granted | Denied) -> None:
    it = Bucket(RULES[rule], Quota(3, 10_000), spacing_us=30)
    it.claim("a", 1_000)
    assert it.claim("b", now_us) == answer


def test_spacing_speaks_before_the_window_and_a_replay_before_both() -> None:
    it = Bucket(RULES["log"], Quota(1, 100), spacing_us=30)
    it.claim("a", 1_000)
    assert it.claim("a", 1_001) == Granted(1, 1, replayed=True)
    assert [it.claim("b", now_us) for now_us in (1_030, 1_031)] == [
        Denied("spacing", 1, 1, 1e-6),
        Denied("window", 1, 1, 71e-6),
    ]


# -- what was granted when ------------------------------------------------------------------------------------


def noted(**times: int) -> Grants:
    it = Grants()
    for claim_id, at_us in times.items():
        it.note(claim_id, at_us, 100)
    return it


def test_grant_that_was_given_back_no_longer_counts_but_is_known() -> None:
    it = noted(a=10, b=20, c=30)
    it.earn("c")
    it.earn("nobody")
    assert (it.counted(), it.every(), it.newest_us) == ([10, 20], [10, 20, 30], 30)
    assert [it.holds("c", now_us, 100) for now_us in (130, 131)] == [True, False]
    it.unearn()
    assert it.counted() == [10, 20, 30]


def test_grant_that_was_given_back_stays_so_when_it_is_noted_anew() -> None:
    it = noted(a=10)
    it.earn("a")
    it.note("a", 50, 100)
    assert (it.counted(), it.every()) == ([], [50])


def test_grants_of_two_windows_ago_are_forgotten_whether_they_count_or_not() -> None:
    it = noted(a=10, b=11, c=12)
    it.earn("b")
    it.note("d", 212, 100)
    assert it.every() == [12, 212]
    assert Grants().newest_us == 0
