"""The fleet's bucket over time: canaries, trials, earned tokens, lost memory, drifting policies, and a look at it."""

from __future__ import annotations

from copy import deepcopy
from typing import Final

import pytest

from harness.fleet_bucket import Played, fleet_of, names
from sidecar.core.birth import Mark
from sidecar.core.fleet import FleetBucket
from sidecar.core.terms import Share, Terms
from sidecar.core.words import US_PER_S, Answer, Brake, Denied, Granted, Member, Presence

TEN: Final = names(10)
WANTS: Final = Presence.WANTS
DOWN: Final = Presence.DOWN


def reason(answer: Answer) -> str:
    return answer.reason if isinstance(answer, Denied) else type(answer).__name__


def outage(terms: Terms | None = None) -> Played:
    """Ten who all want, and the first of them was culled as the canary."""
    it = fleet_of(10, terms)
    it.all_beat(*TEN, presence=WANTS)
    assert it.claim("c00") == Granted(1, 10, canary=True, alive=10, wanting=10)
    it.beat("c00", DOWN)
    return it


# -- the canary -----------------------------------------------------------------------------------------------


def test_outage_of_all_costs_one_canary_a_window() -> None:
    it, culled = outage(), {"c00"}
    for _ in range(180):
        it.lives_on(10, *(name for name in TEN if name not in culled), presence=WANTS)
        culled |= {name for name in TEN if name not in culled and isinstance(it.claim(name), Granted)}
    assert len(culled) == 1 + 1800 // 601


def test_canary_that_helps_opens_the_brake_and_the_budget_alone_limits() -> None:
    it = outage()
    it.replaced_in_place("c00")
    for _ in range(6):
        assert it.beat("c00").brake is Brake.ON
        assert reason(it.claim("c01")) == "brake"
        it.lives_on(10, *TEN[1:], presence=WANTS)
    assert it.beat("c00").brake is Brake.OPEN
    assert [reason(it.claim(name)) for name in TEN[1:]] == ["Granted"] * 5 + ["floor"] * 4


@pytest.mark.parametrize("as_newcomer", [False, True])
def test_canary_that_does_not_help_closes_the_brake_until_a_person_releases_it(*, as_newcomer: bool) -> None:
    it = outage()
    if as_newcomer:
        it.beat("c00", Presence.GONE)
        it.beat("newcomer", first=True)
        fleet = it.beat("newcomer", WANTS)
    else:
        fleet = it.replaced_in_place("c00", WANTS)
    assert (fleet.brake, fleet.unhelped, fleet.useless) == (Brake.CLOSED, 1, ())
    it.lives_on(700, *TEN[1:], presence=WANTS)
    assert reason(it.claim("c01")) == "brake"
    it.bucket.release("")
    answer = it.claim("c01")
    assert isinstance(answer, Granted)
    assert answer.canary


def test_canary_that_does_not_help_tells_of_the_incident_and_not_of_the_kind() -> None:
    it = outage(Terms(useless_after=1))
    assert it.replaced_in_place("c00", WANTS).brake is Brake.CLOSED
    for _ in range(8):
        it.lives_on(10, "c00", *TEN[2:])
        fleet = it.beat("c01", WANTS)
    assert (fleet.brake, fleet.unhelped, fleet.useless) == (Brake.OFF, 1, ())
    assert reason(it.claim("c01")) == "Granted"


def test_second_server_sends_no_canary() -> None:
    it = fleet_of(10, Terms(index=1, servers=2))
    it.all_beat(*TEN, presence=WANTS)
    assert reason(it.claim("c00")) == "brake"


def test_same_cause_is_in_the_refusal() -> None:
    it = outage()
    answer = it.claim("c01")
    assert isinstance(answer, Denied)
    assert (answer.cause, answer.alive, answer.wanting) == ("redis", 9, 9)


# -- who is missing -------------------------------------------------------------------------------------------


def test_container_counts_as_missing_from_its_grant_on_whatever_it_says() -> None:
    it = fleet_of(10)
    it.claim("c00")
    assert (it.beat("c01").alive, it.beat("c01").down) == (9, 1)
    assert (it.beat("c00").alive, it.beat("c00").down) == (9, 1)
    it.replaced_in_place("c00", Presence.STARTING)
    assert (it.beat("c01").alive, it.beat("c01").down) == (10, 0)


@pytest.mark.parametrize("with_goodbye", [True, False])
def test_sidecar_that_comes_back_replaces_nobody_else(*, with_goodbye: bool) -> None:
    """Or a rolling upgrade of the sidecars would lower the floor by everyone who is still missing."""
    it = fleet_of(10)
    it.claim("c00")
    it.beat("c00", Presence.GONE)
    it.beat("c01", Presence.GONE) if with_goodbye else it.lives_on(40, *TEN[2:])
    assert it.beat("c01", first=True).down == 1
    assert it.beat("newcomer", first=True).down == 0
    assert it.beat("c00", DOWN).down == 0


def test_container_that_comes_back_to_a_place_that_was_taken_replaces_nobody_else() -> None:
    it = fleet_of(10)
    it.claim("c00")
    it.beat("c00", Presence.GONE)
    it.beat("newcomer", first=True)
    it.claim("c01")
    it.beat("c01", DOWN)
    it.lives["c00"] = 1
    assert it.beat("c00", first=True).down == 1


def test_member_that_this_bucket_only_forgot_is_no_newcomer() -> None:
    it = fleet_of(10)
    it.claim("c00")
    it.beat("c00", DOWN)
    assert it.beat("unheard of", first=False).down == 1


def test_fleet_that_falls_silent_is_waited_for() -> None:
    """Redis was away, and everybody suffers for that: the first to come back do not make a fleet of their own."""
    it = fleet_of(10)
    it.passes(120)
    assert [reason(it.claim(name)) for name in TEN] == ["newborn"] * 10
    it.lives_on(15, *TEN, presence=WANTS)
    assert [reason(it.claim(name)) for name in TEN] == ["Granted"] + ["brake"] * 9


@pytest.mark.parametrize(("silent", "word"), [(4, "Granted"), (5, "newborn")])
def test_half_of_the_fleet_falling_silent_at_once_is_the_servers_doing(silent: int, word: str) -> None:
    it = fleet_of(10, Terms(min_healthy=Share(1)))
    it.lives_on(31, *TEN[silent:])
    assert it.beat("c09").alive == 10 - silent
    assert reason(it.claim("c09")) == word
    it.lives_on(15, "c09")
    assert reason(it.claim("c09")) == "Granted"


# -- what culls are good for ----------------------------------------------------------------------------------


def cull_in_vain(it: Played, name: str, others: list[str]) -> str:
    word = reason(it.claim(name))
    if word == "Granted":
        it.beat(name, DOWN)
        it.replaced_in_place(name, WANTS)
        it.replaced_in_place(name)
    it.lives_on(20, *others)
    return word


def test_kind_that_three_culls_did_not_help_no_longer_culls() -> None:
    it = fleet_of(10)
    assert [cull_in_vain(it, name, TEN) for name in TEN[:4]] == ["Granted"] * 3 + ["useless"]
    assert it.beat("c05").useless == ("redis",)
    assert reason(it.claim("c05", "disk")) == "Granted"
    it.bucket.release("")
    assert reason(it.claim("c04")) == "Granted"


@pytest.mark.parametrize(("earn_max", "most"), [(-1, 2), (5, 5), (0, 6)])
def test_token_of_a_cull_that_helped_comes_back_up_to_a_limit(earn_max: int, most: int) -> None:
    it, granted = fleet_of(10, Terms(capacity=Share(2), earn_max=earn_max, window_us=3600 * US_PER_S)), []
    for name in TEN[:8]:
        granted.append(reason(it.claim(name)))
        it.beat(name, DOWN)
        it.replaced_in_place(name)
        it.lives_on(70, *TEN)
    assert granted == ["Granted"] * most + ["window" if earn_max < 0 else "earn_max"] * (8 - most)


def test_earned_tokens_count_again_as_soon_as_somebody_does_not_want_them() -> None:
    it = fleet_of(10, Terms(capacity=Share(2), earn_max=0))
    for name in TEN[:2]:
        it.claim(name)
        it.beat(name, DOWN)
        it.replaced_in_place(name)
        it.lives_on(70, *TEN)
    assert it.bucket.grants.counted() == []
    it.beat("c09", earn_max=-1)
    assert len(it.bucket.grants.counted()) == 2
    assert reason(it.claim("c05")) == "window"


def test_token_of_a_cull_that_did_not_help_does_not_come_back() -> None:
    it = fleet_of(10, Terms(capacity=Share(1), earn_max=0))
    it.claim("c00")
    it.beat("c00", DOWN)
    assert it.replaced_in_place("c00", WANTS).unhelped == 1
    it.lives_on(70, *TEN)
    assert reason(it.claim("c01")) == "window"


@pytest.mark.parametrize("with_goodbye", [True, False])
def test_replacement_that_leaves_during_its_probation_tells_nothing(*, with_goodbye: bool) -> None:
    it = fleet_of(10)
    it.claim("c00")
    it.beat("c00", DOWN)
    it.replaced_in_place("c00")
    it.beat("c00", Presence.GONE) if with_goodbye else it.lives_on(31, *TEN[1:])
    fleet = it.beat("c01")
    assert (fleet.helped, fleet.unhelped, fleet.unclear) == (0, 0, 1)


def test_grant_that_is_first_used_late_counts_from_then_on() -> None:
    it = fleet_of(10, Terms(capacity=Share(2)))
    it.claim("c00")
    it.lives_on(600, *TEN)
    assert it.claim("c00") == Granted(1, 2, replayed=True, alive=9)
    it.lives_on(10, *TEN[1:])
    assert [reason(it.claim(name)) for name in TEN[1:3]] == ["Granted", "window"]
    it.lives_on(580, *TEN[2:])
    assert it.beat("c02").down == 2


# -- lost memory ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("lost_is_empty", "word"), [(True, "lost_memory"), (False, "Granted")])
def test_after_a_flush_nobody_is_culled_for_a_window_unless_that_is_wanted(word: str, *, lost_is_empty: bool) -> None:
    it = fleet_of(10, Terms(lost_is_empty=lost_is_empty))
    it.bucket = FleetBucket()
    it.all_beat(*TEN)
    it.lives_on(600, *TEN)
    assert reason(it.claim("c00")) == word
    it.passes(0.000_001)
    assert reason(it.claim("c01")) == "Granted"


def test_flush_is_noticed_before_a_newcomer_gets_what_the_old_ones_had() -> None:
    it = fleet_of(10)
    it.bucket, old, it.known = FleetBucket(), it.known, Mark()
    it.beat("stranger")
    it.passes(14.999_999)
    assert reason(it.claim("stranger")) == "newborn"
    it.known = old
    it.all_beat(*TEN)
    it.passes(1)
    assert reason(it.claim("stranger")) == "lost_memory"


@pytest.mark.parametrize(("witness_first", "word"), [(True, "lost_memory"), (False, "Granted")])
def test_replica_that_lags_is_noticed_by_who_knows_of_more_grants_if_they_speak_before_the_next_claim(
    word: str, *, witness_first: bool
) -> None:
    """The birth is the same, so nothing but the number of grants tells; a claim that comes first hides it."""
    it = fleet_of(10, Terms(capacity=Share(1)))
    replica, before = deepcopy(it.bucket), it.known
    it.claim("c00")
    it.bucket, witness = replica, it.known
    if witness_first:
        it.beat("c00", DOWN)
    it.known = before
    assert reason(it.claim("c01")) == word
    it.known = witness
    assert it.beat("c00", DOWN).losses == int(witness_first)


# -- policies -------------------------------------------------------------------------------------------------


def test_strictest_policy_rules_until_it_is_not_heard_of_any_more() -> None:
    it = fleet_of(10)
    assert it.beat("c09", capacity=Share(1)).policies == 2
    assert [reason(it.claim(name)) for name in TEN[:2]] == ["Granted", "window"]
    it.lives_on(31, *TEN[1:])
    assert it.beat("c01").policies == 1
    assert reason(it.claim("c01")) == "Granted"


# -- a look ---------------------------------------------------------------------------------------------------


def contents(bucket: FleetBucket) -> dict[str, object]:
    heard = bucket._hearing
    rooms = {name: value for name, value in vars(bucket).items() if value not in (bucket._gates, heard)}
    kept = {name: vars(value) if hasattr(value, "__dict__") else value for name, value in rooms.items()}
    return {**kept, "terms": heard.terms, "several_us": heard.several_us}


def test_roll_shows_the_fleet_and_changes_nothing() -> None:
    it = fleet_of(4)
    it.claim("c00")
    it.beat("c02", WANTS, "disk")
    hold = it.bucket.hold("c03", "ada", "look at it", 200 * US_PER_S, it.now_us)
    it.passes(100)
    before = deepcopy(it.bucket)
    roll = it.bucket.roll(it.terms, it.now_us, 3)
    assert contents(it.bucket) == contents(before)
    assert roll.members == (
        Member("c00", Presence.DOWN, "redis", 100.0),
        Member("c01", Presence.WELL, "", 100.0),
        Member("c02", Presence.WANTS, "disk", 100.0),
    )
    assert (roll.used, roll.holds, roll.policies) == (1, (hold,), (str(it.terms),))
    assert (roll.fleet.alive, roll.fleet.wanting, roll.fleet.down) == (3, 1, 1)


@pytest.mark.parametrize(("after_s", "used"), [(600, 1), (600.000_001, 0)])
def test_roll_counts_the_tokens_of_the_window_that_is_asked_by(after_s: float, used: int) -> None:
    it = fleet_of(4)
    it.claim("c00")
    it.passes(after_s)
    assert it.bucket.roll(it.terms, it.now_us, 9).used == used
