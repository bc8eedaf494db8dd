"""The gates of the fleet's bucket: each of them, and which of two that are shut gives the answer."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from itertools import combinations
from typing import Final

import pytest

from harness.fleet_bucket import Played, fleet_of, names
from sidecar.core.birth import Mark
from sidecar.core.terms import Share, Terms
from sidecar.core.trials import Cull
from sidecar.core.words import US_PER_S, Answer, Brake, Denied, Granted, Presence

ADA: Final = ("", "ada", "look at it", 60 * US_PER_S)


def reason(answer: Answer) -> str:
    return answer.reason if isinstance(answer, Denied) else type(answer).__name__


# -- gates, one by one and two at a time ----------------------------------------------------------------------


def hold(it: Played) -> None:
    it.bucket.hold(*ADA, it.now_us)


def lost_memory(it: Played) -> None:
    it.known = Mark(it.known.born_us, it.known.grants + 1)


def newborn(it: Played) -> None:
    it.bucket.birth.mark = it.known = Mark(it.now_us, it.bucket.birth.mark.grants)


def useless(it: Played) -> None:
    it.bucket.trials.unhelped["redis"] = (3, it.now_us)


def brake(it: Played) -> None:
    it.bucket.incident.brake, it.bucket.incident.held_us = Brake.CLOSED, it.now_us


def culled(it: Played, count: int, *, is_own: bool) -> None:
    for name in (f"{'own' if is_own else 'other'}-{number}" for number in range(count)):
        it.bucket.trials.culled(name, Cull(name, "0", "redis", it.now_us, 0, is_own=is_own))


def floor(it: Played) -> None:
    culled(it, 20, is_own=False)


def share(it: Played) -> None:
    culled(it, 10, is_own=True)


def spacing(it: Played) -> None:
    it.bucket.grants.note("spaced", it.now_us - 1, it.terms.window_us)


def window(it: Played) -> None:
    for number in range(4):
        it.bucket.grants.note(f"used-{number}", it.now_us - 60 * US_PER_S, it.terms.window_us)


def earn_max(it: Played) -> None:
    for number in range(8):
        it.bucket.grants.note(f"earned-{number}", it.now_us - 60 * US_PER_S, it.terms.window_us)
        it.bucket.grants.earn(f"earned-{number}")


GATES: Final[Mapping[str, Callable[[Played], None]]] = {
    "hold": hold,
    "lost_memory": lost_memory,
    "newborn": newborn,
    "useless": useless,
    "brake": brake,
    "floor": floor,
    "share": share,
    "spacing": spacing,
    "window": window,
    "earn_max": earn_max,
}
"""What shuts a gate of the first of two servers, in the order in which they are asked. 4 tokens, 8 with earned ones."""

TERMS: Final = Terms(capacity=Share(8), spacing_us=US_PER_S, earn_max=16, servers=2)


def test_all_gates_are_open_to_begin_with() -> None:
    assert fleet_of(20, TERMS).claim("c00") == Granted(1, 4, alive=20, wanting=1)


@pytest.mark.parametrize("gate", GATES)
def test_gate_that_is_shut_refuses(gate: str) -> None:
    it = fleet_of(20, TERMS)
    GATES[gate](it)
    answer = it.claim("c00")
    assert isinstance(answer, Denied)
    assert answer.reason == gate
    assert answer.retry_after_s > 0
    assert (answer.capacity, answer.alive, answer.wanting) == (4, 20, 1)


@pytest.mark.parametrize(("earlier", "later"), list(combinations(GATES, 2)))
def test_of_two_shut_gates_the_earlier_speaks(earlier: str, later: str) -> None:
    it = fleet_of(20, TERMS)
    GATES[later](it)
    GATES[earlier](it)
    assert reason(it.claim("c00")) == earlier


@pytest.mark.parametrize("gate", GATES)
def test_replay_is_asked_after_the_hold_and_before_all_others(gate: str) -> None:
    it = fleet_of(20, TERMS)
    it.claim("c00")
    it.passes(5)
    GATES[gate](it)
    assert reason(it.claim("c00")) == ("hold" if gate == "hold" else "Granted")


@pytest.mark.parametrize("gate", GATES)
def test_grant_of_a_place_that_was_taken_passes_all_gates_anew_but_costs_nothing(gate: str) -> None:
    it = fleet_of(20, TERMS)
    it.claim("c00")
    it.beat("c00", Presence.GONE)
    it.beat("newcomer", first=True)
    it.passes(5)
    GATES[gate](it)
    assert reason(it.claim("c00")) == ("Granted" if gate in {"spacing", "window", "earn_max"} else gate)


# -- retry_after ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("gate", "wait_s"),
    [
        ("hold", 60),
        ("lost_memory", 600.000_001),
        ("newborn", 15),
        ("useless", 3600),
        ("brake", 10),
        ("floor", 10),
        ("share", 10),
        ("spacing", 1.999_999),
        ("window", 540.000_001),
        ("earn_max", 540.000_001),
    ],
)
def test_refusal_says_when_to_ask_again(gate: str, wait_s: float) -> None:
    it = fleet_of(20, TERMS)
    GATES[gate](it)
    answer = it.claim("c00")
    assert isinstance(answer, Denied)
    assert answer.reason == gate
    assert answer.retry_after_s == pytest.approx(wait_s, abs=1e-9)


@pytest.mark.parametrize(("gate", "wait_s"), [("hold", 60), ("useless", 3600), ("brake", 10), ("floor", 10)])
def test_clock_behind_the_newest_grant_has_to_catch_up_first(gate: str, wait_s: float) -> None:
    it = fleet_of(20, TERMS)
    it.claim("c19")
    it.passes(-7)
    GATES[gate](it)
    answer = it.claim("c00")
    assert isinstance(answer, Denied)
    assert (answer.reason, answer.retry_after_s) == (gate, wait_s + 7)


# -- the floor ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("fleet", "min_healthy", "never_last", "culls", "last_word"),
    [
        (10, Share(500, is_part=True), True, 5, "floor"),
        (3, Share(500, is_part=True), True, 1, "floor"),
        (3, Share(0), True, 2, "last"),
        (3, Share(0), False, 3, "Granted"),
        (4, Share(3), True, 1, "floor"),
        (4, Share(4), True, 0, "floor"),
        (4, Share(9), True, 0, "floor"),
        (2, Share(1), True, 1, "last"),
        (1, Share(500, is_part=True), True, 0, "last"),
    ],
)
def test_culls_end_at_the_floor_of_the_whole_fleet(
    fleet: int, min_healthy: Share, culls: int, last_word: str, *, never_last: bool
) -> None:
    it = fleet_of(fleet, Terms(min_healthy=min_healthy, never_last=never_last, brake=0))
    answers = [reason(it.claim(name)) for name in names(fleet)]
    assert answers == ["Granted"] * culls + [last_word] * (fleet - culls)


@pytest.mark.parametrize(("hours", "word"), [(0.9, "last"), (1.1, "Granted")])
def test_service_that_was_single_for_an_hour_may_lose_its_only_member(hours: float, word: str) -> None:
    it = fleet_of(1)
    it.lives_on(hours * 3600, "c00")
    assert reason(it.claim("c00")) == word


def test_several_who_were_there_within_the_hour_are_remembered() -> None:
    it = fleet_of(2)
    it.lives_on(3700, *names(2))
    it.beat("c01", Presence.GONE)
    it.lives_on(3400, "c00")
    assert reason(it.claim("c00")) == "last"
    it.lives_on(300, "c00")
    assert reason(it.claim("c00")) == "Granted"


@pytest.mark.parametrize(("index", "word"), [(0, "Granted"), (1, "share")])
def test_single_member_is_the_first_servers_to_cull(index: int, word: str) -> None:
    it = fleet_of(1, Terms(index=index, servers=2))
    it.lives_on(3700, "c00")
    assert reason(it.claim("c00")) == word


def test_servers_that_do_not_hear_of_each_others_culls_keep_the_floor_together() -> None:
    """Five of ten may be missing: two, two and one, however much each of them would like to give."""
    granted = []
    for index in range(3):
        it = fleet_of(10, Terms(index=index, servers=3, brake=0))
        granted.append([reason(it.claim(name)) for name in names(10)])
    assert [words.count("Granted") for words in granted] == [2, 2, 1]
    assert {word for words in granted for word in words} == {"Granted", "share"}


# -- holds ----------------------------------------------------------------------------------------------------


def test_hold_is_in_the_refusal_and_ends_by_itself() -> None:
    it = fleet_of(10)
    held = it.bucket.hold(*ADA, it.now_us)
    it.lives_on(59, *names(10))
    answer = it.claim("c00")
    assert isinstance(answer, Denied)
    assert answer.hold == held
    assert it.beat("c01").hold == held
    it.passes(1)
    assert reason(it.claim("c00")) == "Granted"


def test_hold_of_one_instance_leaves_the_others_alone() -> None:
    it = fleet_of(10)
    it.bucket.hold("c00", *ADA[1:], it.now_us)
    assert [reason(it.claim(name)) for name in ("c00", "c01")] == ["hold", "Granted"]
    assert not it.bucket.release("")
    assert it.bucket.release("c00")
    assert not it.bucket.release("c00")
    assert reason(it.claim("c00")) == "Granted"


def test_hold_of_the_service_is_named_before_that_of_the_instance_and_outlived_by_it() -> None:
    it = fleet_of(10)
    it.bucket.hold("c00", "bob", "mine", 120 * US_PER_S, it.now_us)
    it.bucket.hold(*ADA, it.now_us)
    authors = []
    for _ in range(2):
        answer = it.claim("c00")
        assert isinstance(answer, Denied)
        assert answer.hold is not None
        authors.append(answer.hold.author)
        it.lives_on(60, *names(10))
    assert authors == ["ada", "bob"]


def test_nobody_goes_down_by_a_replay_under_a_hold() -> None:
    it = fleet_of(10)
    it.claim("c00")
    it.bucket.hold(*ADA, it.now_us)
    assert reason(it.claim("c00")) == "hold"
    it.bucket.release("")
    assert it.claim("c00") == Granted(1, 10, replayed=True, alive=9)
