"""A claim over three servers that share one budget: whom it asks, and what it makes of their answers."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from itertools import permutations

import pytest

from harness.refusals import refusals
from harness.spreads import AWAY, CLAIM, GRANTED, NAMES, asked, called, denied, spread_over, three
from sidecar.budget.merged import merged_denial
from sidecar.budget.spread import ELSEWHERE, UnknownTimeoutError
from sidecar.core.words import Beat, Denied, Granted, Presence, Unknown

OF_AGE = {"culls", "slots"}
"""Retirements alone, which are asked of the first server."""
FOR_ALL = {"hold", "useless", "floor", "last"}


# -- a claim ------------------------------------------------------------------------------------------------


async def test_first_token_ends_the_walk() -> None:
    servers = three(GRANTED, GRANTED, GRANTED)
    assert await spread_over(servers).claim(CLAIM) == GRANTED
    assert asked(servers) == [1, 0, 0]


@pytest.mark.parametrize("reason", sorted(ELSEWHERE))
async def test_what_one_server_refuses_of_its_own_another_may_grant(reason: str) -> None:
    servers = three(denied(reason), denied(reason), GRANTED)
    assert await spread_over(servers).claim(CLAIM) == Granted(7, 10)
    assert asked(servers) == [1, 1, 1]


@pytest.mark.parametrize("order", list(permutations(NAMES)), ids="".join)
@pytest.mark.parametrize("reason", sorted(FOR_ALL))
async def test_what_holds_for_the_whole_fleet_ends_the_walk(reason: str, order: tuple[str, ...]) -> None:
    refused = denied(reason)
    servers = dict(zip(NAMES, three(GRANTED, GRANTED, GRANTED), strict=True))
    servers[order[0]].says = refused
    assert await spread_over(servers.values(), order).claim(CLAIM) == refused
    assert sum(asked(servers.values())) == 1


@pytest.mark.parametrize("order", list(permutations(NAMES)), ids="".join)
async def test_canary_is_found_wherever_the_first_server_comes_in_the_walk(order: tuple[str, ...]) -> None:
    canary = Granted(1, 4, canary=True)
    servers = three(canary, denied("brake"), denied("brake"))
    told = order.index("a") + 1
    assert await spread_over(servers, order).claim(CLAIM) == replace(canary, used=3 * told - 2, capacity=3 * told + 1)


@pytest.mark.parametrize("order", list(permutations(NAMES)), ids="".join)
async def test_brake_at_the_first_server_is_the_last_word(order: tuple[str, ...]) -> None:
    servers = three(denied("brake"), denied("brake"), denied("brake"))
    told = order.index("a") + 1
    assert await spread_over(servers, order).claim(CLAIM) == denied("brake", used=3 * told, capacity=3 * told)
    assert sum(asked(servers)) == told


@pytest.mark.parametrize("order", list(permutations(NAMES)), ids="".join)
async def test_brake_that_is_known_at_the_first_server_alone_is_not_walked_past(order: tuple[str, ...]) -> None:
    """Whoever comes to it before has granted by what it knew; nobody behind it is asked."""
    servers = three(denied("brake"), denied("window"), denied("window"))
    answer = await spread_over(servers, order).claim(CLAIM)
    assert isinstance(answer, Denied)
    assert answer.reason == "brake"


async def test_every_server_is_asked_under_the_same_claim_id() -> None:
    servers = three(denied("window"), Unknown("timeout"), GRANTED)
    await spread_over(servers).claim(CLAIM)
    assert [server.heard for server in servers] == [[CLAIM]] * 3


@pytest.mark.parametrize("away", AWAY, ids=str)
async def test_server_that_gives_no_answer_is_passed_over(away: object) -> None:
    servers = three(away, away, GRANTED)
    assert await spread_over(servers).claim(CLAIM) == GRANTED


@pytest.mark.parametrize(
    ("says", "error"),
    [
        ((Unknown("auth"), Unknown("timeout"), Unknown("oom")), "auth"),
        ((RuntimeError("broken"), Unknown("timeout"), Unknown("oom")), "internal"),
        ((Unknown("eclipse"), RuntimeError("broken"), RuntimeError("broken")), "eclipse"),
    ],
    ids=["the first error", "an exception", "a word nobody knows"],
)
async def test_when_no_server_answers_it_is_unknown_for_the_reason_of_the_first(
    says: tuple[object, ...], error: str
) -> None:
    assert await spread_over(three(*says)).claim(CLAIM) == Unknown(error)


async def test_one_refusal_among_unclear_answers_is_a_refusal() -> None:
    servers = three(Unknown("timeout"), denied("window", 60, 3, 3), Unknown("auth"))
    assert await spread_over(servers).claim(CLAIM) == denied("window", 60, 3, 3)


async def test_tokens_told_are_those_of_every_server_that_has_ever_answered() -> None:
    """Also of who is away or was not asked: its share is still part of the whole."""
    servers = three(denied("window", 60, 4, 4), denied("window", 60, 2, 3), denied("window", 60, 3, 3))
    spread = spread_over(servers)
    stories = [
        (servers[0], denied("window", 60, 4, 4), (9, 10)),
        (servers[0], Unknown("timeout"), (9, 10)),
        (servers[1], denied("hold", 60, 1, 3), (8, 10)),
        (servers[1], Granted(2, 3), (9, 10)),
    ]
    for server, says, tokens in stories:
        server.says = says
        answer = await spread.claim(CLAIM)
        assert isinstance(answer, Granted | Denied)
        assert (answer.used, answer.capacity) == tokens


async def test_server_that_has_not_answered_yet_adds_no_tokens() -> None:
    servers = three(Unknown("timeout"), denied("window", 60, 3, 3), denied("window", 60, 2, 3))
    assert await spread_over(servers).claim(CLAIM) == denied("window", 60, 5, 6)


async def test_cancelled_claim_is_cancelled_and_gives_its_lease_back() -> None:
    servers = three(GRANTED, GRANTED, GRANTED)
    servers[0].is_hung = True
    spread = spread_over(servers)
    claim = asyncio.create_task(spread.claim(CLAIM))
    await called(servers[:1], 1)
    assert spread.figures()["a"].in_flight == 1
    claim.cancel()
    with pytest.raises(asyncio.CancelledError):
        await claim
    assert spread.figures()["a"].in_flight == 0
    assert asked(servers) == [1, 0, 0]


# -- what the cascade learns --------------------------------------------------------------------------------


async def test_refusal_is_a_success_of_its_server() -> None:
    spread = spread_over(three(denied("window"), denied("window"), denied("window")))
    await spread.claim(CLAIM)
    assert [figures.success_rate for figures in spread.figures().values()] == [1, 1, 1]


@pytest.mark.parametrize(("error", "limit"), [("timeout", 9), ("connection", 10)])
async def test_unclear_answer_costs_weight_and_a_time_out_costs_leases_too(error: str, limit: int) -> None:
    spread = spread_over(three(Unknown(error), GRANTED, GRANTED))
    await spread.claim(CLAIM)
    assert (spread.figures()["a"].success_rate, spread.figures()["a"].limit) == (0, limit)
    assert isinstance(UnknownTimeoutError(Unknown("timeout")), TimeoutError)


async def test_nobody_waits_at_a_server_whose_leases_are_all_taken() -> None:
    servers = three(GRANTED)
    servers[0].is_hung = True
    spread = spread_over(servers)
    waiting = [asyncio.create_task(spread.claim(CLAIM)) for _ in range(10)]
    await called(servers, len(waiting))
    assert await spread.claim(CLAIM) == Unknown("crowded")
    assert await spread.beat(Beat("one", "boot-1", Presence.WELL)) == Unknown("crowded")
    for claim in waiting:
        claim.cancel()
    await asyncio.gather(*waiting, return_exceptions=True)
    assert len(servers[0].heard) == len(waiting)


@pytest.mark.parametrize(
    ("denials", "merged"),
    [
        ([denied("window", 60, 4, 4), denied("share", 10, 3, 3)], denied("share", 10, 3, 3)),
        ([denied("window", 60, 4, 4), denied("brake", 60, 3, 3)], denied("window", 60, 4, 4)),
        (
            [Denied("window", 1, 1, 9, alive=3, wanting=1, cause="redis"), Denied("window", 1, 1, 8, 2, 2)],
            Denied("window", 1, 1, 8, alive=3, wanting=2, cause="redis"),
        ),
    ],
    ids=["soonest", "first of equals", "numbers"],
)
def test_several_refusals_are_over_when_the_first_of_them_is(denials: list[Denied], merged: Denied) -> None:
    assert merged_denial(denials) == merged


def test_every_refusal_of_the_real_bucket_is_its_own_affair_or_that_of_the_whole_fleet() -> None:
    assert set(refusals()) == ELSEWHERE | FOR_ALL | {"brake"} | OF_AGE
    assert not ELSEWHERE & FOR_ALL
