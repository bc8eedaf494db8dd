"""The terms of the bucket: shares, how they split over servers, and which of several policies is the strictest."""

from __future__ import annotations

from dataclasses import fields, replace

import pytest

from sidecar.core.strictest import Limits, limits, split
from sidecar.core.terms import Share, Terms
from sidecar.core.words import US_PER_S

TERMS = Terms()


def part(thousandths: int) -> Share:
    return Share(thousandths, is_part=True)


# -- a share of the fleet -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("share", "fleet", "at_least", "at_most"),
    [
        (Share(3), 0, 3, 3),
        (Share(3), 100, 3, 3),
        (part(500), 0, 0, 1),
        (part(500), 1, 1, 1),
        (part(500), 2, 1, 1),
        (part(500), 3, 2, 1),
        (part(500), 10, 5, 5),
        (part(500), 11, 6, 5),
        (part(1000), 1, 1, 1),
        (part(1000), 2, 2, 1),
        (part(1000), 10, 10, 9),
        (part(1), 10, 1, 1),
        (part(333), 200, 67, 66),
    ],
)
def test_part_is_rounded_up_for_what_stays_and_down_for_what_goes(
    share: Share, fleet: int, at_least: int, at_most: int
) -> None:
    assert (share.at_least(fleet), share.at_most(fleet)) == (at_least, at_most)


@pytest.mark.parametrize("fleet", range(2, 60))
@pytest.mark.parametrize("thousandths", [1, 10, 333, 500, 999, 1000])
def test_part_of_several_that_may_go_is_one_at_least_and_never_all(thousandths: int, fleet: int) -> None:
    assert 1 <= part(thousandths).at_most(fleet) < fleet


@pytest.mark.parametrize("servers", range(1, 8))
@pytest.mark.parametrize("total", range(12))
def test_shares_of_the_servers_add_up_and_differ_by_one_at_most(total: int, servers: int) -> None:
    shares = [split(total, index, servers) for index in range(servers)]
    assert sum(shares) == total
    assert max(shares) - min(shares) <= 1
    assert shares == sorted(shares, reverse=True)


# -- terms as text --------------------------------------------------------------------------------------------


def test_terms_as_the_scripts_read_them() -> None:
    assert str(TERMS) == "log|10|500p|11|600000000|0|500|60000000|3|-1|10000000|0|1"


OTHER: dict[str, object] = {
    "strategy": "previous",
    "capacity": part(10),
    "window_us": 1,
    "min_healthy": Share(500),
    "never_last": False,
    "spacing_us": 1,
    "brake": 0,
    "probation_us": 1,
    "useless_after": 0,
    "earn_max": 0,
    "lost_is_empty": False,
    "beat_us": 1,
    "index": 1,
    "servers": 2,
}


@pytest.mark.parametrize("name", [field.name for field in fields(Terms)])
def test_terms_that_differ_in_anything_differ_as_text(name: str) -> None:
    assert str(replace(TERMS, **{name: OTHER[name]})) != str(TERMS)  # type: ignore[arg-type]  # of the field's own type


def test_member_lives_for_three_beats() -> None:
    assert Terms(beat_us=7).expiry_us == 21


# -- limits of one policy -------------------------------------------------------------------------------------


def test_limits_of_the_defaults_for_a_fleet_of_ten() -> None:
    assert limits([TERMS], 10) == Limits(
        capacity=10,
        gone=5,
        floor=5,
        earned=-1,
        window_us=600 * US_PER_S,
        spacing_us=0,
        brake=500,
        probation_us=60 * US_PER_S,
        useless_after=3,
        expiry_us=30 * US_PER_S,
        lost_is_empty=True,
    )


@pytest.mark.parametrize(
    ("min_healthy", "never_last", "fleet", "floor", "gone"),
    [
        (Share(0), False, 4, 0, 4),
        (Share(0), True, 4, 1, 3),
        (Share(3), True, 4, 3, 1),
        (Share(9), True, 4, 9, 0),
        (part(500), True, 5, 3, 2),
        (part(500), True, 1, 1, 0),
        (part(500), False, 0, 0, 0),
        (part(1000), True, 50, 50, 0),
    ],
)
def test_floor_and_what_may_be_missing_by_it(
    min_healthy: Share, fleet: int, floor: int, gone: int, *, never_last: bool
) -> None:
    found = limits([Terms(min_healthy=min_healthy, never_last=never_last)], fleet)
    assert (found.floor, found.gone) == (floor, gone)


@pytest.mark.parametrize(
    ("strategy", "capacity", "earn_max", "earned"),
    [
        ("log", Share(10), -1, -1),
        ("log", Share(10), 0, 30),
        ("log", Share(10), 12, 12),
        ("log", part(500), 0, 15),
        ("previous", Share(10), 12, -1),
        ("fixed", Share(10), 0, -1),
    ],
)
def test_earned_budget_is_for_the_log_alone_and_thrice_the_capacity_if_not_said(
    strategy: str, capacity: Share, earn_max: int, earned: int
) -> None:
    assert limits([Terms(strategy=strategy, capacity=capacity, earn_max=earn_max)], 10).earned == earned


def test_every_number_of_culls_is_split_over_the_servers_and_spacing_is_stretched() -> None:
    """10 over 3 servers: 4, 3 and 3 tokens; 5 of a fleet of ten may be missing: 2, 2 and 1."""
    each = [
        limits([Terms(index=index, servers=3, earn_max=0, spacing_us=7, min_healthy=Share(5))], 10)
        for index in range(3)
    ]
    assert [one.capacity for one in each] == [4, 3, 3]
    assert [one.gone for one in each] == [2, 2, 1]
    assert [one.earned for one in each] == [10, 10, 10]
    assert [one.spacing_us for one in each] == [21, 21, 21]
    assert [one.floor for one in each] == [5, 5, 5]


# -- the strictest of several ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "one", "other", "strictest"),
    [
        ("capacity", {"capacity": Share(3)}, {"capacity": part(500)}, 3),
        ("capacity", {"capacity": Share(8)}, {"capacity": part(500)}, 5),
        ("floor", {"min_healthy": Share(3)}, {"min_healthy": Share(7)}, 7),
        ("gone", {"min_healthy": Share(3)}, {"min_healthy": Share(7)}, 3),
        ("floor", {"min_healthy": Share(0), "never_last": False}, {"min_healthy": Share(0)}, 1),
        ("window_us", {"window_us": 60}, {"window_us": 600}, 600),
        ("spacing_us", {"spacing_us": 5}, {"spacing_us": 0}, 5),
        ("brake", {"brake": 300}, {"brake": 500}, 300),
        ("brake", {"brake": 0}, {"brake": 500}, 500),
        ("brake", {"brake": 0}, {"brake": 0}, 0),
        ("probation_us", {"probation_us": 5}, {"probation_us": 9}, 9),
        ("useless_after", {"useless_after": 0}, {"useless_after": 4}, 4),
        ("useless_after", {"useless_after": 2}, {"useless_after": 4}, 2),
        ("earned", {"earn_max": -1}, {"earn_max": 50}, -1),
        ("earned", {"earn_max": 20}, {"earn_max": 50}, 20),
        ("expiry_us", {"beat_us": 5}, {"beat_us": 10}, 30),
        ("lost_is_empty", {"lost_is_empty": False}, {}, True),
        ("lost_is_empty", {"lost_is_empty": False}, {"lost_is_empty": False}, False),
    ],
)
def test_strictest_of_two_policies_is_in_force(
    name: str, one: dict[str, object], other: dict[str, object], strictest: object
) -> None:
    terms = [replace(TERMS, **one), replace(TERMS, **other)]  # type: ignore[arg-type]  # each of its field's type
    assert getattr(limits(terms, 10), name) == strictest
    assert limits(reversed(terms), 10) == limits(terms, 10)
