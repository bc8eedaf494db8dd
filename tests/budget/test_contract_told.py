"""What the bucket writes into the ledger, and tells of its tokens: in memory and in a real Redis alike."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Final

import pytest

from harness.claims import S, beat, claim, lease
from harness.ledgers import STREAM, read
from harness.stories import CALM, Step, assert_both_tell, assert_twin_tells, tell, tellings, told, wanting
from harness.twins import START_US, World
from sidecar.core.terms import HALF, Share
from sidecar.core.words import Entry, Fleet, Granted, Presence

if TYPE_CHECKING:
    from harness.redis_server import RedisServer
    from harness.stories import Story

TRIAL: Final = replace(CALM, probation_us=60 * S)
SHORT: Final = replace(CALM, beat_us=10 * S)


def entry(what: str, at_s: float, instance: str, kind: str, reason: str = "", *, seconds: float) -> Entry:
    return Entry(what, START_US / S + at_s, instance, kind, reason, seconds=seconds)


LEDGERS: Final[dict[str, tuple[Story, list[Entry]]]] = {
    "replaced in its place, which helped": (
        (
            (TRIAL,),
            [
                *told(0, "ab"),
                Step(1, claim("a")),
                Step(2, beat("a", Presence.DOWN, claim_id="a")),
                *told(31.25, "a", Presence.STARTING, life="2"),
                *told(40, "a", life="2"),
                *told(100, "a", life="2"),
            ],
        ),
        [
            entry("replaced", 31.25, "a", "redis", seconds=30.25),
            entry("helped", 100, "a", "redis", seconds=99.0),
        ],
    ),
    "replaced by another one, which did not help": (
        (
            (replace(SHORT, probation_us=60 * S),),
            [
                *told(0, "ab"),
                Step(1, claim("a", kind="disk")),
                *told(2, "a", Presence.GONE),
                Step(5.0006, beat("x", first=True)),
                *wanting(6, "x"),
            ],
        ),
        [
            entry("replaced", 5, "a", "disk", "x", seconds=4.001),
            entry("unhelped", 6, "x", "disk", seconds=5.0),
        ],
    ),
    "a replacement that leaves tells nothing": (
        (
            (TRIAL,),
            [*told(0, "ab"), Step(1, claim("a")), *told(5, "a", life="2"), *told(9, "a", Presence.GONE, life="2")],
        ),
        [entry("replaced", 5, "a", "redis", seconds=4.0), entry("unclear", 9, "a", "redis", seconds=8.0)],
    ),
    "replacements that fall silent are told in the order in which they were heard of": (
        (
            (SHORT,),
            [
                *told(0, "abcd"),
                *[Step(1, claim(name)) for name in "ab"],
                *told(5, "b", life="2"),
                *told(6, "a", life="2"),
                *told(20, "cd"),
                *told(40, "c"),
            ],
        ),
        [
            entry("replaced", 5, "b", "redis", seconds=4.0),
            entry("replaced", 6, "a", "redis", seconds=5.0),
            entry("unclear", 40, "b", "redis", seconds=39.0),
            entry("unclear", 40, "a", "redis", seconds=39.0),
        ],
    ),
    "nobody replaced it within a window": (
        ((CALM,), [*told(0, "ab"), Step(1, claim("a", kind="")), *told(700, "b")]),
        [entry("unclear", 700, "a", "unknown", "not_replaced", seconds=699.0)],
    ),
    "who went for its age has no kind, and nobody learns from it": (
        ((CALM,), [*told(0, "ab"), Step(1, lease("a")), *told(11, "a", life="2"), *told(90, "a", life="2")]),
        [entry("replaced", 11, "a", "", seconds=10.0)],
    ),
    "a replacement on trial that goes for its age tells nothing": (
        (
            (TRIAL,),
            [*told(0, "ab"), Step(1, claim("a")), *told(5, "a", life="2"), Step(9, lease("a", life="2"))],
        ),
        [entry("replaced", 5, "a", "redis", seconds=4.0), entry("unclear", 9, "a", "redis", seconds=8.0)],
    ),
    "of several servers the one tells that granted it": (
        ((replace(CALM, servers=2),), [*told(0, "ab"), Step(1, claim("a")), *told(5, "a", life="2")]),
        [entry("replaced", 5, "a", "redis", seconds=4.0)],
    ),
    "and no other": (
        (
            (replace(TRIAL, servers=2),),
            [
                *told(0, "ab"),
                Step(1, beat("a", Presence.DOWN, claim_id="a", kind="redis")),
                Step(1, beat("b", Presence.DOWN, claim_id="b", kind="redis")),
                *told(5, "a", life="2"),
                *told(65, "a", life="2"),
                *told(700, "c"),
            ],
        ),
        [],
    ),
    "one server tells of a cull, too, that it had forgotten": (
        ((CALM,), [*told(0, "b"), *told(1, "a", Presence.DOWN, claim_id="a"), *told(5, "a", life="2")]),
        [entry("replaced", 5, "a", "unknown", seconds=4.0)],
    ),
    "ordinary beats, claims and refusals write nothing": (
        ((replace(CALM, capacity=Share(1)),), [*told(0, "abc"), *wanting(1, "ab"), *(Step(2, claim(n)) for n in "ab")]),
        [],
    ),
}
EACH_LEDGER: Final = pytest.mark.parametrize(
    ("story", "entries"), [pytest.param(*told, id=title) for title, told in LEDGERS.items()]
)


@EACH_LEDGER
async def test_what_became_of_a_cull_is_in_the_ledger(story: Story, entries: list[Entry]) -> None:
    world = World()
    terms, steps = story
    twin = world.twin(terms[0])
    for step in steps:
        await tell(world, [twin], step)
    assert await read(twin) == entries


@EACH_LEDGER
async def test_redis_writes_the_same(story: Story, entries: list[Entry], world: World) -> None:
    await assert_both_tell(story, world)
    budget = world.redis(story[0][0])
    assert await read(budget) == entries
    await budget.aclose()


async def test_ledger_that_cannot_be_written_refuses_nobody_and_one_that_can_ends_with_the_service(
    world: World,
) -> None:
    server = _server(world)
    server.cli("SET", STREAM, "no stream")
    budget = world.redis(TRIAL)
    for step in LEDGERS["replaced in its place, which helped"][0][1]:
        assert all(isinstance(answer, (Fleet, Granted)) for answer in await tell(world, [budget], step))
    server.cli("DEL", STREAM)
    await tell(world, [budget], Step(110, claim("b")))
    await tell(world, [budget], Step(120, beat("b", life="2")))
    assert [one.what for one in await read(budget)] == ["replaced"]
    assert 34 * 86400 < server.cli("TTL", STREAM) <= 35 * 86400
    await budget.aclose()


def _server(world: World) -> RedisServer:
    assert world.server is not None
    return world.server


# -- tokens -----------------------------------------------------------------------------------------------------

QUICK: Final = replace(CALM, probation_us=10 * S)
TOKENS: Final[dict[str, Story]] = {
    "every beat tells of the tokens, until the window is over": (
        (CALM,),
        [
            Step(0, beat("a"), {"used": 0, "capacity": 10}),
            Step(1, claim("b"), {"used": 1, "capacity": 10}),
            Step(1, beat("a"), {"used": 1, "capacity": 10}),
            Step(2, claim("c"), {"used": 2}),
            Step(2, beat("d", Presence.WANTS), {"used": 2, "capacity": 10}),
            Step(601, beat("a"), {"used": 2}),
            Step(601.000001, beat("a"), {"used": 1}),
            Step(602, beat("a"), {"used": 1}),
            Step(602.000001, beat("a"), {"used": 0}),
        ],
    ),
    "a part of the fleet is counted with who beats": (
        (replace(CALM, capacity=HALF),),
        [
            Step(0, beat("a"), {"used": 0, "capacity": 1}),
            Step(0, beat("b"), {"capacity": 1}),
            *told(0, "cde"),
            Step(0, beat("f"), {"capacity": 3}),
            Step(1, claim("a"), {"used": 1, "capacity": 3}),
            Step(1, beat("b"), {"used": 1, "capacity": 3}),
            Step(2, beat("b", Presence.GONE), {"used": 1, "capacity": 2}),
        ],
    ),
    "each server tells of its share": (
        (replace(CALM, servers=3, index=1), replace(CALM, servers=3, index=2, capacity=Share(2))),
        [
            *told(0, "abcd"),
            Step(0, beat("a"), {"used": 0, "capacity": 3}),
            Step(1, beat("b"), {"used": 0, "capacity": 0}, by=1),
            Step(2, beat("a"), {"used": 0, "capacity": 0}),
        ],
    ),
    "a token that was given back is not in use": (
        (replace(QUICK, earn_max=0),),
        [
            *told(0, "ab"),
            Step(1, claim("a"), {"used": 1}),
            *told(5, "a", life="2"),
            Step(6, beat("b"), {"used": 1}),
            Step(15, beat("a", life="2"), {"used": 0, "helped": 1}),
            Step(16, beat("b"), {"used": 0, "capacity": 10}),
        ],
    ),
    "the previous period weighs": (
        (replace(CALM, strategy="previous"),),
        [
            Step(0, beat("a"), {"used": 0, "capacity": 10}),
            Step(300, claim("b"), {"used": 1}),
            Step(300, beat("a"), {"used": 1}),
            Step(900, beat("a"), {"used": 1}),
            Step(1199, beat("a"), {"used": 1}),
            Step(1200, beat("a"), {"used": 0}),
            Step(1501, beat("a"), {"used": 0}),
        ],
    ),
    "the article's counter is read, and not counted up": (
        (replace(CALM, strategy="fixed", capacity=Share(2)),),
        [
            Step(0, beat("a"), {"used": 0, "capacity": 2}),
            Step(1, claim("b"), {"used": 1}),
            *[Step(2, beat("a"), {"used": 1, "capacity": 2})] * 3,
            *[Step(3, claim(name)) for name in "cd"],
            Step(4, beat("a"), {"used": 2, "capacity": 2}),
            Step(600, beat("a"), {"used": 0, "capacity": 2}),
        ],
    ),
}


@tellings(TOKENS)
async def test_beat_tells_of_the_tokens_as_a_claim_would(story: Story) -> None:
    await assert_twin_tells(story)


@tellings(TOKENS)
async def test_redis_tells_the_same(story: Story, world: World) -> None:
    await assert_both_tell(story, world)
