"""Three servers with the rules of the real bucket are one bucket."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Iterable
from dataclasses import replace
from itertools import cycle, permutations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from harness.spreads import NAMES, spread_over
from harness.twin import TwinBudget
from sidecar.core.fleet import FleetBucket
from sidecar.core.terms import Share, Terms
from sidecar.core.words import US_PER_S, Answer, Beat, Claim, Denied, Fleet, Granted, Hold, Presence, Unknown

# -- with the real bucket -----------------------------------------------------------------------------------

OPEN = Terms(min_healthy=Share(0), never_last=False, brake=0, useless_after=0, lost_is_empty=False)
FLEET = 60


class Town:
    """A fleet over three servers with the rules of the real bucket; a server that is away says what it is told to."""

    def __init__(self, terms: Terms = OPEN, fleet: int = FLEET) -> None:
        self.now_us = 1_000 * US_PER_S
        self.buckets = [FleetBucket() for _ in NAMES]
        self.servers = [[self._server(terms, number) for number in range(len(NAMES))] for _ in range(fleet)]
        self.spreads = [spread_over(servers, order) for servers, order in zip(self.servers, cycle(ORDERS))]

    def _server(self, terms: Terms, index: int) -> Away:
        asks_by = replace(terms, index=index, servers=len(NAMES))
        return Away(TwinBudget(self.buckets[index], asks_by, lambda: self.now_us))

    def away(self, index: int, says: object) -> None:
        for servers in self.servers:
            servers[index].says = says

    async def beats(self, wanting: int = 0) -> None:
        for number, spread in enumerate(self.spreads):
            presence = Presence.WANTS if number < wanting else Presence.WELL
            await spread.beat(Beat(f"i{number:02}", "boot", presence, "redis", first=True))

    async def claims(self, count: int = FLEET) -> list[Answer]:
        return [
            await spread.claim(Claim(f"web/i{number:02}/boot", f"i{number:02}", "boot", "redis"))
            for number, spread in enumerate(self.spreads[:count])
        ]

    def passes(self, seconds: float) -> None:
        self.now_us += round(seconds * US_PER_S)


ORDERS = tuple(permutations(NAMES))


class Away(TwinBudget):
    """A twin that can be away: it says ``says`` instead, and perhaps only after it has done what it was asked."""

    def __init__(self, twin: TwinBudget) -> None:
        super().__init__(twin.bucket, twin._terms, twin._clock_us)
        self.says: object = None
        self.does_it = False

    async def claim(self, claim: Claim) -> Answer:
        if self.says is None:
            return await super().claim(claim)
        if self.does_it:
            await super().claim(claim)
        return self._said()  # type: ignore[return-value]  # says what the test wants

    async def beat(self, beat: Beat) -> Fleet | Unknown:
        if self.says is None:
            return await super().beat(beat)
        return self._said()  # type: ignore[return-value]  # as above

    def _said(self) -> object:
        if isinstance(self.says, Exception):
            raise self.says
        return self.says


def outcomes(answers: Iterable[Answer]) -> Counter[str]:
    return Counter(answer.reason if isinstance(answer, Denied) else type(answer).__name__ for answer in answers)


async def test_shares_of_all_servers_are_the_whole_budget() -> None:
    town = Town()
    await town.beats()
    answers = await town.claims()
    assert outcomes(answers) == {"Granted": 10, "window": FLEET - 10}
    assert sorted(bucket.birth.mark.grants for bucket in town.buckets) == [3, 3, 4]
    last = answers[-1]
    assert isinstance(last, Denied)
    assert (last.used, last.capacity) == (10, 10)


@pytest.mark.parametrize("away", [Unknown("timeout"), Unknown("connection"), RuntimeError("broken")], ids=str)
@pytest.mark.parametrize(("index", "left"), [(0, 6), (1, 7), (2, 7)])
async def test_server_that_is_away_takes_its_share_along_and_nothing_else(index: int, left: int, away: object) -> None:
    town = Town()
    await town.beats()
    town.away(index, away)
    assert outcomes(await town.claims())["Granted"] == left
    town.away(index, None)
    town.passes(60)
    assert outcomes(await town.claims())["Granted"] == 10  # those that were granted are granted again


async def test_token_whose_reply_was_lost_may_be_wasted_and_never_adds_one() -> None:
    town = Town()
    await town.beats()
    town.away(0, Unknown("timeout"))
    for servers in town.servers:
        servers[0].does_it = True
    assert outcomes(await town.claims())["Granted"] == 6
    assert [bucket.birth.mark.grants for bucket in town.buckets] == [4, 3, 3]


async def test_all_tokens_are_back_after_a_window() -> None:
    town = Town()
    await town.beats()
    await town.claims(10)
    town.passes(600.001)
    await town.beats()
    assert outcomes(await town.claims())["Granted"] == 10


async def test_fleet_in_trouble_sends_one_canary_whatever_the_order_of_the_walks() -> None:
    town = Town(replace(OPEN, brake=500))
    await town.beats(wanting=FLEET)
    answers = await town.claims()
    assert outcomes(answers) == {"Granted": 1, "brake": FLEET - 1}
    assert [answer.canary for answer in answers if isinstance(answer, Granted)] == [True]
    assert [bucket.birth.mark.grants for bucket in town.buckets] == [1, 0, 0]


async def test_floor_holds_over_all_servers_together() -> None:
    town = Town(replace(OPEN, min_healthy=Share(900, is_part=True), capacity=Share(60)))
    await town.beats()
    answers = await town.claims()
    assert outcomes(answers)["Granted"] == 6
    assert outcomes(answers)["Granted"] + outcomes(answers)["share"] + outcomes(answers)["floor"] == FLEET


async def test_hold_that_one_server_lost_is_still_a_hold() -> None:
    town = Town()
    await town.beats()
    assert isinstance(await town.spreads[0].hold("", "ann", "deploy", 3600.0), Hold)
    town.buckets[1].release("")
    await town.beats()
    assert outcomes(await town.claims()) == {"hold": FLEET}


FEW = replace(OPEN, capacity=Share(4), window_us=60 * US_PER_S)
FAULTS = (None, None, "away", "lost")
ROUNDS = st.lists(
    st.tuples(
        st.integers(0, 7), st.sampled_from([0.0, 0.1, 5.0, 29.9, 60.0]), st.tuples(*[st.sampled_from(FAULTS)] * 3)
    ),
    max_size=40,
)


@given(ROUNDS)
@settings(deadline=None)
def test_culls_in_any_window_are_no_more_than_the_budget_whatever_is_away_or_lost(
    rounds: list[tuple[int, float, tuple[str | None, ...]]],
) -> None:
    with asyncio.Runner() as runner:
        culls = runner.run(_culls(rounds))
    for at in culls:
        assert sum(at <= other <= at + FEW.window_us for other in culls) <= 4


async def _culls(rounds: list[tuple[int, float, tuple[str | None, ...]]]) -> list[int]:
    """When containers went down; each is replaced at once, and a claim without an answer is made again."""
    town = Town(FEW, fleet=8)
    await town.beats()
    lives, culls = [0] * 8, []
    for sidecar, passes_s, faults in rounds:
        town.passes(passes_s)
        for server, fault in zip(town.servers[sidecar], faults, strict=True):
            server.says = Unknown("timeout") if fault else None
            server.does_it = fault == "lost"
        name, life = f"i{sidecar:02}", f"boot-{lives[sidecar]}"
        if isinstance(await town.spreads[sidecar].claim(Claim(f"web/{name}/{life}", name, life, "redis")), Granted):
            culls.append(town.now_us)
            lives[sidecar] += 1
    return culls
