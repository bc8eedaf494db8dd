"""Several servers as one: what each has of a total, and how many have to agree."""

from __future__ import annotations

from itertools import combinations

import pytest

from sidecar.core.fleet.majority import is_majority, split

counts = pytest.mark.parametrize("servers", range(1, 10))


def test_ten_over_three_are_four_three_and_three() -> None:
    assert [split(10, index, 3) for index in range(3)] == [4, 3, 3]


@counts
@pytest.mark.parametrize("total", range(13))
def test_shares_add_up_and_differ_by_one_at_most(total: int, servers: int) -> None:
    shares = [split(total, index, servers) for index in range(servers)]
    assert sum(shares) == total
    assert max(shares) - min(shares) <= 1
    assert shares == sorted(shares, reverse=True)


def every_group(servers: int) -> list[frozenset[int]]:
    return [frozenset(group) for size in range(servers + 1) for group in combinations(range(servers), size)]


@counts
def test_two_majorities_always_share_a_server(servers: int) -> None:
    majorities = [group for group in every_group(servers) if is_majority(group, servers)]
    assert frozenset(range(servers)) in majorities
    # Of two groups without a common server one lies in the rest of the other.
    assert not [group for group in majorities if is_majority(frozenset(range(servers)) - group, servers)]


@counts
def test_of_any_two_parts_one_is_a_majority_and_more_never_unmakes_it(servers: int) -> None:
    for group in every_group(servers):
        rest = frozenset(range(servers)) - group
        assert is_majority(group, servers) != is_majority(rest, servers)
        if is_majority(group, servers):
            assert all(is_majority(group | {one}, servers) for one in rest)


@pytest.mark.parametrize(
    ("indices", "servers", "is_enough"),
    [([], 1, False), ([0], 1, True), ([0], 2, True), ([1], 2, False), ([0, 0], 3, False), ([1, 2], 3, True)],
)
def test_even_numbers_have_a_first_among_equals(indices: list[int], servers: int, *, is_enough: bool) -> None:
    assert is_majority(indices, servers) is is_enough
