"""What becomes of a cull: who takes the place, how the replacement does, and what the fleet learns."""

from __future__ import annotations

from dataclasses import replace

import pytest

from harness.rule_fleet import START_US as NOW
from harness.rule_fleet import TERMS, RuleFleet, draft_of, fleet_of_size, names, word
from sidecar.core.claims import MANUAL, REVIVED, Beat, Granted, Presence
from sidecar.core.fleet import outcomes, replacements
from sidecar.core.fleet.records import Cull
from sidecar.core.fleet.view import View
from sidecar.core.types import US_PER_S, Entry

SUSPECT, WELL, DOWN, GONE, STARTING = (
    Presence.SUSPECT,
    Presence.WELL,
    Presence.DOWN,
    Presence.GONE,
    Presence.STARTING,
)
TEN = names(10)
REST = TEN[1:]
FREE = replace(TERMS, trial=False)
WINDOW_S = TERMS.window_us // US_PER_S


def culled(*instances: str, terms: RuleFleet | None = None) -> RuleFleet:
    """Ten, of which these are down, the first of them for longest."""
    it = terms or fleet_of_size(10, FREE)
    for instance in instances or ("c00",):
        it.claim_and_go_down(instance)
        it.advance(1)
    return it


def vacant(*instances: str) -> RuleFleet:
    """The same, and their sidecars have said goodbye."""
    it = culled(*instances)
    for instance in instances or ("c00",):
        it.beat(instance, GONE)
    return it


# -- missing, and who replaces whom ---------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("claim_id", "lease", "is_missing", "is_loss"),
    [("c00/0", "", True, True), ("", "h", True, False), ("", "", False, False)],
    ids=["token", "lease", "neither"],
)
def test_container_that_is_down_is_missing_if_it_names_a_token_or_a_lease_and_only_a_lost_token_is_a_data_loss(
    claim_id: str, lease: str, *, is_missing: bool, is_loss: bool
) -> None:
    draft = draft_of(View(NOW))
    found = outcomes.go_down(draft, Beat("c00", "0", DOWN, "redis", claim_id, lease=lease))
    assert (found, draft.missing, list(draft.trials)) == (is_loss, is_missing, ["redis"] * is_loss)
    assert [cull.is_lease for cull in draft.culls.values()] == [bool(lease)] * is_missing


@pytest.mark.parametrize(
    ("cull", "claim", "is_removed"),
    [
        pytest.param(Cull("x"), "x", True, id="its token"),
        pytest.param(Cull("x"), "y", False, id="another token"),
        pytest.param(Cull("x", is_lease=True), "x", True, id="its lease"),
        pytest.param(Cull("x", phase="watched"), "x", False, id="replaced already"),
    ],
)
def test_only_the_token_or_lease_that_is_in_use_is_given_back(cull: Cull, claim: str, *, is_removed: bool) -> None:
    draft = draft_of(View(NOW, culls={"c00": cull}))
    assert outcomes.give_back(draft, "c00", claim) is is_removed
    assert ("c00" in draft.culls) is not is_removed


def test_newcomers_take_the_places_that_are_vacant_longest() -> None:
    it = vacant("c03", "c01", "c02")
    for place, newcomer in (("c03", "n1"), ("c01", "n2"), ("c02", "n3")):
        it.replaced(newcomer, under=newcomer)
        assert (it.phase(place), it.cull(place).by) == ("watched", newcomer)
    assert it.replaced("n4", under="n4").down == 0
    replaced = [(entry.instance, entry.reason) for entry in it.entries if entry.what == "replaced"]
    assert replaced == [("c03", "n1"), ("c01", "n2"), ("c02", "n3")]


@pytest.mark.parametrize(("silent_s", "phase"), [(30, "watched"), (29, "out")])
def test_place_is_not_vacant_while_its_sidecar_is_there(silent_s: float, phase: str) -> None:
    it = fleet_of_size(10)
    it.claim_and_go_down("c00")
    it.advance(10)
    it.beat("c00", DOWN)
    it.advance(silent_s)
    it.beat_all(*REST)
    it.replaced("new", under="new")
    assert it.phase("c00") == phase


TRIED = replace(TERMS, min_healthy="0")


def two_killed(*, is_first_gone: bool) -> RuleFleet:
    """Ten, of which two are down for two causes; the sidecar of c01 was killed just now, that of c00 said goodbye."""
    it = fleet_of_size(10, TRIED)
    for instance, cause in (("c00", "cache"), ("c01", "redis")):
        it.claim_and_go_down(instance, cause)
        it.advance(1)
        it.beat(instance, DOWN, cause)
    if is_first_gone:
        it.beat("c00", GONE)
    return it


def test_newcomers_that_come_within_an_expiry_of_a_killed_sidecar_take_both_places() -> None:
    it = two_killed(is_first_gone=True)
    it.advance(5)
    it.replaced("new of c01", under="new of c01")
    assert (it.phase("c00"), it.phase("c01")) == ("watched", "out"), "only c00 is known to be vacant"
    it.advance(5)
    it.replaced("new of c00", under="new of c00")
    it.advance_beating(21, *TEN[2:], "new of c01", "new of c00")
    assert (it.phase("c01"), it.cull("c01").by, it.fleet().down) == ("watched", "new of c00", 0)
    it.advance_beating(TERMS.probation_us // US_PER_S + 10, *TEN[2:], "new of c01", "new of c00")
    assert it.outcomes() == (2, 0, 0)
    assert isinstance(it.claim("c02", "redis"), Granted)


def test_newcomer_makes_way_for_a_container_that_is_back_under_its_own_name() -> None:
    it = two_killed(is_first_gone=True)
    it.advance(5)
    it.replaced("new of c01", under="new of c01")
    it.advance(5)
    it.replaced("c00")
    assert (it.cull("c00").by, it.cull("c01").by) == ("c00", "new of c01")
    assert {it.phase("c00"), it.phase("c01")} == {"watched"}


def test_newcomer_does_not_make_way_while_no_other_place_can_be_vacant() -> None:
    it = two_killed(is_first_gone=True)
    it.replaced("new", under="new")
    it.advance(1)
    it.beat("c01", DOWN)
    it.replaced("c00")
    assert (it.cull("c00").by, it.phase("c01")) == ("new", "out")


@pytest.mark.parametrize("is_lease", [False, True], ids=["a cull", "a retirement"])
def test_container_that_a_person_revived_was_not_replaced(*, is_lease: bool) -> None:
    it = fleet_of_size(10, TRIED)
    assert isinstance(it.retire("c00") if is_lease else it.claim("c00"), Granted)
    it.beat("c00", DOWN, is_lease=is_lease)
    it.advance(1)
    it.beat("c00", life=f"{REVIVED}-00ff")
    assert it.fleet().down == 0
    assert [(entry.what, entry.reason) for entry in it.entries] == ([] if is_lease else [("unclear", "revived")])
    it.advance(TERMS.probation_us / US_PER_S)
    it.beat("c00", life=f"{REVIVED}-00ff")
    assert it.outcomes() == (0, 0, int(not is_lease)), "it earns no trust for its cause"


@pytest.mark.parametrize("how", ["goodbye", "silent", "known row", "not its first", "holds a slot"])
def test_those_that_the_fleet_knows_replace_nobody(how: str) -> None:
    it = vacant("c00")
    if how == "goodbye":
        it.beat("c01", GONE)
    elif how == "silent":
        it.advance_beating(40, *TEN[2:])
    elif how == "known row":
        it.claim_and_go_down("c01")
        it.beat("c01", GONE)
        it.replaced("n1", under="n1")
        it.advance_beating(60, "n1", *TEN[2:])
        it.claim_and_go_down("c02")
        it.beat("c02", GONE)
    elif how == "holds a slot":
        it.retire("c01")
    it.beat("c01", first=how != "not its first")
    assert it.phase("c02" if how == "known row" else "c00") == "out"


# -- how the replacement does -----------------------------------------------------------------------------------


@pytest.mark.parametrize("under", ["", "new"])
@pytest.mark.parametrize(
    ("seen", "outcomes"),
    [
        ([(0, WELL), (59, WELL)], (0, 0, 0)),
        ([(0, WELL), (60, WELL)], (1, 0, 0)),
        ([(0, STARTING), (50, WELL), (59, WELL)], (0, 0, 0)),
        ([(0, STARTING), (50, WELL), (60, WELL)], (1, 0, 0)),
        ([(0, STARTING), (500, STARTING)], (0, 0, 0)),
        ([(0, SUSPECT)], (0, 1, 0)),
        ([(0, WELL), (59, SUSPECT)], (0, 1, 0)),
        ([(0, STARTING), (1, SUSPECT)], (0, 1, 0)),
        ([(0, WELL), (60, WELL), (1, SUSPECT)], (1, 0, 0)),
        ([(0, WELL), (10, GONE)], (0, 0, 1)),
        ([(0, WELL), (0, DOWN)], (0, 1, 0)),
    ],
)
def test_replacement_shows_whether_the_cull_helped(
    under: str, seen: list[tuple[float, Presence]], outcomes: tuple[int, int, int]
) -> None:
    it = vacant("c00")
    name = under or "c00"
    for number, (after_s, presence) in enumerate(seen):
        it.advance(after_s)
        if number:
            it.beat(name, presence)
        else:
            it.replaced("c00", presence, under=under)
    assert it.outcomes() == outcomes


def test_replacement_that_falls_silent_or_becomes_another_life_tells_nothing() -> None:
    for is_silent in (True, False):
        it = vacant("c00")
        it.replaced("c00")
        if is_silent:
            it.advance_beating(31, *REST)
        else:
            it.replaced("c00")
        assert it.outcomes() == (0, 0, 1), is_silent


@pytest.mark.parametrize(
    ("before", "after", "is_first", "is_same"),
    [
        pytest.param("unnamed-1", "boot-1", False, True, id="named"),
        pytest.param("after-1", "boot-1", False, True, id="named after an exit"),
        pytest.param("unnamed-1", "boot-1", True, False, id="another sidecar"),
        pytest.param("unnamed-1", "after-1", False, False, id="its app has exited"),
        pytest.param("boot-1", "boot-2", False, False, id="another life"),
    ],
)
def test_replacement_whose_app_names_it_after_the_first_beat_is_still_the_same(
    before: str, after: str, *, is_first: bool, is_same: bool
) -> None:
    watched = Cull("x", cause="redis", at_us=NOW, phase="watched", by="c00", by_incarnation=before)
    draft = draft_of(View(NOW, culls={"c00": watched}))
    replacements.arrive(draft, Beat("c00", after, WELL, first=is_first))
    assert (draft.culls["c00"].phase == "watched") is is_same
    draft = draft_of(View(NOW, culls={"c00": watched}))
    replacements.arrive(draft, Beat("c00", after, SUSPECT, "redis", first=is_first))
    assert (draft.trials["redis"].failures == 1) is is_same, "it did not help, or tells nothing"


def test_replacement_that_is_culled_itself_shows_that_the_cull_before_did_not_help() -> None:
    it = vacant("c00")
    it.replaced("c00")
    assert word(it.claim("c00")) == "granted"
    assert it.outcomes() == (0, 1, 0)
    assert it.fleet().down == 1
    it = vacant("c00")
    it.replaced("new", under="new")
    assert word(it.claim("new", MANUAL)) == "granted"
    assert it.outcomes() == (0, 0, 1)  # what a person orders tells nothing


@pytest.mark.parametrize(("after_s", "outcomes"), [(WINDOW_S - 2, (0, 0, 0)), (WINDOW_S + 1, (0, 0, 1))])
def test_container_that_nobody_replaced_within_a_window_tells_nothing(
    after_s: float, outcomes: tuple[int, int, int]
) -> None:
    it = vacant("c00")
    it.advance_beating(after_s, *REST)
    assert it.outcomes() == outcomes
    assert it.fleet().down == 1 - outcomes[2]
    assert [entry.reason for entry in it.entries] == ["not_replaced"] * outcomes[2]


def test_container_that_is_still_down_is_waited_for() -> None:
    it = culled("c00")
    for _ in range(10):
        it.advance_beating(WINDOW_S / 2, *REST)
        assert it.beat("c00", DOWN).down == 1
    assert it.outcomes() == (0, 0, 0)
    it.advance_beating(WINDOW_S + 10, *REST)
    assert (it.outcomes(), it.fleet().down) == ((0, 0, 1), 0)


def test_outcome_is_told_with_its_cause_and_the_time_since_the_cull() -> None:
    it = culled("c00")
    it.advance(39)
    it.replaced("c00")
    it.advance(60)
    it.beat("c00")
    assert it.entries == [
        Entry("replaced", 0.0, "c00", "redis", "", seconds=40.0),
        Entry("helped", 0.0, "c00", "redis", "", seconds=100.0),
    ]
    assert it.fleet().culls_by == (("helped", "redis", 1),)


# -- the control group --------------------------------------------------------------------------------------------


def refused_then(recovered: int, of: int, later: int = 0) -> RuleFleet:
    """One is culled, and of so many refused suspects some recover while it is replaced; ``later`` are refused then."""
    it = fleet_of_size(20, TERMS)
    others, well = names(20)[1 : of + 1], names(20)[of + 1 : 17]
    it.beat_all("c00", *others, presence=SUSPECT)
    it.claim("c00")
    for name in others:
        assert word(it.claim(name)) == "trial"
    it.beat("c00", DOWN)
    for second in range(0, 101, 20):
        it.beat_all(*others[recovered if second > 40 else 0 :], presence=SUSPECT)
        it.beat_all(*others[: recovered if second > 40 else 0], *well)
        for number in range(later if second else 0):
            name = f"c{19 - number}"
            it.beat(name, SUSPECT)
            it.claim(name)
        if second == 40:
            it.replaced("c00")
        elif second > 40:
            it.beat("c00")
        it.advance(20)
    return it


@pytest.mark.parametrize(
    ("recovered", "of", "later", "helped"),
    [(0, 0, 0, True), (0, 4, 0, True), (1, 4, 0, True), (2, 4, 0, False), (4, 4, 0, False), (2, 4, 1, True)],
)
def test_cull_helps_only_if_the_refused_did_not_recover_as_often(
    recovered: int, of: int, later: int, *, helped: bool
) -> None:
    it = refused_then(recovered, of, later)
    assert it.outcomes() == ((1, 0, 0) if helped else (0, 0, 1))
    (trial,) = it.fleet().trials
    earned = 2 if of else 1  # the episode of a lone suspect is over before its outcome is known
    assert (trial.limit, trial.failures, trial.paused_s) == ((earned, 0, 0) if helped else (1, 1, WINDOW_S - 20))
    assert it.entries[-1].reason == ("" if helped else "control")


@pytest.mark.parametrize(
    ("refused", "recovered", "ended", "before", "outcome"),
    [
        pytest.param(5, 3, 1, (2, 1), "unclear", id="one of two recovered since"),
        pytest.param(5, 3, 1, (2, 0), "helped", id="one of three"),
        pytest.param(4, 2, 0, (2, 0), "helped", id="all recovered before"),
    ],
)
def test_control_group_is_of_those_that_could_still_recover_at_the_cull(
    refused: int, recovered: int, ended: int, before: tuple[int, int], outcome: str
) -> None:
    watched = Cull(
        *("x", "0", "redis", NOW - 99, "watched"),
        by="c00",
        by_incarnation="1",
        well_us=NOW - TERMS.probation_us,
        recovered=before[0],
        ended=before[1],
    )
    control = {"refused|redis": refused, "recovered|redis": recovered, "ended|redis": ended}
    draft = draft_of(View(NOW, culls={"c00": watched}, control=control))
    replacements.arrive(draft, Beat("c00", "1", WELL))
    assert draft.outcomes == {f"{outcome}|redis": 1}


# -- tokens that come back ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("refund_max", [-1, 0])
@pytest.mark.parametrize("presence", [WELL, SUSPECT])
def test_token_comes_back_only_where_refunds_are_on_and_the_cull_helped(refund_max: int, presence: Presence) -> None:
    it = culled("c00", terms=fleet_of_size(10, replace(TERMS, refund_max=refund_max)))
    it.replaced("c00", presence)
    it.advance(60)
    it.beat("c00", presence)
    assert set(it.kept.refunded) == ({"c00/0"} if refund_max == 0 and presence is WELL else set())


def test_container_that_recovers_gives_its_token_back_and_passes_the_gates_again_for_the_same_token() -> None:
    it = fleet_of_size(10)
    assert it.claim("c00") == Granted(1, 10, alive=10)
    assert word(it.claim("c01")) == "trial"
    assert [it.give_back("c00"), it.give_back("c00")] == [True, False]
    assert (it.fleet().down, it.phase("c00")) == (0, "")
    assert word(it.claim("c01")) == "granted"
    assert word(it.claim("c00")) == "trial"
    assert it.give_back("c01")
    assert it.claim("c00") == Granted(2, 10, alive=10)
    assert len(it.kept.grants) == 2
    assert it.claim("c00") == Granted(2, 10, replayed=True, alive=9)


# -- from the lease to the replacement --------------------------------------------------------------------------


def retired(timeout_s: float = 600) -> RuleFleet:
    it = fleet_of_size(10)
    assert it.retire("c00", timeout_s=timeout_s) == Granted(1, 1, alive=10, left_s=timeout_s)
    it.beat("c00", DOWN, is_lease=True)
    return it


def test_lease_that_is_asked_for_again_is_the_same_and_has_less_time_left() -> None:
    it = fleet_of_size(10)
    it.retire("c00")
    it.advance_beating(100, *TEN)
    assert it.retire("c00") == Granted(1, 1, replayed=True, alive=9, left_s=500)
    assert word(it.retire("c01")) == "slots"


def test_container_that_retires_is_missing_until_it_is_replaced_and_its_slot_is_free_when_that_is_well() -> None:
    it = retired()
    assert (it.fleet().down, it.fleet().retiring) == (1, 1)
    it.advance(40)
    it.beat_all(*REST)
    fleet = it.replaced("newcomer", STARTING, under="newcomer")
    assert (fleet.down, fleet.retiring) == (0, 1)
    assert it.beat("newcomer").retiring == 0
    assert it.outcomes() == (0, 0, 0)
    assert [entry.what for entry in it.entries] == ["replaced"]


def test_slot_is_free_after_its_time_whatever_became_of_the_container() -> None:
    it = retired(timeout_s=120)
    it.advance_beating(120, *REST)
    assert (it.fleet().retiring, it.fleet().down) == (0, 1)


def test_lease_that_is_not_used_is_given_back_by_its_holder_alone() -> None:
    it = fleet_of_size(10)
    it.retire("c00")
    assert [it.give_back("c01", is_lease=True), it.give_back("c00")] == [False, False]
    assert [it.give_back("c00", is_lease=True), it.give_back("c00", is_lease=True)] == [True, False]
    assert (it.fleet().down, it.fleet().retiring) == (0, 0)
    assert word(it.retire("c01")) == "granted"
