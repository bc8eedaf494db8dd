"""Who is alive, who wants, and what they have in common."""

from __future__ import annotations

import pytest

from sidecar.core.roster import Roster


def roster(**kinds: str | None) -> Roster:
    it = Roster()
    for instance, kind in kinds.items():
        it.heard(instance, 100, kind)
    return it


# -- who is there ---------------------------------------------------------------------------------------------


def test_who_is_heard_is_alive_and_who_names_a_kind_wants() -> None:
    it = roster(a=None, b="redis", c="redis")
    assert (set(it.alive), it.wanting) == ({"a", "b", "c"}, 2)


@pytest.mark.parametrize(
    ("kinds", "wanting", "causes"),
    [
        (["redis", "redis"], 1, {"redis": 1}),
        (["redis", "disk"], 1, {"disk": 1}),
        (["redis", None], 0, {}),
        ([None, None], 0, {}),
        ([None, "disk", None, "disk"], 1, {"disk": 1}),
    ],
    ids=["says so again", "of another kind", "recovers", "never wanted", "relapses"],
)
def test_one_counts_once_and_for_the_kind_it_named_last(
    kinds: list[str | None], wanting: int, causes: dict[str, int]
) -> None:
    it = Roster()
    for kind in kinds:
        it.heard("a", 1, kind)
    assert (it.wanting, it.causes) == (wanting, causes)


@pytest.mark.parametrize("instance", ["b", "nobody"])
def test_who_left_neither_lives_nor_wants(instance: str) -> None:
    it = roster(a=None, b="redis")
    it.left(instance)
    it.left(instance)
    assert instance not in it.alive
    assert it.wanting == sum(one != instance for one in ["b"])


@pytest.mark.parametrize(("now_us", "silent"), [(130, []), (131, ["a", "b"]), (50, [])])
def test_silent_are_those_not_heard_for_longer_than_they_live(now_us: int, silent: list[str]) -> None:
    assert roster(a=None, b="redis").silent(now_us, 30) == silent


# -- who was there before -------------------------------------------------------------------------------------


@pytest.mark.parametrize(("now_us", "is_known"), [(500, True), (1_100, True), (1_101, False)])
def test_who_departed_is_known_for_a_window(now_us: int, *, is_known: bool) -> None:
    it = roster(a="redis")
    it.departs("a", 500, 600)
    assert "a" not in it.alive
    assert it.wanting == 0
    assert it.is_known("a", now_us, 600) is is_known
    assert not it.is_known("b", now_us, 600)


def test_who_is_alive_is_known_and_the_departed_are_forgotten_in_time() -> None:
    it = roster(a=None)
    assert it.is_known("a", 10**9, 1)
    for now_us in range(1_000):
        it.departs(f"left-{now_us}", now_us, 10)
    assert len(it.departed) <= 11


# -- the common cause -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("kinds", "cause"),
    [
        ([], ""),
        (["redis"] * 2, ""),
        (["redis"] * 3, "redis"),
        (["redis"] * 3 + ["disk"], ""),
        (["redis"] * 4 + ["disk"], "redis"),
        (["redis"] * 4 + ["disk", "net"], ""),
        (["redis"] * 3 + ["disk"] * 3, ""),
    ],
    ids=["nobody wants", "two", "three", "three of four", "four of five", "four of six", "a tie"],
)
def test_cause_is_the_kind_of_three_and_of_four_fifths(kinds: list[str], cause: str) -> None:
    it = Roster()
    for number, kind in enumerate(kinds):
        it.heard(f"c{number}", 1, kind)
    it.heard("well", 1, None)
    assert it.cause() == cause
