"""What a roll tells of tokens, members and who departed: the bucket in memory and the one in Redis say the same."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import replace

import pytest

from harness.claims import WINDOW_ONLY, S, beat, claim
from harness.twins import START_US, World
from sidecar.budget import Budget
from sidecar.core.members import pack
from sidecar.core.terms import Share, Terms
from sidecar.core.words import (
    MOST_DEPARTED,
    MOST_GRANTS,
    About,
    Beat,
    Claim,
    Denied,
    Granted,
    Presence,
    Roll,
    State,
    Unknown,
)

TERMS = replace(WINDOW_ONLY, capacity=Share(150), window_us=600 * S)


async def _rolls(world: World, grants: int, after_s: float) -> list[Roll]:
    """Both rolls, so long after as many grants, a second apart."""
    world.go(START_US)
    redis = world.redis(TERMS)
    both: list[Budget] = [world.twin(TERMS), redis]
    for number in range(grants):
        world.go(START_US + number * S)
        assert all([isinstance(await budget.claim(claim(f"c{number}")), Granted) for budget in both])
    world.go(START_US + round(after_s * S))
    rolls = [await budget.roll() for budget in both]
    await redis.aclose()
    return [roll for roll in rolls if isinstance(roll, Roll)]


@pytest.mark.parametrize(
    ("grants", "after_s", "first", "count"),
    [(0, 0, 0, 0), (3, 10, 0, 3), (3, 600, 0, 3), (3, 600.000001, 1, 2), (3, 700, 0, 0), (120, 130, 0, MOST_GRANTS)],
    ids=["none", "all", "at the end of the window", "one is back", "all are back", "the first to come back of many"],
)
async def test_roll_tells_when_the_tokens_in_use_were_taken(
    world: World, grants: int, after_s: float, first: int, count: int
) -> None:
    twin, redis = await _rolls(world, grants, after_s)
    assert twin == redis
    assert redis.grants == tuple(START_US / S + number for number in range(first, first + count))
    assert redis.used == (grants if count == MOST_GRANTS else count)


# -- what sidecars tell of their containers, and who departed ---------------------------------------------------------

LIFE = About(State.UP, 1_700_000_000, "1|%", 80, 2, 5, "0.9")
TOLD = pack(LIFE)
FLEET = replace(WINDOW_ONLY, window_us=600 * S, beat_us=10 * S)


class Both:
    """The two buckets, asked the same, which has to be answered alike."""

    def __init__(self, world: World, terms: Terms = FLEET) -> None:
        self.world = world
        self.budgets: list[Budget] = [world.twin(terms), world.redis(terms)]

    async def at(self, after_s: float, *calls: Beat | Claim) -> Roll:
        """The roll after these calls, so long after the beginning."""
        self.world.go(START_US + round(after_s * S))
        for call in calls:
            for budget in self.budgets:
                answer = await (budget.beat(call) if isinstance(call, Beat) else budget.claim(call))
                assert not isinstance(answer, Unknown | Denied)
        rolls = [await budget.roll() for budget in self.budgets]
        assert rolls[0] == rolls[1]
        assert isinstance(rolls[0], Roll)
        return rolls[0]

    def stored(self) -> int:
        """Of how many Redis knows anything."""
        assert self.world.server is not None
        return int(self.world.server.cli("HLEN", "{ha:default/app}:members"))


@pytest.fixture
async def both(world: World) -> AsyncIterator[Both]:
    world.go(START_US)
    both = Both(world)
    yield both
    for budget in both.budgets:
        await budget.aclose()


async def test_what_is_told_of_a_member_stays_until_something_else_is(both: Both) -> None:
    roll = await both.at(0, beat("a", about=TOLD), beat("b"))
    assert [member.about for member in roll.members] == [LIFE, None]
    roll = await both.at(10, beat("a"), beat("b", Presence.WANTS, kind="redis", about=TOLD))
    assert [member.about for member in roll.members] == [LIFE, LIFE]
    other = LIFE._replace(errors=3)
    roll = await both.at(20, beat("a", about=pack(other)), beat("b", about="no such line"))
    assert [member.about for member in roll.members] == [other, None]


async def test_culled_container_is_told_of_until_another_has_its_place(both: Both) -> None:
    await both.at(0, beat("a", about=TOLD), beat("b", about=TOLD), claim("a"))
    roll = await both.at(5, beat("a", Presence.DOWN, claim_id="a", about=pack(LIFE._replace(state=State.DOWN))))
    assert [(one.presence, one.about and one.about.state) for one in roll.members] == [
        (Presence.DOWN, State.DOWN),
        (Presence.WELL, State.UP),
    ]
    roll = await both.at(11, beat("b"), beat("a", Presence.GONE), beat("c", first=True, about=TOLD))
    assert [(one.instance, one.about) for one in roll.members] == [("b", LIFE), ("c", LIFE)]
    assert roll.departed == ()
    assert both.stored() == 2


async def test_who_is_replaced_says_nothing_any_more(both: Both) -> None:
    await both.at(0, beat("a", about=TOLD), beat("b", about=TOLD), claim("a"), beat("a", Presence.GONE))
    await both.at(1, beat("c", first=True), beat("a", Presence.DOWN, claim_id="a", about=TOLD))
    roll = await both.at(2, beat("b", about=TOLD))
    assert [(one.instance, one.about) for one in roll.members] == [("b", LIFE), ("c", None)]
    assert both.stored() == 1


async def test_those_who_fell_silent_or_said_goodbye_are_named_for_a_window(both: Both) -> None:
    roll = await both.at(0, *(beat(one, about=TOLD) for one in "abcde"))
    assert roll.departed == ()
    roll = await both.at(20, *(beat(one) for one in "abc"), beat("e", Presence.GONE, about=TOLD))
    assert (roll.departed, both.stored()) == ((("e", 0.0),), 4)
    roll = await both.at(31, *(beat(one) for one in "abc"))
    assert (roll.departed, both.stored()) == ((("d", 0.0), ("e", 11.0)), 3)
    roll = await both.at(40, *(beat(one) for one in "abc"), beat("e", first=True))
    assert roll.departed == (("d", 9.0),)
    assert roll.members[-1].about is None
    for after_s in range(65, 640, 25):
        roll = await both.at(after_s, *(beat(one) for one in "abce"))
    assert roll.departed == (("d", 584.0),)
    roll = await both.at(632, *(beat(one) for one in "abce"))
    assert roll.departed == ()


async def test_newest_hundred_of_those_who_departed_are_named(both: Both) -> None:
    names = [f"n{number:03}" for number in range(120)]
    await both.at(0, beat("a"), *(beat(name) for name in names))
    for number, name in enumerate(names):
        await both.at(0.1 + number // 2 / 100, beat(name, Presence.GONE))
    roll = await both.at(1, beat("a"))
    assert len(roll.departed) == MOST_DEPARTED
    assert [name for name, _ in roll.departed] == names[:-101:-1]
