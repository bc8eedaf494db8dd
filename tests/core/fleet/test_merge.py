"""Several servers as one view: who is believed, what is united, and by whose clock."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import pytest

from harness.fleet_model import START_US, TERMS
from sidecar.core.fleet.merge import view_of
from sidecar.core.fleet.raw import Raw
from sidecar.core.fleet.records import Cull, Epoch, FleetState, HoldRow, Slot, StoredRecord, Trial
from sidecar.core.fleet.terms import Terms
from sidecar.core.types import US_PER_S

S = US_PER_S
NOW = START_US
HOUR = 3600 * S


def texts(rows: Mapping[str, StoredRecord], by_us: int) -> dict[str, str]:
    return {name: row.shifted(by_us).written() for name, row in rows.items()}


def raw(
    state: FleetState | None = None,
    *,
    culls: Mapping[str, Cull] | None = None,
    leases: Mapping[str, Slot] | None = None,
    holds: Mapping[str, HoldRow] | None = None,
    ahead_us: int = 0,
    **more: object,
) -> Raw:
    """What a server holds whose clock shows so much more; all records are given by the clock of the test."""
    return Raw(
        NOW + ahead_us,
        epoch=Epoch(NOW - HOUR).shifted(ahead_us).written(),
        state=(state or FleetState(serial=1, commit="c1")).shifted(ahead_us).written(),
        culls=texts(culls or {}, ahead_us),
        leases=texts(leases or {}, ahead_us),
        holds=texts(holds or {}, ahead_us),
        **more,  # type: ignore[arg-type]  # each of its field's type
    )


A = Cull("a/0", "0", "redis", NOW - 60 * S, occupied_us=NOW + 30 * S)
B = Cull("b/0", "0", "disk", NOW - 30 * S)
BEFORE = FleetState(serial=4, commit="c4", trials={"redis": Trial(4, last_us=NOW - 90 * S)})
LATER = FleetState(serial=5, commit="c5", former="c4 c3", trials={"redis": Trial(1, 1, NOW - S, 600 * S, NOW - S)})
RIVAL = FleetState(serial=5, commit="x5", former="c4 c3", trials={"redis": Trial(8, last_us=NOW), "net": Trial(2)})


@pytest.mark.parametrize("hours", [0, 7, -7])
def test_one_server_is_its_own_view(hours: int) -> None:
    one = raw(LATER, culls={"a": A}, leases={"l": Slot("h", "0", NOW, 9)}, holds={"": HoldRow("x", "y", NOW, 9)})
    view = view_of([(0, replace(one, alive=7, seen_us=NOW - 5, departed_us=0, member="1\nredis\n1"))], 1)
    assert (view.now_us, view.alive, view.life, view.seen_us, view.departed_us) == (NOW, 7, "1", NOW - 5, 0)
    assert (view.culls, view.leases["l"].holder, view.holds[""].author) == ({"a": A}, "h", "x")
    assert view.state.trials == LATER.trials
    assert view.servers[0].epoch == Epoch(NOW - HOUR)
    assert hours * HOUR == view_of([(0, one), (1, raw(LATER, ahead_us=-hours * HOUR))], 2).servers[1].offset_us


@pytest.mark.parametrize("ahead_us", [0, 7 * HOUR, -7 * HOUR, 30 * 24 * HOUR])
@pytest.mark.parametrize("stale_first", [True, False])
def test_server_that_is_behind_is_not_believed_whatever_its_clock_shows(ahead_us: int, *, stale_first: bool) -> None:
    stale = raw(BEFORE, culls={"b": B}, leases={"old": Slot("h", "0", NOW, 9)}, ahead_us=0 if stale_first else ahead_us)
    newest = raw(LATER, culls={"a": A}, ahead_us=ahead_us if stale_first else 0)
    answers = [(0, stale), (1, newest)] if stale_first else [(1, newest), (0, stale)]
    view = view_of([*answers, (2, replace(newest))], 3)
    assert (view.now_us, view.culls, view.leases) == (NOW, {"a": A}, {})
    assert view.state.trials == LATER.trials
    assert [server.is_behind for server in view.servers] == [not server.number for server in view.servers]
    assert {server.epoch.born_us for server in view.servers} == {NOW - HOUR}


def test_rivals_that_wrote_at_the_same_time_are_united_with_the_more_careful_trials() -> None:
    """Neither knew of the other: both culls are out, and a cause that one of them paused is paused."""
    for answers in ([(0, raw(LATER, culls={"a": A})), (1, raw(RIVAL, culls={"b": B}))],) * 2:
        for order in (answers, answers[::-1]):
            view = view_of(order, 2)
            assert view.culls == {"a": A, "b": B}
            trial = view.state.trials["redis"]
            assert (trial.limit, trial.pause_left_us(NOW), trial.last_us) == (1, 599 * S, NOW)
            assert view.state.trials["net"] == Trial(2)
            assert all(server.is_behind for server in view.servers)


def test_commits_at_one_server_alone_count_for_no_more_than_what_a_majority_took() -> None:
    """Its serial is the higher one, and it knows nothing of the cull of the others."""
    alone = FleetState(serial=7, commit="x7", former="x6 x5 c4")
    view = view_of([(0, raw(alone, culls={"b": B})), (1, raw(LATER, culls={"a": A}))], 3)
    assert set(view.culls) == {"a", "b"}


def test_of_two_rows_of_one_instance_the_open_one_counts_and_then_the_newer() -> None:
    rows = [
        ({"phase": "over", "since_us": NOW}, {"phase": "out"}),
        ({"phase": "out", "at_us": NOW - 9}, {"phase": "out", "at_us": NOW - 8}),
        ({"phase": "out"}, {"phase": "watched", "since_us": NOW}),
    ]
    for loser, winner in rows:
        one, other = replace(A, **loser), replace(A, **winner)  # type: ignore[arg-type]
        for pair in ((one, other), (other, one)):
            answers = [
                (n, raw(state, culls={"a": row}))
                for n, (state, row) in enumerate(zip((LATER, RIVAL), pair, strict=True))
            ]
            assert view_of(answers, 2).culls == {"a": other}


def test_of_each_hold_the_newest_counts_wherever_it_was_set() -> None:
    old, new, own = HoldRow("a", "b", NOW - 9, 99 * S), HoldRow("", "", NOW - 3, 0), HoldRow("c", "d", NOW - 5, S)
    for by_us in (0, 5 * HOUR, -5 * HOUR):
        behind = raw(BEFORE, holds={"": new, "x": own}, ahead_us=by_us)
        for answers in ([(0, raw(LATER, holds={"": old})), (1, behind)], [(2, raw(LATER)), (1, behind)]):
            assert view_of(answers, 3).holds == {"": new, "x": own}


def test_grant_that_fewer_than_a_majority_know_is_unsettled() -> None:
    with_a, without = raw(LATER, culls={"a": A}), raw(RIVAL)
    assert view_of([(0, with_a)], 1).unsettled == frozenset()
    assert view_of([(0, with_a), (1, without)], 3).unsettled == {"a"}
    assert view_of([(0, with_a), (1, with_a), (2, without)], 3).unsettled == frozenset()
    other = raw(RIVAL, culls={"a": replace(A, claim="a/9", at_us=NOW)})
    assert view_of([(0, with_a), (1, other), (2, without)], 3).unsettled == {"a"}


def test_members_are_those_of_the_best_informed_and_counts_the_largest() -> None:
    poor = raw(
        LATER, alive=3, causes={"x": 9}, control={"refused|x": 5, "ended|x": 1}, member="old\n\n0", seen_us=NOW - 9
    )
    rich = raw(
        LATER,
        alive=8,
        causes={"x": 2},
        control={"refused|x": 4, "recovered|x": 2},
        member="new\n\n0",
        seen_us=NOW + HOUR - 5,
        beating={"a": "0\n\n0"},
        ahead_us=HOUR,
    )
    view = view_of([(0, poor), (1, rich)], 2)
    assert (view.alive, view.causes, view.life, view.seen_us) == (8, {"x": 2}, "new", NOW - 5)
    assert view.control == {"refused|x": 5, "ended|x": 1, "recovered|x": 2}
    assert view.beating == {"a": "0"}


@pytest.mark.parametrize(
    ("newest_us", "grant_us", "is_ahead"),
    [(NOW, NOW, False), (NOW + S, NOW, False), (NOW + S + 1, NOW, True), (NOW, NOW + S + 1, True)],
)
def test_server_that_holds_the_future_has_stepped_back(newest_us: int, grant_us: int, *, is_ahead: bool) -> None:
    (server,) = view_of([(0, raw(newest_us=newest_us, grants={"a": grant_us}))], 1).servers
    assert server.is_ahead is is_ahead


def test_grants_are_moved_to_the_clock_of_the_view() -> None:
    far = raw(grants={"a": NOW + HOUR - 5}, refunded=frozenset({"a"}), ahead_us=HOUR)
    server = view_of([(1, raw()), (0, far)], 2).servers[1]
    assert (server.number, server.grants, server.is_ahead) == (0, {"a": NOW - 5}, False)
    assert server.refunded == {"a"}


def test_settings_in_force_are_those_heard_within_their_own_expiry_and_every_other_text_is_none() -> None:
    slow = Terms(beat_us=100 * S)
    heard = {TERMS.written(): NOW - 30 * S, slow.written(): NOW - 299 * S, "?": NOW, '{"strategy":"x"}': NOW}
    assert set(view_of([(0, raw(settings=heard))], 1).settings) == {TERMS, slow}
    assert view_of([(0, raw(settings={TERMS.written(): NOW - 30 * S - 1}))], 1).settings == ()
    assert len(view_of([(0, raw(settings=heard)), (1, raw(settings=heard))], 2).settings) == 2


def test_rows_that_cannot_be_read_blind_nobody() -> None:
    bad = {"bad": "\ud800", "list": "[]", "kind": '{"claim":1,"holder":1}'}
    one = raw(LATER, culls={"a": A})
    one = replace(one, epoch="?", culls={**one.culls, **bad}, leases=bad, holds={"": "?", "x": '{"at_us":"now"}'})
    view = view_of([(0, one)], 1)
    assert (view.culls, view.leases, view.holds, view.servers[0].epoch) == ({"a": A}, {}, {}, Epoch())
    assert view_of([(0, replace(one, state="?"))], 1).state.trials == {}
