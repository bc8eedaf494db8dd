"""The gates one by one: which claim or retirement each refuses, and for how long. Their order is in ``test_decide``."""

from __future__ import annotations

from dataclasses import replace

import pytest

from harness.rule_fleet import START_US, TERMS, draft_of, fleet_of_size, names, word
from sidecar.core.claims import MANUAL, Claim, LeaseRequest, Presence
from sidecar.core.fleet import gates, grant_window
from sidecar.core.fleet.draft import HOUR_US
from sidecar.core.fleet.fleet_settings import OFF, FleetSettings
from sidecar.core.fleet.gates import GateRefusal
from sidecar.core.fleet.grant_window import Bounds
from sidecar.core.fleet.records import Cull, Epoch, FleetState, HoldRow, Slot, Trial
from sidecar.core.fleet.view import MemberKey, View
from sidecar.core.types import US_PER_S, Hold

S = US_PER_S
NOW = START_US
WINDOW_US = TERMS.window_us
BEAT_US = TERMS.beat_us
PAUSED = Trial(1, 1, NOW - S, WINDOW_US, NOW - S)


# -- hold -------------------------------------------------------------------------------------------------------------

SERVICE = HoldRow("ann", "deploy", 100, 100)
ONE = HoldRow("bob", "look", 50, 250)


@pytest.mark.parametrize(
    ("instance", "now_us", "shown", "wait_us"),
    [
        pytest.param("one", 150, Hold("ann", "deploy", 0.0002), 50, id="the service's first"),
        pytest.param("two", 150, Hold("ann", "deploy", 0.0002), 50, id="of everybody"),
        pytest.param("two", 199, Hold("ann", "deploy", 0.0002), 1, id="to the last"),
        pytest.param("two", 200, None, 0, id="no longer"),
        pytest.param("one", 200, Hold("bob", "look", 0.0003, "one"), 100, id="its own outlives it"),
        pytest.param("one", 300, None, 0, id="both are over"),
    ],
)
def test_hold_refuses_until_it_is_over(instance: str, now_us: int, shown: Hold | None, wait_us: int) -> None:
    draft = draft_of(View(now_us, holds={"": SERVICE, "one": ONE}))
    assert gates.by_hold(draft, instance) == (GateRefusal("hold", wait_us, shown) if shown else None)


# -- replay -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("cull", "age_s", "is_replay"),
    [
        pytest.param(Cull("id"), 600, True, id="granted"),
        pytest.param(Cull("id"), 600.000001, False, id="before this window"),
        pytest.param(Cull("other"), 0, False, id="another claim since"),
        pytest.param(Cull("id", phase="watched"), 0, False, id="replaced"),
        pytest.param(None, 0, False, id="given back"),
    ],
)
def test_claim_and_lease_are_replayed_until_the_container_is_replaced(
    cull: Cull | None, age_s: float, *, is_replay: bool
) -> None:
    culls = {"me": cull} if cull else {}
    slot = Slot("id", "0", NOW, 200)
    draft = draft_of(View(NOW, culls=culls, leases={"me": slot}, grants={"id": NOW - round(age_s * S)}))
    assert gates.is_replay(draft, Claim("id", "me")) is is_replay
    is_unused = cull is not None and (cull.claim, cull.phase) == ("id", "out")
    assert gates.replayed_slot(draft, LeaseRequest("id", "me", "0", "1", 60.0)) == (slot if is_unused else None)


# -- trial ------------------------------------------------------------------------------------------------------------

WAITS = GateRefusal("trial", BEAT_US)
IS_PAUSED = GateRefusal("paused", WINDOW_US - S)


@pytest.mark.parametrize(
    ("trials", "out", "refusal"),
    [
        pytest.param({}, "", None, id="nothing is known"),
        pytest.param({}, "redis", WAITS, id="one is out"),
        pytest.param({"redis": Trial(4)}, "redis redis redis", None, id="fewer than the limit are out"),
        pytest.param({"redis": Trial(2)}, "redis redis", WAITS, id="as many as the limit"),
        pytest.param({"redis": PAUSED}, "", IS_PAUSED, id="paused"),
        pytest.param({"redis": PAUSED}, "redis", IS_PAUSED, id="paused before anything"),
        pytest.param({"redis": replace(PAUSED, paused_us=NOW - WINDOW_US)}, "", None, id="the pause is over"),
        pytest.param({}, "disk", None, id="one other cause is tried"),
        pytest.param({}, "disk net", GateRefusal("causes", BEAT_US), id="two others are"),
        pytest.param({"redis": Trial(2)}, "disk net", None, id="two others are, and this one is proven"),
        pytest.param({"disk": Trial(2)}, "disk net", None, id="one of the others is proven"),
        pytest.param({}, f"disk {MANUAL}", None, id="orders of people are no trials"),
        pytest.param({}, "disk disk disk", None, id="one cause that has several out"),
    ],
)
def test_cull_waits_for_the_outcomes_of_its_cause(
    trials: dict[str, Trial], out: str, refusal: GateRefusal | None
) -> None:
    culls = {f"n{number}": Cull("id", "0", cause, NOW - S) for number, cause in enumerate(out.split())}
    culls["lease"] = Cull("lease", "0", "redis", NOW - S, is_lease=True)
    culls["over"] = Cull("over", "0", "redis", NOW - S, "over")
    view = View(NOW, FleetState(trials=trials), culls=culls)
    assert gates.by_trial(draft_of(view), "redis") == refusal
    assert gates.by_trial(draft_of(view), MANUAL) is None
    assert gates.by_trial(draft_of(view, replace(TERMS, trial=False)), "redis") is None


# -- floor ------------------------------------------------------------------------------------------------------------

FLOOR = GateRefusal("floor", BEAT_US)
LAST = GateRefusal("last", BEAT_US)
OWN = {"me": Cull("i", "1", "x", NOW)}


def out(count: int) -> dict[str, Cull]:
    return {f"x{number}": Cull("id", "0", "redis", NOW - 1) for number in range(count)}


def serving(alive: int, missing: int, *, seen_us: int = NOW, life: str = "", own: bool = False) -> View:
    culls = out(missing) | (OWN if own else {})
    return View(NOW, alive=alive, seen_us=seen_us, member=MemberKey(life), culls=culls)


@pytest.mark.parametrize(
    ("view", "refusal"),
    [
        pytest.param(serving(10, 0), None, id="all serve"),
        pytest.param(serving(6, 4), None, id="one more may go"),
        pytest.param(serving(5, 5), FLOOR, id="half is missing"),
        pytest.param(serving(6, 5, seen_us=0), None, id="of one that does not serve nothing is lost"),
        pytest.param(serving(5, 5, seen_us=0), FLOOR, id="though it is one of the fleet"),
        pytest.param(serving(6, 5, seen_us=NOW - TERMS.expiry_us - 1), None, id="nor of one that is silent"),
        pytest.param(serving(5, 4, life="1", own=True), None, id="it was granted its end before"),
        pytest.param(serving(5, 4, life="2", own=True), FLOOR, id="its former life was"),
        pytest.param(serving(1, 9), LAST, id="the last of ten"),
        pytest.param(serving(0, 2, seen_us=0), LAST, id="nobody serves"),
        pytest.param(serving(6, 4)._replace(beating={"x0": "0"}), FLOOR, id="one that was granted its end serves"),
        pytest.param(serving(6, 4)._replace(beating={"x0": "1"}), None, id="its successor serves"),
    ],
)
def test_enough_have_to_be_left(view: View, refusal: GateRefusal | None) -> None:
    assert gates.by_floor(draft_of(view), "me") == refusal


@pytest.mark.parametrize(
    ("several_us", "born_us", "refusal"),
    [(0, NOW - HOUR_US, None), (0, NOW - HOUR_US + 1, LAST), (NOW - HOUR_US, 1, None), (NOW - HOUR_US + 1, 1, LAST)],
)
def test_only_member_may_go_if_it_was_the_only_one_for_an_hour(
    several_us: int, born_us: int, refusal: GateRefusal | None
) -> None:
    view = View(NOW, FleetState(several_us=several_us), Epoch(born_us), alive=1, seen_us=NOW)
    assert gates.by_floor(draft_of(view), "me") == refusal


def test_retirements_and_culls_share_the_floor() -> None:
    it = fleet_of_size(4, replace(TERMS, trial=False))
    answers = [it.retire("c00", slots="4"), it.claim("c01"), it.claim("c02"), it.retire("c03", slots="4")]
    assert [word(answer) for answer in answers] == ["granted", "granted", "floor", "floor"]


# -- spacing, window --------------------------------------------------------------------------------------------------

FOUR = replace(TERMS, capacity="4", window_us=600 * S)
REFUNDS = replace(FOUR, refund_max=0)
FIXED = replace(FOUR, strategy="fixed")


def granted(*ages_s: float, refunded: int = 0) -> View:
    """A store that granted so many seconds ago; the tokens of the first of them were given back."""
    grants = {f"{at}": NOW - round(age_s * S) for at, age_s in enumerate(ages_s)}
    return View(NOW, grants=grants, refunded=frozenset(list(grants)[:refunded]), alive=20)


@pytest.mark.parametrize(
    ("ages_s", "wait_us"),
    [([], 0), ([30], 0), ([29.999999], 1), ([0], 30 * S), ([40, 10, 500], 20 * S), ([-3600], 30 * S)],
    ids=["none", "in time", "a microsecond early", "just now", "the newest counts", "by a clock that was ahead"],
)
def test_grants_keep_their_distance(ages_s: list[float], wait_us: int) -> None:
    expected = GateRefusal("spacing", wait_us) if wait_us else None
    assert gates.by_spacing(draft_of(granted(*ages_s), replace(TERMS, spacing_us=30 * S))) == expected
    assert gates.by_spacing(draft_of(granted(*ages_s), TERMS)) is None


def full(reason: str, wait_us: int = 540 * S + 1) -> GateRefusal:
    return GateRefusal(reason, wait_us)


@pytest.mark.parametrize(
    ("ages_s", "refunded", "terms", "refusal", "used"),
    [
        pytest.param([60] * 3, 0, FOUR, None, 3, id="one is left"),
        pytest.param([60] * 4, 0, FOUR, full("window"), 4, id="none is"),
        pytest.param([600] * 4, 0, FOUR, full("window", 1), 4, id="a window is closed"),
        pytest.param([600.000001] * 4, 0, FOUR, None, 0, id="and then over"),
        pytest.param([-7200] * 4, 0, FOUR, full("window", 600 * S + 1), 4, id="a wait is never longer than a window"),
        pytest.param([60] * 4, 1, FOUR, full("window"), 4, id="given back, and refunds are off"),
        pytest.param([60] * 4, 1, REFUNDS, None, 3, id="given back"),
        pytest.param([60] * 12, 11, REFUNDS, full("refund_max"), 1, id="thrice the capacity at most"),
        pytest.param([60] * 6, 5, replace(FOUR, refund_max=6), full("refund_max"), 1, id="or what is said"),
        pytest.param([60] * 6, 2, replace(FOUR, refund_max=6), full("window"), 4, id="not given back enough"),
        pytest.param([0.0] * 9, 0, FIXED, None, 9, id="the article's counter decides elsewhere"),
        pytest.param([], 0, replace(FOUR, capacity="0"), full("window", 600 * S), 0, id="a budget of none"),
    ],
)
def test_tokens_of_the_window(
    ages_s: list[float], refunded: int, terms: FleetSettings, refusal: GateRefusal | None, used: int
) -> None:
    draft = draft_of(granted(*ages_s, refunded=refunded), terms)
    assert gates.by_window(draft) == refusal
    assert grant_window.usage(draft).used == used


@pytest.mark.parametrize(
    ("terms", "bounds"),
    [
        (FOUR, Bounds(4, 4)),
        (REFUNDS, Bounds(4, 12)),
        (replace(FOUR, refund_max=9), Bounds(4, 9)),
        (replace(FOUR, strategy="previous"), Bounds(7, 0)),
        (replace(FOUR, strategy="previous", capacity="1"), Bounds(1, 0)),
        (FIXED, Bounds(0, 0)),
    ],
)
def test_store_keeps_the_bound_that_the_strategy_promises(terms: FleetSettings, bounds: Bounds) -> None:
    assert grant_window.bounds(draft_of(granted(), terms)) == bounds


@pytest.mark.parametrize(("age_s", "is_granted"), [(0, True), (600, True), (600.000001, False)])
def test_grant_is_known_for_a_window(age_s: float, *, is_granted: bool) -> None:
    assert grant_window.has_token(draft_of(granted(age_s)), Claim("0")) is is_granted


@pytest.mark.parametrize(
    ("refund_max", "most", "last_word"), [(OFF, 2, "window"), (5, 5, "refund_max"), (0, 6, "refund_max")]
)
def test_token_of_a_cull_that_helped_comes_back_up_to_a_limit(refund_max: int, most: int, last_word: str) -> None:
    it = fleet_of_size(10, replace(TERMS, capacity="2", refund_max=refund_max, window_us=3600 * S))
    answers = []
    for name in names(8):
        answers.append(word(it.claim(name)))
        if answers[-1] == "granted":
            it.beat(name, Presence.DOWN)
            it.replaced(name)
            it.advance_beating(70, *names(10))
    assert answers == ["granted"] * most + [last_word] * (8 - most)


# -- culls pending, slots ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("causes", "trials", "is_pending"),
    [
        pytest.param({}, {}, False, id="all are well"),
        pytest.param({"redis": 1}, {}, True, id="a suspect"),
        pytest.param({"redis": 0}, {}, False, id="none any more"),
        pytest.param({"redis": 9}, {"redis": PAUSED}, False, id="its culls are paused"),
        pytest.param({"redis": 9, "disk": 1}, {"redis": PAUSED}, True, id="but not those of another"),
        pytest.param({"redis": 9}, {"redis": replace(PAUSED, paused_us=NOW - WINDOW_US)}, True, id="no longer"),
    ],
)
def test_retirement_waits_for_culls_that_may_come(
    causes: dict[str, int], trials: dict[str, Trial], *, is_pending: bool
) -> None:
    draft = draft_of(View(NOW, FleetState(trials=trials), causes=causes))
    assert gates.by_pending_culls(draft) == (GateRefusal("culls", BEAT_US) if is_pending else None)


LIVE = Slot("h", "0", NOW - 100, 200)


@pytest.mark.parametrize(
    ("leases", "amount", "is_free"),
    [
        pytest.param({}, "1", True, id="free"),
        pytest.param({"other": LIVE}, "1", False, id="taken"),
        pytest.param({"other": LIVE}, "2", True, id="another one is free"),
        pytest.param({"other": replace(LIVE, at_us=NOW - 200)}, "1", True, id="over"),
        pytest.param({"me": LIVE}, "1", True, id="its own"),
        pytest.param({"me": replace(LIVE, holder="somebody")}, "9", False, id="another's"),
        pytest.param({"other": LIVE}, "200p", True, id="a part"),
        pytest.param({"other": LIVE}, "199p", False, id="less of it"),
        pytest.param({}, "0", False, id="none at all"),
    ],
)
def test_slot_has_to_be_free(leases: dict[str, Slot], amount: str, *, is_free: bool) -> None:
    draft = draft_of(View(NOW, leases=leases, alive=10))
    refusal = gates.by_slots(draft, LeaseRequest("h", "me", "0", amount, 60.0))
    assert refusal == (None if is_free else GateRefusal("slots", BEAT_US))
