"""Leases over three servers: the first has them all, and says the last word."""

from __future__ import annotations

import pytest

from harness.claims import lease
from harness.spreads import AWAY, FREEZE, GRANTED, asked, denied, spread_over, three
from sidecar.core.words import Beat, Denied, Fleet, Granted, Presence, Unknown

LEASE = lease("one")
BEAT = Beat("one", "1", Presence.WELL)


@pytest.mark.parametrize("answer", [GRANTED, denied("slots"), denied("floor"), denied("lost_memory")])
async def test_first_server_alone_is_asked(answer: Granted | Denied) -> None:
    servers = three(answer, GRANTED, GRANTED)
    assert await spread_over(servers, ("c", "b", "a")).retire(LEASE) == answer
    assert [server.heard for server in servers] == [[LEASE], [], []]


@pytest.mark.parametrize("away", AWAY, ids=repr)
async def test_first_server_that_is_away_is_unknown_and_no_other_is_asked(away: object) -> None:
    servers = three(away, GRANTED, GRANTED)
    answer = await spread_over(servers).retire(LEASE)
    assert answer == (away if isinstance(away, Unknown) else Unknown("internal"))
    assert asked(servers) == [1, 0, 0]


async def test_hold_that_any_server_knows_of_refuses_before_one_is_asked() -> None:
    servers = three(Fleet(3), Fleet(3, hold=FREEZE), Fleet(3))
    spread = spread_over(servers)
    await spread.beat(BEAT)
    assert await spread.retire(LEASE) == Denied("hold", 0, 0, 3600.0, hold=FREEZE)
    assert asked(servers) == [1, 1, 1]


@pytest.mark.parametrize(("told", "said"), [((True, False, False), True), ((False, True, True), False)])
async def test_all_are_told_of_a_lease_that_is_given_back_and_the_first_knows_of_it(
    told: tuple[bool, ...], *, said: bool
) -> None:
    servers = three(*told)
    assert await spread_over(servers).resign("one", "word") is said
    assert [server.heard for server in servers] == [[("one", "word")]] * 3


async def test_lease_that_the_first_server_does_not_hear_of_is_unknown() -> None:
    servers = three(*(Unknown("timeout"), True, True))
    assert await spread_over(servers).resign("one", "word") == Unknown("timeout")
