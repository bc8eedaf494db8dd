"""Lost memory: who shows it, how often it counts, and for how long nothing is granted."""

from __future__ import annotations

from copy import deepcopy
from dataclasses import replace

import pytest

from harness.rule_fleet import START_US, TERMS, RuleFleet, draft_of, fleet_of_size, names, word
from sidecar.core.claims import Denied, Presence
from sidecar.core.fleet import data_loss, gates
from sidecar.core.fleet.gates import GateRefusal
from sidecar.core.fleet.records import Epoch
from sidecar.core.fleet.view import Known, View
from sidecar.core.types import US_PER_S

S = US_PER_S
WINDOW_S = TERMS.window_us // S
NOW = START_US
BORN = NOW - 3600 * S
EPOCH = Epoch(born_us=BORN, grants=5, losses=1, lost_us=BORN, servers="one")
TEN = names(10)


def noticed(known: Known, epoch: Epoch = EPOCH, *, is_ahead: bool = False) -> Epoch:
    draft = draft_of(View(NOW, epoch=epoch, newest_us=NOW + 2 * S if is_ahead else 0), known=known)
    data_loss.notice(draft)
    return draft.epoch


# -- what shows a loss ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("known", "is_lost"),
    [
        pytest.param(Known(), False, id="nothing is known"),
        pytest.param(Known(EPOCH, NOW - 10 * S, 10 * S), False, id="all is as it was"),
        pytest.param(Known(replace(EPOCH, grants=4)), False, id="somebody else was granted"),
        pytest.param(Known(replace(EPOCH, grants=6)), True, id="fewer grants: an older copy"),
        pytest.param(Known(replace(EPOCH, born_us=BORN - 1)), True, id="another epoch"),
        pytest.param(Known(replace(EPOCH, born_us=BORN + 1)), True, id="a later epoch"),
        pytest.param(Known(replace(EPOCH, losses=0, grants=9)), False, id="recorded since"),
        pytest.param(Known(replace(EPOCH, losses=2, grants=9)), True, id="a loss that it has forgotten"),
        pytest.param(Known(EPOCH, NOW - 10 * S, 12 * S), False, id="two seconds apart"),
        pytest.param(Known(EPOCH, NOW - 10 * S, 12 * S + 200_000), True, id="more"),
        pytest.param(Known(EPOCH, NOW - 10 * S, 8 * S - 1), False, id="two seconds and a hundredth the other way"),
        pytest.param(Known(EPOCH, NOW - 10 * S, 7 * S), True, id="stepped forward"),
        pytest.param(Known(EPOCH, NOW + 3600 * S, 1 * S), True, id="stepped back"),
        pytest.param(Known(EPOCH, NOW - 1000 * S, 1011 * S), False, id="a hundredth of a long time"),
        pytest.param(Known(EPOCH, NOW - 1000 * S, 1013 * S), True, id="more of it"),
        pytest.param(Known(EPOCH, NOW - 1012 * S, 1000 * S), False, id="two seconds and a hundredth forward"),
        pytest.param(Known(EPOCH, NOW - 1012 * S - 1, 1000 * S), True, id="a microsecond more"),
        pytest.param(Known(EPOCH, NOW - 1012 * S - 1, 1000 * S, 1), False, id="and as much slack"),
    ],
)
def test_loss_is_shown_by_what_a_sidecar_knows(known: Known, *, is_lost: bool) -> None:
    found = noticed(known)
    expected = replace(EPOCH, losses=max(EPOCH.losses, known.epoch.losses) + 1, lost_us=NOW, grants=found.grants)
    assert found == (expected if is_lost else EPOCH)
    assert found.grants == (max(EPOCH.grants, known.epoch.grants) if is_lost else EPOCH.grants)


@pytest.mark.parametrize(
    ("before", "run_id", "after"),
    [
        pytest.param(EPOCH, "", EPOCH, id="never told"),
        pytest.param(replace(EPOCH, run_id="1"), "1", replace(EPOCH, run_id="1"), id="the same"),
        pytest.param(replace(EPOCH, run_id="1"), "", replace(EPOCH, run_id="1"), id="no longer told"),
        pytest.param(replace(EPOCH, run_id="1"), "2", replace(EPOCH, run_id="2", met_us=NOW), id="another"),
        pytest.param(EPOCH, "1", replace(EPOCH, run_id="1", met_us=NOW), id="of an earlier version"),
        pytest.param(Epoch(), "1", Epoch(born_us=NOW, servers="one", run_id="1"), id="new"),
    ],
)
def test_process_of_the_server_is_met_once(before: Epoch, run_id: str, after: Epoch) -> None:
    draft = draft_of(View(NOW, epoch=before, run_id=run_id))
    data_loss.notice(draft)
    assert draft.epoch == after


def test_server_that_is_new_is_born_and_has_lost_only_what_somebody_knew() -> None:
    assert noticed(Known(), Epoch()) == Epoch(born_us=NOW, servers="one")
    assert noticed(Known(EPOCH), Epoch()) == Epoch(NOW, 5, 2, NOW, servers="one")


@pytest.mark.parametrize(
    ("lost_us", "losses"),
    [(0, 2), (NOW - 601 * S, 2), (NOW - 600 * S, 1), (NOW, 1), (NOW + 3600 * S, 2)],
    ids=["never before", "long ago", "within the window", "just now", "by the clock that was ahead"],
)
@pytest.mark.parametrize("known", [Known(), Known(EPOCH)], ids=["knows nothing", "knows"])
def test_server_whose_instants_are_ahead_has_stepped_back_once(known: Known, lost_us: int, losses: int) -> None:
    found = noticed(known, replace(EPOCH, lost_us=lost_us), is_ahead=True)
    assert found.losses == losses
    assert found.lost_us == (NOW if losses == 2 else lost_us)


@pytest.mark.parametrize(
    ("epoch", "grants", "is_lost"),
    [
        pytest.param(replace(EPOCH, lost_us=NOW + S), {}, False, id="loss a second ahead"),
        pytest.param(replace(EPOCH, lost_us=NOW + S + 1), {}, True, id="loss further ahead"),
        pytest.param(replace(EPOCH, born_us=NOW + S + 1), {}, True, id="epoch further ahead"),
        pytest.param(replace(EPOCH, granted_us=NOW - 600 * S), {}, True, id="last grant of the window is gone"),
        pytest.param(replace(EPOCH, granted_us=NOW - 600 * S - 1), {}, False, id="last grant is older"),
        pytest.param(replace(EPOCH, granted_us=NOW), {"last": NOW - S}, False, id="last grant is there"),
        pytest.param(replace(EPOCH, granted_us=NOW), {"other": NOW - S - 1}, True, id="an earlier grant is there"),
    ],
)
def test_loss_is_shown_by_the_records_of_the_server_alone(
    epoch: Epoch, grants: dict[str, int], *, is_lost: bool
) -> None:
    draft = draft_of(View(NOW, epoch=epoch, grants=grants))
    data_loss.notice(draft)
    assert draft.epoch.losses == epoch.losses + is_lost


@pytest.mark.parametrize(("lost_us", "losses"), [(0, 2), (NOW - 600 * S - 1, 2), (NOW - 600 * S, 1), (NOW, 1)])
def test_loss_counts_once_within_a_window(lost_us: int, losses: int) -> None:
    draft = draft_of(View(NOW, epoch=replace(EPOCH, lost_us=lost_us)))
    data_loss.lose(draft)
    assert (draft.epoch.losses, draft.epoch.lost_us) == (losses, NOW if losses == 2 else lost_us)


# -- how long nothing is granted ------------------------------------------------------------------------------

NEWBORN = Epoch(born_us=NOW - 5 * S, servers="one")
SILENT = replace(EPOCH, lost_us=0, silent_us=NOW - 14 * S)
OLD = Epoch(born_us=BORN, servers="one")
LOST = replace(OLD, losses=1, lost_us=NOW - 100 * S)


@pytest.mark.parametrize(
    ("epoch", "refusal"),
    [
        (OLD, None),
        (NEWBORN, GateRefusal("newborn", 10 * S)),
        (SILENT, GateRefusal("newborn", 1 * S)),
        (replace(SILENT, silent_us=NOW - 15 * S), None),
        (LOST, GateRefusal("data_loss", 500 * S + 1)),
        (replace(LOST, born_us=NOW), GateRefusal("data_loss", 500 * S + 1)),
        (replace(LOST, lost_us=NOW - 600 * S), GateRefusal("data_loss", 1)),
        (replace(LOST, lost_us=NOW - 600 * S - 1), None),
    ],
)
def test_store_has_to_remember_the_window_and_to_have_heard_the_fleet(
    epoch: Epoch, refusal: GateRefusal | None
) -> None:
    assert gates.by_data_loss(draft_of(View(NOW, epoch=epoch))) == refusal


@pytest.mark.parametrize(
    ("epoch", "beat_s", "wait_s"),
    [
        pytest.param(replace(EPOCH, lost_us=0, met_us=NOW - 5 * S), 10, 10, id="a beat and a half"),
        pytest.param(replace(EPOCH, lost_us=0, met_us=NOW - 5 * S), 2, 10, id="at least 15 s"),
        pytest.param(replace(EPOCH, lost_us=0, met_us=NOW - 5 * S), 20, 25, id="of slow beats"),
        pytest.param(replace(EPOCH, lost_us=0, met_us=NOW - 15 * S), 2, 0, id="over"),
        pytest.param(Epoch(born_us=NOW - 2 * S, servers="one"), 2, 1, id="a new server has no other process before it"),
    ],
)
def test_other_process_grants_nothing_until_every_sidecar_can_have_beaten_there(
    epoch: Epoch, beat_s: int, wait_s: int
) -> None:
    draft = draft_of(View(NOW, epoch=epoch), replace(TERMS, beat_us=beat_s * S))
    refusal = GateRefusal("newborn", wait_s * S, is_other_process=bool(epoch.met_us))
    assert gates.by_data_loss(draft) == (refusal if wait_s else None)


# -- stories: flushed, older, stepped -------------------------------------------------------------------------


def refused_for(it: RuleFleet, step_s: float = 5, *, reason: str = "data_loss") -> float:
    """For how long claims are refused with this word, while the fleet goes on."""
    start_us = it.own_us
    while word(answer := it.claim("c09")) == reason:
        assert isinstance(answer, Denied)
        assert answer.retry_after_s <= WINDOW_S + 1
        it.advance_beating(step_s, *TEN)
    return (it.own_us - start_us) / S


@pytest.mark.parametrize("sidecars", [1, 2, 10])
def test_flush_stops_grants_for_a_window_and_counts_once_however_many_notice(sidecars: int) -> None:
    it = fleet_of_size(10)
    it.loses()
    it.beat_all(*TEN[:sidecars])
    assert it.fleet().losses == 1
    assert refused_for(it) == pytest.approx(WINDOW_S, abs=5)
    assert it.fleet().losses == 1


@pytest.mark.parametrize("first", ["claim", "retirement", "beat", "beat of the culled"])
def test_crash_to_an_older_copy_grants_nothing_before_the_culled_can_have_told_of_themselves(first: str) -> None:
    it = fleet_of_size(10, replace(TERMS, trial=False, capacity="4"))
    copy = deepcopy(it.kept)
    for name in TEN[:4]:
        it.claim_and_go_down(name)
    it.crashes(copy)
    if first == "claim":
        refused = it.claim("c05")
        assert isinstance(refused, Denied)
        assert (refused.reason, refused.retry_after_s, refused.is_other_process) == ("newborn", 15, True)
    elif first == "retirement":
        assert word(it.retire("c05")) == "newborn"
    else:
        it.beat("c00" if "culled" in first else "c04", Presence.DOWN if "culled" in first else Presence.WELL)
    it.advance(14.9)
    assert word(it.claim("c06")) == ("data_loss" if "culled" in first else "newborn")
    it.beat_all(*TEN[:4], presence=Presence.DOWN)
    it.advance(0.2)
    assert (word(it.claim("c06")), word(it.retire("c07"))) == ("data_loss", "data_loss")
    assert (it.fleet().losses, it.fleet().down) == (1, 4)


def test_sidecar_knows_of_its_own_grant_at_once() -> None:
    it = fleet_of_size(10)
    copy = deepcopy(it.kept)
    assert word(it.claim("c00")) == "granted"
    it.kept = copy
    it.beat("c00", Presence.SUSPECT)
    assert it.fleet().losses == 1


@pytest.mark.parametrize("first", ["claim", "beat"])
def test_fleet_that_goes_back_to_a_former_process_meets_it_anew(first: str) -> None:
    it = fleet_of_size(10, replace(TERMS, trial=False, capacity="4"))
    former = deepcopy(it.kept)
    it.crashes(deepcopy(former))
    it.advance_beating(30, *TEN)
    for name in TEN[:4]:
        it.claim_and_go_down(name)
    it.kept = former
    if first == "beat":
        it.beat("c05")
    assert word(it.claim("c06")) == "newborn"
    it.beat_all(*TEN[:4], presence=Presence.DOWN)
    it.advance(15)
    assert word(it.claim("c06")) == "data_loss"


@pytest.mark.parametrize("restarted", [True, False])
def test_claim_id_of_a_container_that_is_down_and_unknown_is_a_loss(*, restarted: bool) -> None:
    it = fleet_of_size(10)
    copy = deepcopy(it.kept)
    it.claim_and_go_down("c00")
    it.kept = copy
    if restarted:
        it.restarts("c00")
    for _ in range(3):
        it.beat("c00", Presence.DOWN)
        it.advance_beating(10, *TEN[1:])
    assert (it.fleet().losses, it.fleet().down) == (1, 1)
    assert word(it.claim("c01")) == "data_loss"
    assert it.fleet().trials[0][:3] == ("redis", 1, 1)


@pytest.mark.parametrize("first", ["beat", "claim", "stranger"])
def test_what_began_in_the_future_begins_anew_when_the_clock_steps_back(first: str) -> None:
    """A hold of two seconds ends in two seconds, and a lease, a pause or a vacancy lasts no longer than it would."""
    it = fleet_of_size(10)
    it.claim_and_go_down("c00")
    it.replaced("c00", Presence.SUSPECT)
    it.retire("c01", timeout_s=60)
    it.claim_and_go_down("c02", "disk")
    it.hold(for_s=2)
    it.steps(-3600)
    if first == "claim":
        assert word(it.claim("c04")) == "hold"
    elif first == "beat":
        it.beat("c04")
    else:
        it.restarts("c04")
        it.beat("c04")
    it.advance(2)
    assert word(it.claim("c05")) != "hold"
    assert it.fleet().hold is None
    assert it.cull("c02").occupied_us <= it.now_us + TERMS.expiry_us
    (paused,) = [trial for trial in it.fleet().trials if trial.paused_s]
    assert paused.paused_s <= WINDOW_S
    it.advance_beating(60, *TEN[3:])
    assert it.fleet().retiring == 0
    it.advance_beating(WINDOW_S + 10, *TEN[3:])
    assert (it.fleet().down, it.fleet().losses) == (0, 1)
    assert word(it.claim("c05")) == "granted"


# -- another address, and silence -------------------------------------------------------------------------------


def test_other_address_of_the_store_stops_grants_for_a_window_and_is_no_loss() -> None:
    it = fleet_of_size(10)
    it.terms = replace(TERMS, servers="two")
    for name in TEN:
        it.restarts(name)
    assert refused_for(it) == pytest.approx(WINDOW_S, abs=5)
    assert it.fleet().losses == 0


@pytest.mark.parametrize(
    ("lost_us", "noted_us"),
    [
        pytest.param(0, NOW, id="no loss before"),
        pytest.param(NOW - TERMS.beat_us - 1, NOW, id="more than a beat interval after the last loss"),
        pytest.param(NOW - TERMS.beat_us, NOW - TERMS.beat_us, id="a beat interval after it"),
    ],
)
def test_other_address_is_written_at_most_once_a_beat_interval(lost_us: int, noted_us: int) -> None:
    epoch = noticed(Known(), replace(EPOCH, servers="two", lost_us=lost_us))
    assert (epoch.servers, epoch.lost_us) == ("one" if noted_us == NOW else "two", noted_us)


def test_while_two_addresses_are_in_use_nothing_is_granted() -> None:
    it = fleet_of_size(10)
    for _ in range(200):
        it.advance(5)
        it.beat("c00")
        it.beat("c01", servers="two")
        assert word(it.claim("c00")) == word(it.claim("c01", servers="two")) == "data_loss"
    assert it.kept.reads < 1600  # each beat writes its own once in a while, and not every time
