"""The gates of the fleet, one story each, told to the bucket in memory and to the one in a real Redis."""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from harness.claims import WINDOW_ONLY, S, beat, claim
from harness.stories import (
    CALM,
    FROZEN,
    Forget,
    Freeze,
    Release,
    Step,
    Story,
    assert_both_tell,
    assert_twin_tells,
    no,
    tellings,
    told,
    yes,
)
from harness.twins import World
from sidecar.core.birth import Mark
from sidecar.core.terms import HALF, Share
from sidecar.core.words import Fleet, Presence

HOLDS: dict[str, Story] = {
    "a hold of the service stops everyone, a replay too, until it ends": (
        (CALM,),
        [
            Step(0, claim("a"), yes(1)),
            Step(0, Freeze(60), {"until": FROZEN.until}),
            Step(1, claim("b"), {**no("hold", 59), "used": 1, "hold": FROZEN}),
            Step(59.999999, claim("a"), no("hold", 0.000001)),
            Step(59.999999, beat("c"), {"hold": FROZEN}),
            Step(60, claim("a"), yes(1, replayed=True)),
            Step(60, beat("c"), {"hold": None}),
        ],
    ),
    "a hold of one instance stops that one": (
        (CALM,),
        [
            Step(0, Freeze(60, "a")),
            Step(0, beat("a"), {"hold": replace(FROZEN, instance="a")}),
            Step(0, beat("b"), {"hold": None}),
            Step(0, claim("a"), no("hold", 60)),
            Step(0, claim("b"), yes(1)),
        ],
    ),
    "a hold ends when it is released": (
        (CALM,),
        [
            Step(0, Freeze(60)),
            Step(0, Freeze(60, "a")),
            Step(1, Release(), {"self": True}),
            Step(1, Release(), {"self": False}),
            Step(1, claim("b"), yes(1)),
            Step(1, claim("a"), no("hold", 59)),
            Step(1, Release("a"), {"self": True}),
            Step(1, claim("a"), yes(2)),
        ],
    ),
    "a hold before anybody has been heard of stands": (
        (CALM,),
        [Step(0, Freeze(60)), Step(1, claim("a"), no("hold", 59))],
    ),
}

EMPTY: Final = replace(WINDOW_ONLY, lost_is_empty=True)
MEMORY: dict[str, Story] = {
    "a bucket that is too young to be asked twice by anybody gives nothing": (
        (EMPTY,),
        [
            Step(0, claim("a"), no("newborn", 15)),
            Step(14.999999, claim("a"), no("newborn", 0.000001)),
            Step(15, claim("a"), yes(1)),
        ],
    ),
    "who knows that memory was lost stops all tokens for a window": (
        (EMPTY, EMPTY),
        [
            *told(0, "ab"),
            Step(15, claim("a"), yes(1)),
            Step(20, Forget()),
            Step(20, claim("b"), no("newborn", 15), by=1),
            Step(21, beat("a"), {"losses": 1}),
            Step(35, claim("b"), no("lost_memory", 585.000001), by=1),
            Step(36, beat("a"), {"losses": 1}),
            Step(620, claim("b"), no("lost_memory", 0.000001), by=1),
            Step(620.000001, claim("b"), no("newborn", 14.999999), by=1),
            Step(635, claim("b"), yes(1), by=1),
        ],
    ),
    "who knows of an older bucket tells by a mere beat that memory was lost": (
        (EMPTY, EMPTY),
        [*told(0, "ab"), Step(1, Forget()), Step(2, beat("b"), {"losses": 0}, by=1), Step(3, beat("a"), {"losses": 1})],
    ),
    "losses add up though the bucket forgets them too": (
        (WINDOW_ONLY,),
        [
            *told(0, "a"),
            Step(1, Forget()),
            Step(2, beat("a"), {"losses": 1}),
            Step(3, Forget()),
            Step(4, claim("a"), yes(1)),
            Step(5, beat("b"), {"losses": 2}),
        ],
    ),
    "a loss of memory may be shrugged off": (
        (WINDOW_ONLY,),
        [
            Step(0, claim("a"), yes(1)),
            Step(1, Forget()),
            Step(1, claim("b"), yes(1)),
            Step(1, beat("b"), {"losses": 1}),
        ],
    ),
    "half of the fleet falling silent at once is no news of the fleet, and waited out": (
        (EMPTY,),
        [
            *told(0, "abcd"),
            Step(20, beat("a")),
            Step(20, beat("b")),
            Step(30.000001, beat("a"), {"alive": 2}),
            Step(30.000001, claim("a"), no("newborn", 15)),
        ],
    ),
}

ALIVE: dict[str, Story] = {
    "half of the fleet has to stay, and who is missing does not": (
        (replace(CALM, min_healthy=HALF),),
        [
            *told(0, "abcde"),
            Step(0, claim("a"), {**yes(1), "alive": 5, "wanting": 1}),
            Step(0, claim("b"), yes(2)),
            Step(0, claim("c"), {**no("floor", 3600), "alive": 3, "wanting": 1}),
            Step(1, beat("a", life="2"), {"alive": 4, "down": 1}),
            Step(1, claim("c"), yes(3)),
        ],
    ),
    "a floor is rounded up": (
        (replace(CALM, min_healthy=Share(3)), replace(CALM, min_healthy=Share(334, is_part=True))),
        [*told(0, "ab"), Step(0, beat("c"), by=1), Step(0, claim("a"), no("floor", 3600), by=1)],
    ),
    "the last one of several stays": (
        (replace(CALM, never_last=True),),
        [
            *told(0, "ab"),
            Step(0, claim("a"), yes(1)),
            Step(0, claim("b"), no("last", 3600)),
            Step(0, beat("c")),
            Step(0, claim("b"), yes(2)),
        ],
    ),
    "one that was alone for an hour may go": (
        (replace(CALM, never_last=True, beat_us=10 * S),),
        [
            *told(0, "ab"),
            Step(60, beat("a"), {"alive": 1}),
            Step(61, beat("a")),
            Step(3599.999999, claim("a"), no("last", 10)),
            Step(3600, claim("a"), yes(1)),
        ],
    ),
    "one that was alone for an hour may go by the first server's leave": (
        (replace(CALM, servers=2, index=1, never_last=True),),
        [Step(0, beat("a")), Step(3600, claim("a"), no("share", 3600))],
    ),
    "of two servers each has its share of the tokens and of those who may be missing": (
        (replace(CALM, capacity=Share(3), min_healthy=Share(1), servers=2, index=1, spacing_us=S),),
        [
            *told(0, "abcdef"),
            Step(0, claim("a"), {**yes(1), "capacity": 1}),
            Step(1, claim("b"), no("spacing", 1)),
            Step(2, claim("b"), no("window", 598.000001)),
            Step(601, claim("b"), yes(1)),
        ],
    ),
    "a server whose share of the missing is spent gives no more": (
        (replace(CALM, min_healthy=Share(2), servers=2, index=1),),
        [*told(0, "abcd"), Step(0, claim("a"), yes(1)), Step(0, claim("b"), no("share", 3600))],
    ),
    "whom another server let go is missing, and not by this one's share": (
        (replace(CALM, min_healthy=Share(2), servers=2, index=1),),
        [
            *told(0, "abcde"),
            *told(0, "a", Presence.DOWN, claim_id="elsewhere"),
            Step(0, beat("b"), {"alive": 4, "down": 1}),
            Step(0, claim("b"), yes(1)),
            Step(0, claim("c"), no("share", 3600)),
        ],
    ),
    "a part of the fleet is rounded down, is one at least, and never all": (
        (replace(CALM, capacity=Share(1000, is_part=True)), replace(CALM, capacity=Share(100, is_part=True))),
        [
            *told(0, "a"),
            Step(0, claim("a"), {**yes(1), "capacity": 1}),
            *told(0, "bc"),
            Step(0, claim("b"), {**yes(2), "capacity": 2}),
            Step(0, claim("c"), {**no("window", 600.000001), "capacity": 1}, by=1),
        ],
    ),
    "who says goodbye or falls silent is no member any more": (
        (WINDOW_ONLY,),
        [
            *told(0, "abc"),
            *told(1, "a", Presence.GONE),
            Step(30, beat("b"), {"alive": 2}),
            Step(30.000001, beat("b"), {"alive": 1}),
        ],
    ),
}


each_story = tellings(HOLDS | MEMORY | ALIVE)


@each_story
async def test_stories_of_the_twin(story: Story) -> None:
    await assert_twin_tells(story)


@each_story
async def test_stories_in_redis(story: Story, world: World) -> None:
    await assert_both_tell(story, world)


async def test_server_that_fell_back_to_an_older_copy_is_told_by_a_mere_beat(world: World) -> None:
    twin, redis = world.twin(WINDOW_ONLY), world.redis(WINDOW_ONLY)
    for budget in (twin, redis):
        await budget.claim(claim("a"))
        await budget.beat(beat("b"))
    assert world.server is not None
    world.server.cli("HSET", "{ha:default/app}:state", "grants", 0)
    world.bucket.birth.mark = Mark(world.bucket.birth.mark.born_us, 0)
    told_in_redis, told_in_twin = await redis.beat(beat("b")), await twin.beat(beat("b"))
    await redis.aclose()
    assert told_in_redis == told_in_twin
    assert isinstance(told_in_redis, Fleet)
    assert told_in_redis.losses == 1
