"""The decision as a whole: which gate speaks, what a replay passes, who is a duplicate; and that it is pure."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from copy import deepcopy
from dataclasses import replace
from itertools import combinations
from typing import Final

import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness.rule_fleet import TERMS, RuleFleet, fleet_of_size, names, word
from harness.strategies import built
from sidecar.core.claims import MANUAL, Beat, Claim, Denied, Granted, LeaseRequest, Presence
from sidecar.core.fleet.decide import MOST_DUPLICATES, decide, is_due
from sidecar.core.fleet.fleet_settings import FleetSettings
from sidecar.core.fleet.records import Cull, Epoch, FleetState, HoldRow, Slot, Trial
from sidecar.core.fleet.view import (
    Asked,
    Attend,
    BeatReply,
    Edits,
    EndHold,
    Known,
    MemberKey,
    PutHold,
    Request,
    ReturnGrant,
    View,
)
from sidecar.core.types import US_PER_S

S: Final = US_PER_S
STRICT: Final = replace(TERMS, capacity="4", spacing_us=S, refund_max=8)
Shut = Callable[[RuleFleet], None]


# -- what shuts a gate --------------------------------------------------------------------------------------------


def learns(it: RuleFleet, **trials: Trial) -> None:
    it.kept.state = replace(it.state, trials={**it.state.trials, **trials})


def are_out(it: RuleFleet, count: int, cause: str) -> None:
    for number in range(count):
        it.kept.culls[f"{cause}-{number}"] = Cull(f"{cause}-{number}", "0", cause, it.now_us - 2 * S)


def duplicate(it: RuleFleet) -> None:
    it.kept.rows["c00"] = "another\n\n0"


def data_loss(it: RuleFleet) -> None:
    it.kept.epoch = replace(it.epoch, losses=it.epoch.losses + 1, lost_us=it.now_us)


def newborn(it: RuleFleet) -> None:
    it.kept.epoch = replace(it.epoch, silent_us=it.now_us)


def paused(it: RuleFleet) -> None:
    learns(it, redis=Trial(1, 1, it.now_us, TERMS.window_us))


def trial(it: RuleFleet) -> None:
    are_out(it, 1, "redis")


def causes(it: RuleFleet) -> None:
    are_out(it, 1, "disk")
    are_out(it, 1, "net")


def floor(it: RuleFleet) -> None:
    learns(it, many=Trial(99))
    are_out(it, 20, "many")


def granted(it: RuleFleet, count: int, age_s: float, *, is_refunded: bool = False) -> None:
    for number in range(count):
        claim = f"{age_s}-{number}-{is_refunded}"
        it.kept.grants[claim] = it.now_us - round(age_s * S)
        if is_refunded:
            it.kept.refunded[claim] = it.kept.grants[claim]


def makes_room(it: RuleFleet, gate: str) -> None:
    """One of the tokens that are in use is that of the requester."""
    if gate in ("window", "refund_max"):
        it.kept.refunded.pop(it.kept.grants.popitem()[0], None)


GATES: Final[Mapping[str, Shut]] = {
    "hold": lambda it: it.kept.holds.update({"": HoldRow("ada", "look", it.now_us, 60 * S)}),
    "duplicate": duplicate,
    "data_loss": data_loss,
    "newborn": newborn,
    "paused": paused,
    "trial": trial,
    "causes": causes,
    "floor": floor,
    "spacing": lambda it: granted(it, 1, 0.000_001),
    "window": lambda it: granted(it, 4, 60),
    "refund_max": lambda it: granted(it, 8, 60, is_refunded=True),
}
"""What shuts a gate of a claim, in the order in which they are asked."""

WAITS_S: Final = {"hold": 60, "data_loss": 600.000001, "newborn": 15, "paused": 600, "spacing": 0.999999}
WINDOW_WAITS_S: Final = {"window": 540.000001, "refund_max": 540.000001}


@pytest.mark.parametrize("gate", GATES)
def test_gate_that_is_shut_refuses_and_says_when_to_ask_again(gate: str) -> None:
    it = fleet_of_size(20, STRICT)
    it.beat_all("c00", "c01", "c02", presence=Presence.SUSPECT)
    GATES[gate](it)
    answer = it.claim("c00")
    assert isinstance(answer, Denied)
    wait_s = (WAITS_S | WINDOW_WAITS_S).get(gate, TERMS.beat_us / S)
    assert (answer.reason, answer.capacity, answer.alive, answer.suspect) == (gate, 4, 20, 3)
    assert answer.retry_after_s == pytest.approx(wait_s, abs=1e-9)
    assert answer.cause == "redis"


@pytest.mark.parametrize(("earlier", "later"), [pair for pair in combinations(GATES, 2) if pair != ("newborn", "hold")])
def test_of_two_shut_gates_the_earlier_speaks(earlier: str, later: str) -> None:
    it = fleet_of_size(20, STRICT)
    GATES[later](it)
    GATES[earlier](it)
    assert word(it.claim("c00")) == earlier


@pytest.mark.parametrize("gate", GATES)
def test_replay_is_asked_after_the_hold_and_before_all_others(gate: str) -> None:
    it = fleet_of_size(20, STRICT)
    it.claim("c00")
    it.advance(5)
    GATES[gate](it)
    makes_room(it, gate)
    answer = it.claim("c00")
    assert word(answer) == ("hold" if gate == "hold" else "granted")
    assert gate == "hold" or (isinstance(answer, Granted) and answer.replayed)


@pytest.mark.parametrize("gate", GATES)
def test_order_of_a_person_passes_the_trial_and_nothing_else(gate: str) -> None:
    it = fleet_of_size(20, STRICT)
    GATES[gate](it)
    assert word(it.claim("c00", MANUAL)) == ("granted" if gate in {"paused", "trial", "causes"} else gate)


@pytest.mark.parametrize("gate", GATES)
def test_place_that_was_taken_passes_all_gates_anew_and_keeps_its_token(gate: str) -> None:
    it = fleet_of_size(20, STRICT)
    it.claim("c00")
    it.beat("c00", Presence.GONE)
    it.beat("newcomer", first=True)
    it.advance_beating(60, "newcomer", *names(20))
    learns(it, redis=Trial())
    GATES[gate](it)
    makes_room(it, gate)
    paces = {"spacing", "window", "refund_max"}
    assert word(it.claim("c00")) == ("granted" if gate in paces else gate)


# -- a retirement -------------------------------------------------------------------------------------------------

RETIRING: Final[Mapping[str, Shut]] = {
    "hold": GATES["hold"],
    "duplicate": duplicate,
    "data_loss": data_loss,
    "newborn": newborn,
    "culls": lambda it: it.kept.causes.update(["redis"]),
    "floor": floor,
    "slots": lambda it: it.kept.leases.update(c09=Slot("h", "0", it.now_us, 60 * S)),
}


@pytest.mark.parametrize("gate", RETIRING)
def test_retirement_is_refused_by_each_of_its_gates(gate: str) -> None:
    it = fleet_of_size(20)
    RETIRING[gate](it)
    assert word(it.retire("c00")) == gate


@pytest.mark.parametrize(("earlier", "later"), list(combinations(RETIRING, 2)))
def test_of_two_shut_gates_of_a_retirement_the_earlier_speaks(earlier: str, later: str) -> None:
    it = fleet_of_size(20)
    RETIRING[later](it)
    RETIRING[earlier](it)
    assert word(it.retire("c00")) == earlier


@pytest.mark.parametrize("gate", RETIRING)
def test_lease_that_was_granted_is_granted_again_by_the_hold_alone(gate: str) -> None:
    it = fleet_of_size(20)
    it.retire("c00")
    RETIRING[gate](it)
    assert word(it.retire("c00")) == ("hold" if gate == "hold" else "granted")


# -- two lives under one name -------------------------------------------------------------------------------------


def test_duplicates_are_written_down_for_a_window_and_neither_may_end() -> None:
    it = fleet_of_size(10)
    view = it.view("c00")
    beat = Beat("c00", "0", Presence.WELL)
    for asked in (Claim("id", "c00", "0"), LeaseRequest("h", "c00", "0", "1", 60.0)):
        answer, _ = decide(view, Request(asked, TERMS, is_duplicate=True))
        assert word(answer) == "duplicate"
    _, edits = decide(view, Request(Attend(beat), TERMS, is_duplicate=True))
    assert edits.state is not None
    assert edits.state.duplicates == {"c00": view.now_us}
    it.kept.state = edits.state
    it.advance_beating(590, *names(10))
    assert "c00" in it.state.duplicates
    it.advance_beating(20, *names(10))
    assert it.state.duplicates == {}


@pytest.mark.parametrize(("age_s", "is_refused"), [(0, True), (29, True), (30, False)])
def test_duplicate_that_any_sidecar_has_noted_is_refused_for_an_expiry(age_s: int, *, is_refused: bool) -> None:
    it = fleet_of_size(10)
    it.kept.state = replace(it.state, duplicates={"c00": it.now_us - age_s * S})
    assert word(it.claim("c00")) == ("duplicate" if is_refused else "granted")


def test_no_more_names_than_a_hundred_are_written_down() -> None:
    many = {f"n{number:03}": 1_000 + number for number in range(MOST_DUPLICATES)}
    request = Request(Attend(Beat("me", "0", Presence.WELL)), TERMS, is_duplicate=True)
    _, edits = decide(View(2_000, FleetState(duplicates=many)), request)
    assert edits.state is not None
    assert len(edits.state.duplicates) == MOST_DUPLICATES
    assert ("n000" in edits.state.duplicates, edits.state.duplicates["me"]) == (False, 2_000)


# -- records that are over ------------------------------------------------------------------------------------------

OLD: Final = Epoch(1, servers="one")
NOW: Final = 10**15


def asks(view: View, asked: Asked, terms: FleetSettings = TERMS) -> tuple[object, Edits]:
    answer: object
    answer, edits = decide(view, Request(asked, terms))
    return answer, edits


@pytest.mark.parametrize(
    ("at_us", "is_kept"), [(NOW - 600 * S - 1, False), (NOW - 600 * S, True), (NOW + S, True), (NOW + S + 1, False)]
)
def test_beat_removes_the_record_of_a_duplicate_after_a_window(at_us: int, *, is_kept: bool) -> None:
    state = FleetState(duplicates={"c00": at_us})
    _, edits = asks(View(NOW, state, OLD), Attend(Beat("me", "0", Presence.WELL)))
    assert ("c00" in (edits.state or state).duplicates) is is_kept


@pytest.mark.parametrize(
    ("alive", "age_us", "is_recorded"),
    [(2, 600 * S, True), (2, 600 * S - 1, False), (1, 600 * S, False)],
    ids=["ten minutes ago", "sooner", "a single container"],
)
def test_fleet_of_several_is_recorded_as_such_every_ten_minutes(alive: int, age_us: int, *, is_recorded: bool) -> None:
    view = View(NOW, FleetState(several_us=NOW - age_us), OLD, alive=alive)
    _, edits = asks(view, Attend(Beat("me", "0", Presence.WELL)))
    assert (edits.state.several_us if edits.state else None) == (NOW if is_recorded else None)


@pytest.mark.parametrize(
    ("row", "is_kept"),
    [
        pytest.param(HoldRow("ada", "look", NOW, 60 * S), True, id="begins"),
        pytest.param(HoldRow("ada", "look", NOW - 60 * S + 1, 60 * S), True, id="nearly over"),
        pytest.param(HoldRow("ada", "look", NOW - 60 * S, 60 * S), False, id="over"),
        pytest.param(HoldRow("", "", NOW - 600 * S + 1, 0), True, id="released"),
        pytest.param(HoldRow("", "", NOW - 600 * S, 0), False, id="released a window ago"),
    ],
)
def test_beat_removes_a_hold_that_is_over_and_a_released_one_after_a_window(row: HoldRow, *, is_kept: bool) -> None:
    _, edits = decide(View(NOW, holds={"": row}), Request(Attend(Beat("me", "0", Presence.WELL)), TERMS))
    assert edits.holds == ({} if is_kept else {"": None})


# -- what a beat finds due --------------------------------------------------------------------------------------------

KNOWN_EPOCH: Final = Epoch(born_us=NOW - 10**9, grants=5, losses=1, lost_us=NOW - 10**8, servers="one")
KNOWN: Final = Known(KNOWN_EPOCH, NOW - 10 * S, 10 * S)
STATE: Final = FleetState(several_us=NOW - 5 * S)
QUIET: Final = BeatReply(NOW, epoch=KNOWN_EPOCH, state=STATE, alive=10, former="0\n\n0")
STRUCK: Final = QUIET._replace(struck=("a",), silent=1)
BEAT: Final = Beat("me", "0", Presence.WELL)


@pytest.mark.parametrize(
    ("beat", "known", "is_expected"),
    [
        pytest.param(BEAT, KNOWN, False, id="all is quiet"),
        pytest.param(BEAT, Known(), False, id="nothing is known"),
        pytest.param(BEAT._replace(presence=Presence.SUSPECT), KNOWN, False, id="a suspect"),
        pytest.param(BEAT._replace(first=True), KNOWN, True, id="its first"),
        pytest.param(BEAT._replace(presence=Presence.DOWN), KNOWN, True, id="down"),
        pytest.param(BEAT._replace(presence=Presence.GONE), KNOWN, True, id="gone"),
        pytest.param(BEAT._replace(incarnation="1"), KNOWN, True, id="another incarnation"),
        pytest.param(BEAT, KNOWN._replace(elapsed_us=20 * S), True, id="the clock was stepped"),
    ],
)
def test_beat_says_whether_a_decision_is_due(beat: Beat, known: Known, *, is_expected: bool) -> None:
    assert is_due(QUIET, beat, known, TERMS) is is_expected


@pytest.mark.parametrize(
    ("reply", "is_expected"),
    [
        pytest.param(QUIET._replace(former=""), True, id="a new row"),
        pytest.param(STRUCK, False, id="one was struck off"),
        pytest.param(STRUCK._replace(silent=5), True, id="half was"),
        pytest.param(STRUCK._replace(state=replace(STATE, missing=1)), True, id="one, and somebody is missing"),
        pytest.param(STRUCK._replace(state=replace(STATE, open_culls={"x": 1})), True, id="one, and a cull is open"),
        pytest.param(QUIET._replace(state=replace(STATE, due_us=NOW)), True, id="something ends"),
        pytest.param(QUIET._replace(state=replace(STATE, due_us=NOW + 1)), False, id="not yet"),
        pytest.param(QUIET._replace(state=replace(STATE, several_us=NOW - 600 * S)), True, id="several, long unsaid"),
        pytest.param(QUIET._replace(alive=1, state=replace(STATE, several_us=0)), False, id="a single one"),
        pytest.param(QUIET._replace(epoch=replace(KNOWN_EPOCH, servers="two")), True, id="another address"),
        pytest.param(QUIET._replace(epoch=replace(KNOWN_EPOCH, grants=4)), True, id="fewer grants"),
        pytest.param(QUIET._replace(epoch=replace(KNOWN_EPOCH, born_us=NOW - 5)), True, id="another epoch"),
        pytest.param(QUIET._replace(run_id="2", epoch=replace(KNOWN_EPOCH, run_id="1")), True, id="another process"),
        pytest.param(QUIET._replace(run_id="1", epoch=replace(KNOWN_EPOCH, run_id="1")), False, id="the same process"),
        pytest.param(QUIET._replace(epoch=Epoch(), state=FleetState()), True, id="no record can be read"),
    ],
)
def test_answer_to_a_beat_shows_whether_a_decision_is_due(reply: BeatReply, *, is_expected: bool) -> None:
    assert is_due(reply, BEAT, KNOWN, TERMS) is is_expected


def test_sidecar_that_knows_nothing_sees_no_other_epoch_and_begins_that_of_a_new_store() -> None:
    assert not is_due(QUIET._replace(epoch=replace(KNOWN_EPOCH, born_us=NOW - 5)), BEAT, Known(), TERMS)
    assert is_due(QUIET._replace(epoch=Epoch()), BEAT, Known(), TERMS)


# -- pure -----------------------------------------------------------------------------------------------------------

instances = st.sampled_from(["me", "a", "b", "c"])
instants = st.integers(NOW - 10**9, NOW + 10**8)
kinds = st.sampled_from(["redis", "disk", "", MANUAL])
lives = st.sampled_from(["0", "1"])
culls = st.builds(
    Cull,
    claim=st.sampled_from(["me/0", "x"]),
    incarnation=lives,
    cause=kinds,
    at_us=instants,
    phase=st.sampled_from(["out", "watched", "over", "unheard of"]),
    is_lease=st.booleans(),
    occupied_us=instants,
    down_us=st.just(0) | instants,
    by=instances,
    by_incarnation=lives,
    since_us=instants,
    well_us=st.just(0) | instants,
)
trials = st.builds(Trial, st.integers(-1, 12), st.integers(0, 3), instants, st.integers(0, 10**9), instants)
views = built(
    View,
    st.just(NOW),
    state=st.builds(
        FleetState,
        trials=st.dictionaries(kinds, trials),
        several_us=instants,
        due_us=instants,
    ),
    epoch=st.builds(Epoch, instants, st.integers(0, 5), st.integers(0, 3), st.just(0) | instants, instants),
    grants=st.dictionaries(st.sampled_from(["me/0", "x", "y"]), instants),
    refunded=st.frozensets(st.sampled_from(["x", "y"])),
    newest_us=st.integers(0, 2**40),
    culls=st.dictionaries(instances, culls),
    leases=st.dictionaries(instances, st.builds(Slot, st.sampled_from(["h", "x"]), lives, instants, st.just(10**8))),
    holds=st.dictionaries(
        st.sampled_from(["", "me"]), st.builds(HoldRow, st.just("a"), st.just("b"), instants, st.integers(0, 10**9))
    ),
    settings=st.sampled_from([(), (TERMS,), (FleetSettings("previous", "1"), FleetSettings("fixed", trial=False))]),
    alive=st.integers(0, 9),
    beating=st.dictionaries(instances, lives),
    causes=st.dictionaries(kinds, st.integers(0, 5)),
    control=st.dictionaries(st.sampled_from(["refused|redis", "recovered|redis", "ended|redis"]), st.integers(0, 9)),
    member=st.builds(MemberKey, lives),
    seen_us=instants,
    departed_us=st.just(0) | instants,
)
beats = st.builds(
    Beat, instances, lives, st.sampled_from(Presence), kinds, st.sampled_from(["", "me/0", "z"]), st.booleans(),
    st.sampled_from(["", "h"]),
)  # fmt: skip
requests = built(
    Request,
    st.one_of(
        st.builds(Claim, st.sampled_from(["me/0", "new"]), instances, lives, kinds),
        st.builds(
            LeaseRequest, st.sampled_from(["h", "g"]), instances, lives, st.sampled_from(["1", "500p"]), st.just(60.0)
        ),
        st.builds(ReturnGrant, instances, st.sampled_from(["me/0", "h"])),
        built(Attend, beats, st.sampled_from([(), ("a",), ("a", "b")]), st.integers(0, 5), st.integers(0, 9)),
        st.builds(PutHold, st.sampled_from(["", "me"]), st.just("a"), st.just("b"), st.integers(0, 10**9)),
        st.builds(EndHold, st.sampled_from(["", "me"])),
    ),
    st.sampled_from([TERMS, replace(TERMS, refund_max=0, spacing_us=S), replace(TERMS, after_loss_wait=False)]),
    st.builds(Known, st.builds(Epoch, st.just(0) | instants), st.just(0) | instants, st.integers(0, 10**9)),
    is_duplicate=st.booleans(),
)


@given(views, requests)
def test_same_view_and_request_have_the_same_answer_and_the_view_stays_as_it_was(view: View, request: Request) -> None:
    before = deepcopy(view)
    first, second = decide(view, request), decide(view, request)
    assert first == second
    assert view == before
    answer, edits = first
    if isinstance(answer, Denied):
        assert 0 < answer.retry_after_s <= 24 * 3600
        assert not edits.grant
    if isinstance(request.asked, Claim):
        assert isinstance(answer, Granted) == bool(edits.grant)
    for table, rows in ((view.culls, edits.culls), (view.leases, edits.leases), (view.holds, edits.holds)):
        assert all(table.get(name) != row for name, row in rows.items())  # only what differs is written
