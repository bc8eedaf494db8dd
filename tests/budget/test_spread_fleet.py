"""Beats, holds and the roll over three servers: told to all of them, heard of whoever is there."""

from __future__ import annotations

import asyncio
from dataclasses import replace

import pytest

from harness.nodes import Clock
from harness.spreads import AWAY, CLAIM, FREEZE, GRANTED, WALL_S, asked, called, spread_over, three
from sidecar.budget.merged import merged_fleet
from sidecar.core.words import Beat, Brake, Denied, Fleet, Granted, Hold, Member, Presence, Roll, Unknown

# -- beats --------------------------------------------------------------------------------------------------

HTTP_TOO = (("helped", "mysql", 3), ("unhelped", "http", 5))
BEAT = Beat("one", "boot-1", Presence.WELL, first=True)


async def test_beat_goes_to_all_servers_at_once_however_long_one_takes() -> None:
    servers = three(Fleet(3), Fleet(3), Fleet(3))
    servers[0].is_hung = True
    beating = asyncio.create_task(spread_over(servers).beat(BEAT))
    await called(servers, 1)
    assert [server.heard for server in servers] == [[BEAT]] * 3
    assert not beating.done()
    beating.cancel()
    with pytest.raises(asyncio.CancelledError):
        await beating


async def test_beat_is_the_first_of_a_server_only_as_long_as_none_was_answered() -> None:
    servers = three(Fleet(3), Unknown("timeout"), Fleet(3))
    spread = spread_over(servers)
    await spread.beat(BEAT._replace(first=True))
    servers[1].says = Fleet(3)
    await spread.beat(BEAT._replace(first=False))
    servers[2].says = Unknown("timeout")
    await spread.beat(BEAT._replace(first=False))
    firsts = [[beat.first for beat in server.heard if isinstance(beat, Beat)] for server in servers]
    assert firsts == [[True, False, False], [True, False, False], [True, False, False]]


async def test_fleet_is_what_the_best_informed_server_knows_of_it() -> None:
    known = [
        Fleet(10, 1, 2, Brake.ON, "", 1, 1, 4, 0, 7, ("mysql",), retiring=2, culls_by=(("helped", "mysql", 4),)),
        Fleet(9, 5, 0, Brake.OPEN, "redis", 2, 2, 3, 5, 0, ("http", "mysql"), FREEZE, culls_by=HTTP_TOO),
        Fleet(2, 0, 0),
    ]
    culls_by = (("helped", "mysql", 4), ("unhelped", "http", 5))
    fleet = Fleet(10, 5, 2, Brake.ON, "redis", 2, 3, 4, 5, 7, ("http", "mysql"), FREEZE, retiring=2, culls_by=culls_by)
    assert await spread_over(three(*known)).beat(BEAT) == fleet
    assert merged_fleet(known) == fleet


@pytest.mark.parametrize(
    ("brakes", "merged"),
    [
        ((Brake.OFF, Brake.OPEN), Brake.OPEN),
        ((Brake.OPEN, Brake.ON), Brake.ON),
        ((Brake.ON, Brake.CLOSED), Brake.CLOSED),
        ((Brake.CLOSED, Brake.OFF), Brake.CLOSED),
    ],
)
def test_brake_that_is_shown_is_the_hardest(brakes: tuple[Brake, ...], merged: Brake) -> None:
    assert merged_fleet([Fleet(9, brake=brake) for brake in brakes]).brake is merged


@pytest.mark.parametrize("away", AWAY, ids=str)
async def test_beat_is_answered_as_long_as_one_server_is_there(away: object) -> None:
    fleet = await spread_over(three(away, Fleet(7), away)).beat(BEAT)
    assert isinstance(fleet, Fleet)
    assert (replace(fleet, away=()), len(fleet.away)) == (Fleet(7), 2)


async def test_beat_that_no_server_answers_is_unknown() -> None:
    assert await spread_over(three(Unknown("oom"), Unknown("auth"), OSError())).beat(BEAT) == Unknown("oom")


async def test_server_that_comes_back_brings_no_new_loss_along() -> None:
    servers = three(Fleet(3, losses=2), Fleet(3, losses=1), Fleet(3))
    spread = spread_over(servers)
    losses = []
    for said in (Fleet(3, losses=2), Unknown("timeout"), Fleet(3, losses=2), Fleet(3, losses=3)):
        servers[0].says = said
        fleet = await spread.beat(BEAT)
        assert isinstance(fleet, Fleet)
        losses.append(fleet.losses)
    assert losses == [3, 3, 3, 4]


async def test_tokens_are_those_of_the_servers_that_answer_and_claims_tell_of_them_too() -> None:
    servers = three(Fleet(3, used=1, capacity=4), Fleet(3, used=2, capacity=3), Unknown("timeout"))
    spread = spread_over(servers)
    fleet = await spread.beat(BEAT)
    assert isinstance(fleet, Fleet)
    assert (fleet.used, fleet.capacity) == (3, 7)
    servers[0].says = Granted(2, 4)
    answer = await spread.claim(CLAIM)
    assert isinstance(answer, Granted)
    assert (answer.used, answer.capacity) == (4, 7)


# -- holds --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("knows", range(3))
async def test_hold_that_any_server_knows_of_refuses_the_claim_before_one_is_asked(knows: int) -> None:
    wall = Clock()
    servers = three(Fleet(3), Fleet(3), Fleet(3))
    servers[knows].says = Fleet(3, hold=FREEZE)
    spread = spread_over(servers, wall=wall)
    await spread.beat(BEAT)
    for server in servers:
        server.says = GRANTED
    wall.now_s = FREEZE.until - 10
    assert await spread.claim(CLAIM) == Denied("hold", 0, 0, 10.0, hold=FREEZE)
    assert asked(servers) == [1, 1, 1]


async def test_clock_that_is_ahead_of_the_servers_ends_no_hold() -> None:
    wall = Clock()
    spread = spread_over(three(Fleet(3, hold=FREEZE), Fleet(3), Fleet(3)), wall=wall)
    await spread.beat(BEAT)
    wall.now_s = FREEZE.until + 3600
    assert await spread.claim(CLAIM) == Denied("hold", 0, 0, 0.0, hold=FREEZE)


async def test_next_beat_ends_a_hold_that_no_server_knows_any_more() -> None:
    servers = three(Fleet(3, hold=FREEZE), Fleet(3), Fleet(3))
    spread = spread_over(servers)
    await spread.beat(BEAT)
    servers[0].says = Fleet(3)
    await spread.beat(BEAT)
    servers[0].says = GRANTED
    assert await spread.claim(CLAIM) == GRANTED


async def test_beat_that_is_not_answered_ends_no_hold() -> None:
    servers = three(Fleet(3, hold=FREEZE), Fleet(3), Fleet(3))
    spread = spread_over(servers)
    await spread.beat(BEAT)
    for server in servers:
        server.says = Unknown("timeout")
    await spread.beat(BEAT)
    for server in servers:
        server.says = GRANTED
    assert (await spread.claim(CLAIM)) == Denied("hold", 0, 0, 3600.0, hold=FREEZE)


async def test_hold_and_release_go_to_all_servers() -> None:
    servers = three(FREEZE, FREEZE, FREEZE)
    spread = spread_over(servers)
    assert await spread.hold("", "ann", "deploy", 3600.0) == FREEZE
    for server in servers:
        server.says = server is servers[2]
    assert await spread.release("") is True
    assert [server.heard for server in servers] == [[("", "ann", "deploy", 3600.0), ""]] * 3


@pytest.mark.parametrize(("had", "told"), [((False, False, False), False), ((False, True, False), True)])
async def test_release_tells_whether_any_server_held(had: tuple[bool, ...], told: object) -> None:
    assert await spread_over(three(*had)).release("") is told


@pytest.mark.parametrize("away", range(3))
async def test_server_that_did_not_hear_an_order_is_told_with_the_next_beats(away: int) -> None:
    for says in (FREEZE, True):
        servers = three(says, says, says)
        servers[away].says = Unknown("connection")
        spread = spread_over(servers)
        order = spread.hold("", "ann", "deploy", 60.0) if says is FREEZE else spread.release("")
        assert await order == says
        for expected in (2, 4):  # the order and the beat, each time; the others only hear the beat
            await spread.beat(BEAT)
            assert len(servers[away].heard) - 1 == expected
        servers[away].says = says
        await spread.beat(BEAT)
        await spread.beat(BEAT)
        assert [len(server.heard) for server in servers] == [8 if number == away else 5 for number in range(3)]


async def test_newer_order_takes_the_place_of_one_that_was_not_heard() -> None:
    servers = three(FREEZE, FREEZE, Unknown("connection"))
    spread = spread_over(servers)
    await spread.hold("", "ann", "deploy", 60.0)
    for server in servers:
        server.says = True
    assert await spread.release("") is True
    await spread.beat(BEAT)
    assert servers[2].heard[1:] == ["", BEAT._replace(first=BEAT.first)]


@pytest.mark.parametrize(("released", "is_free"), [("", True), ("one", False)], ids=["the hold", "another one"])
async def test_release_ends_what_was_heard_of_the_same_scope_at_once(released: str, *, is_free: bool) -> None:
    servers = three(Fleet(3, hold=FREEZE), Fleet(3), Fleet(3))
    spread = spread_over(servers)
    await spread.beat(BEAT)
    for server in servers:
        server.says = True
    await spread.release(released)
    for server in servers:
        server.says = GRANTED
    assert isinstance(await spread.claim(CLAIM), Granted) is is_free


# -- for a person -------------------------------------------------------------------------------------------


async def test_roll_has_the_most_members_the_tokens_and_the_holds_of_all() -> None:
    members = tuple(Member(one, Presence.WELL, "", 1.0) for one in ("one", "two"))
    other = Hold("bob", "look", WALL_S + 60, "two")
    late = replace(FREEZE, until=FREEZE.until + 0.01)
    rolls = [
        Roll(Fleet(1), 4, members[:1], (FREEZE,), ("x",), (3.0, 4.0)),
        Roll(Fleet(2), 2, members, (late, other), ("y",), (3.5, 5.0), (("three", 7.0),)),
        Roll(Fleet(0), 1),
    ]
    told = await spread_over(three(*rolls)).roll()
    assert told == Roll(Fleet(2), 7, members, (FREEZE, other), ("y",), (3.0, 3.5, 4.0, 5.0), (("three", 7.0),))


async def test_roll_is_told_by_those_who_are_there() -> None:
    roll = Roll(Fleet(2), 2)
    assert await spread_over(three(Unknown("auth"), roll, OSError())).roll() == roll
    assert await spread_over(three(Unknown("auth"), OSError(), OSError())).roll() == Unknown("auth")


async def test_all_servers_are_closed() -> None:
    servers = three(GRANTED, GRANTED, GRANTED)
    await spread_over(servers).aclose()
    assert [server.closed for server in servers] == [1, 1, 1]
