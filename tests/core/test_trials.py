"""What became of a cull: missing, replaced, on trial, judged; and the kinds that culls do not help."""

from __future__ import annotations

import pytest

from sidecar.core.trials import HOUR_US, Cull, Judged, Outcome, Trials

PROBATION_US = 60
WINDOW_US = 600


def cull(name: str, at_us: int = 100, occupied_us: int = 0, *, is_own: bool = True) -> Cull:
    return Cull(f"{name}/0", "0", "redis", at_us, occupied_us, is_own=is_own)


def missing(**culls: Cull) -> Trials:
    it = Trials()
    for instance, one in culls.items():
        it.culled(instance, one)
    return it


def on_trial() -> Trials:
    it = missing(a=cull("a"))
    it.arrived("a", "1", 200, is_newcomer=False)
    return it


def watched(it: Trials, now_us: int, *, wants: bool = False, starting: bool = False, life: str = "1") -> Judged | None:
    return it.watch("a", life, now_us, PROBATION_US, wants=wants, starting=starting)


def judged(outcome: Outcome, kind: str = "redis") -> Judged:
    return Judged(outcome, "a", "a/0", kind, 100, is_own=True)


# -- who replaces whom ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("instance", "is_newcomer", "missing_after"),
    [("a", False, {"b"}), ("a", True, {"b"}), ("x", True, {"b"}), ("x", False, {"a", "b"}), ("b", True, {"a"})],
    ids=["in place", "in place with a new sidecar", "a newcomer: for the longest missing", "no newcomer", "its own"],
)
def test_arrival_replaces_its_own_place_or_else_the_longest_missing(
    instance: str, missing_after: set[str], *, is_newcomer: bool
) -> None:
    it = missing(b=cull("b", at_us=150), a=cull("a", at_us=100))
    it.arrived(instance, "1", 200, is_newcomer=is_newcomer)
    assert it.missing.keys() == missing_after


@pytest.mark.parametrize(("now_us", "is_replaced"), [(299, False), (300, True)])
def test_newcomer_does_not_replace_one_that_may_still_be_up(now_us: int, *, is_replaced: bool) -> None:
    it = missing(a=cull("a", occupied_us=300))
    it.arrived("x", "0", now_us, is_newcomer=True)
    assert ("a" not in it.missing) is is_replaced


def test_place_is_occupied_while_its_sidecar_is_heard_of_and_until_it_says_goodbye() -> None:
    it = missing(a=cull("a", occupied_us=10**6), b=cull("b", occupied_us=10**6))
    it.is_down("a", Cull("a/0", "0", "redis", 110, 500, is_own=False))
    assert it.is_gone("b") is None
    assert [one.occupied_us for one in it.missing.values()] == [500, 0]


@pytest.mark.parametrize(("incarnation", "is_missing"), [("0", True), ("1", False)])
def test_container_whose_grant_is_on_its_way_counts_as_missing_though_it_serves(
    incarnation: str, *, is_missing: bool
) -> None:
    it = missing(a=cull("a", occupied_us=130))
    assert it.is_still_missing("a", incarnation, 500) is is_missing
    assert it.missing["a"].occupied_us == (500 if is_missing else 130)
    assert not it.is_still_missing("b", "0", 500)


# -- who is heard to be down ----------------------------------------------------------------------------------


def test_cull_by_another_server_is_missing_and_not_our_own() -> None:
    it = missing(a=cull("a"))
    it.is_down("b", Cull("b/0", "0", "redis", 110, 0, is_own=False))
    it.is_down("c", Cull("", "0", "redis", 110, 0, is_own=False))
    assert (set(it.missing), it.own) == ({"a", "b"}, 1)


def test_place_that_was_taken_stays_taken_while_its_container_says_that_it_is_down() -> None:
    it = missing(a=cull("a"))
    it.arrived("x", "0", 200, is_newcomer=True)
    for now_us in range(300, 3_000, 300):
        it.is_down("a", Cull("a/0", "0", "redis", now_us, 0, is_own=False))
        it.expire(now_us, WINDOW_US)
    assert not it.missing


def test_place_that_was_taken_and_serves_again_can_be_missing_again() -> None:
    it = missing(a=cull("a"))
    it.arrived("x", "0", 200, is_newcomer=True)
    it.arrived("a", "1", 210, is_newcomer=False)
    it.is_down("a", Cull("a/1", "1", "redis", 220, 0, is_own=False))
    assert it.missing.keys() == {"a"}


@pytest.mark.parametrize(
    ("down_us", "now_us", "left"),
    [(0, 700, {"a"}), (0, 701, set()), (650, 701, {"a"}), (650, 1_250, {"a"}), (650, 1_251, set())],
    ids=["a window", "longer", "heard to be down since", "for a window more", "and no longer"],
)
def test_missing_is_given_up_on_a_window_after_it_was_culled_or_heard_to_be_down(
    down_us: int, now_us: int, left: set[str]
) -> None:
    it = missing(a=cull("a"))
    if down_us:
        it.is_down("a", Cull("a/0", "0", "redis", down_us, 0, is_own=False))
    given_up = it.expire(now_us, WINDOW_US)
    assert it.missing.keys() == left
    assert given_up == [judged(Outcome.UNCLEAR)] * (1 - len(left))
    assert it.totals[Outcome.UNCLEAR] == 1 - len(left)
    assert it.own == len(left)


def test_given_up_are_told_in_the_order_of_their_culls_and_leases_are_not() -> None:
    it = missing(b=cull("b", at_us=120), a=cull("a", at_us=120), c=cull("c", at_us=100), d=cull("d", at_us=110))
    it.missing["d"].is_lease = True
    assert [one.instance for one in it.expire(10_000, WINDOW_US)] == ["c", "a", "b"]
    assert not it.missing
    assert it.totals[Outcome.UNCLEAR] == 3


# -- the trial ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("seen", "outcome"),
    [
        ([(200, "well"), (259, "well")], None),
        ([(200, "well"), (260, "well")], Outcome.HELPED),
        ([(200, "starting"), (250, "well"), (309, "well")], None),
        ([(200, "starting"), (250, "well"), (310, "well")], Outcome.HELPED),
        ([(200, "starting"), (900, "starting")], None),
        ([(200, "wants")], Outcome.UNHELPED),
        ([(200, "well"), (259, "wants")], Outcome.UNHELPED),
        ([(200, "starting"), (201, "wants")], Outcome.UNHELPED),
    ],
)
def test_replacement_that_stays_well_for_the_probation_shows_that_the_cull_helped(
    seen: list[tuple[int, str]], outcome: Outcome | None
) -> None:
    it = on_trial()
    *before, last = [
        watched(it, now_us, wants=presence == "wants", starting=presence == "starting") for now_us, presence in seen
    ]
    assert before == [None] * len(before)
    assert last == (judged(outcome) if outcome else None)
    assert ("a" in it.trials) is (outcome is None)


def test_replacement_that_is_another_one_or_leaves_tells_nothing() -> None:
    assert watched(on_trial(), 210, life="2") == judged(Outcome.UNCLEAR)
    assert on_trial().lost("a") == judged(Outcome.UNCLEAR)
    assert on_trial().is_gone("a") == judged(Outcome.UNCLEAR)
    assert on_trial().lost("b") is None


# -- useless kinds --------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("outcomes", "useless"),
    [
        ([Outcome.UNHELPED] * 2, ()),
        ([Outcome.UNHELPED] * 3, ("redis",)),
        ([Outcome.UNHELPED, Outcome.UNHELPED, Outcome.UNCLEAR, Outcome.UNHELPED], ("redis",)),
        ([Outcome.UNHELPED, Outcome.UNHELPED, Outcome.HELPED, Outcome.UNHELPED], ()),
    ],
    ids=["two", "three in a row", "unclear ones between", "one that helped between"],
)
def test_kind_is_useless_after_three_culls_in_a_row(outcomes: list[Outcome], useless: tuple[str, ...]) -> None:
    it = Trials()
    for outcome in outcomes:
        it.learn(judged(outcome), 1_000)
    assert it.useless(3, 1_000) == useless
    assert it.useless(0, 1_000) == ()
    assert sum(it.totals.values()) == len(outcomes)


@pytest.mark.parametrize(("age_us", "useless"), [(HOUR_US, ("disk", "redis")), (HOUR_US + 1, ())])
def test_useless_kinds_are_forgotten_after_an_hour_without_them(age_us: int, useless: tuple[str, ...]) -> None:
    it = Trials()
    for kind in ("redis", "disk"):
        it.learn(judged(Outcome.UNHELPED, kind), 1_000)
    assert it.useless(1, 1_000 + age_us) == useless


@pytest.mark.parametrize(("age_us", "count"), [(HOUR_US, 1), (HOUR_US + 1, 0)])
def test_hour_begins_anew_whenever_somebody_suffers_from_the_kind(age_us: int, count: int) -> None:
    it = Trials()
    it.learn(judged(Outcome.UNHELPED), 1_000)
    it.suffered("redis", 1_000 + age_us)
    it.suffered("disk", 1_000 + age_us)
    assert len(it.unhelped) == count
    assert it.useless(1, 1_000 + age_us + HOUR_US) == ("redis",) * count
