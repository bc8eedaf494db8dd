"""What the bucket learns from its culls, one story each, told to the one in memory and the one in a real Redis."""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from harness.claims import S, beat, claim
from harness.stories import (
    CALM,
    Release,
    Step,
    Story,
    assert_both_tell,
    assert_twin_tells,
    no,
    tellings,
    told,
    wanting,
    yes,
)
from harness.twins import World
from sidecar.core.terms import Share
from sidecar.core.words import Brake, Presence

BRAKING: Final = replace(CALM, brake=500, probation_us=60 * S)
SICK: Final = [*told(0, "abcdef"), *wanting(1, "abc")]
"""Half of the fleet suffers, and the others know of it."""

BRAKES: dict[str, Story] = {
    "when half of the fleet suffers there is one canary a window": (
        (BRAKING,),
        [
            *told(0, "abcdef"),
            *wanting(1, "ab"),
            Step(1, beat("d"), {"brake": Brake.OFF, "wanting": 2, "cause": ""}),
            *wanting(1, "c"),
            Step(1, beat("d"), {"brake": Brake.ON, "wanting": 3, "cause": "redis"}),
            Step(2, claim("a"), {**yes(1), "canary": True}),
            Step(2, claim("b"), {**no("brake", 3600), "cause": ""}),
            Step(2, claim("a"), yes(1, replayed=True)),
            *wanting(600, "bcd"),
            Step(602, claim("c"), no("brake", 3600)),
            Step(602.000001, claim("c"), {**yes(1), "canary": True}),
        ],
    ),
    "the first server has the canary": (
        (replace(BRAKING, servers=2), replace(BRAKING, servers=2, index=1)),
        [*SICK, Step(2, claim("a"), no("brake", 3600), by=1), Step(2, claim("a"), {**yes(1), "canary": True})],
    ),
    "a canary that helped opens the brake for this incident": (
        (BRAKING,),
        [
            *SICK,
            Step(2, claim("a"), {"canary": True}),
            Step(10, beat("a", life="2"), {"brake": Brake.ON, "helped": 0}),
            Step(11, beat("e", Presence.WANTS)),
            Step(69.999999, beat("a", life="2"), {"brake": Brake.ON, "helped": 0}),
            Step(70, beat("a", life="2"), {"brake": Brake.OPEN, "helped": 1}),
            Step(70, claim("b"), yes(2)),
        ],
    ),
    "a canary that did not help closes it, and a person may release it": (
        (BRAKING,),
        [
            *SICK,
            Step(2, claim("a"), {"canary": True}),
            Step(10, beat("a", life="2")),
            *wanting(20, "a", life="2"),
            Step(20, beat("f"), {"brake": Brake.CLOSED, "unhelped": 1}),
            Step(21, claim("b"), no("brake", 3600)),
            Step(700, claim("b"), no("brake", 3600)),
            Step(701, Release(), {"self": False}),
            Step(701, claim("b"), {**yes(1), "canary": True}),
        ],
    ),
    "its failure tells of the incident and not of the kind": (
        (replace(BRAKING, useless_after=1),),
        [
            *SICK,
            Step(2, claim("a"), {"canary": True}),
            *wanting(20, "a", life="2"),
            Step(20, beat("f"), {"brake": Brake.CLOSED, "unhelped": 1, "useless": ()}),
        ],
    ),
    "an incident is over once fewer have suffered for a probation": (
        (BRAKING,),
        [
            *SICK,
            Step(5, beat("d"), {"brake": Brake.ON}),
            Step(6, beat("a"), {"brake": Brake.ON, "wanting": 2}),
            Step(65, beat("d"), {"brake": Brake.ON}),
            Step(65.000001, beat("d"), {"brake": Brake.OFF}),
        ],
    ),
    "four fifths that name a kind share it": (
        (CALM,),
        [
            *wanting(0, "abcd"),
            *wanting(0, "e", "disk"),
            Step(0, beat("f"), {"cause": "redis"}),
            *wanting(0, "f", "disk"),
            Step(0, beat("g"), {"cause": ""}),
            *wanting(0, "ab", "disk"),
            Step(0, beat("g"), {"cause": ""}),
            *wanting(0, "c", "disk"),
            Step(0, beat("g"), {"cause": "disk", "wanting": 6}),
        ],
    ),
}

TRIAL: Final = replace(CALM, probation_us=60 * S)
TRIALS: dict[str, Story] = {
    "a replacement that starts is watched from when it is well": (
        (TRIAL,),
        [
            Step(0, claim("a"), yes(1)),
            *told(5, "a", Presence.STARTING, life="2"),
            Step(90, beat("a", life="2"), {"helped": 0, "down": 0}),
            Step(150, beat("a", life="2"), {"helped": 1}),
            Step(151, beat("a", Presence.WANTS, life="2"), {"unhelped": 0}),
        ],
    ),
    "a replacement that is replaced, or leaves, tells nothing": (
        (TRIAL,),
        [
            Step(0, claim("a"), yes(1)),
            Step(0, claim("b"), yes(2)),
            *told(5, "ab", life="2"),
            Step(6, beat("a", life="3"), {"unclear": 1}),
            Step(7, beat("b", Presence.GONE, life="2"), {"unclear": 2}),
        ],
    ),
    "whoever has not been replaced within a window is given up, unless it says that it is down": (
        (TRIAL,),
        [
            Step(0, claim("a"), yes(1)),
            Step(0, claim("b"), yes(2)),
            Step(1, beat("b", Presence.DOWN, claim_id="b"), {"down": 2}),
            Step(600, beat("c"), {"down": 2, "unclear": 0}),
            Step(600.000001, beat("c"), {"down": 1, "unclear": 1}),
            Step(601, beat("c"), {"down": 1, "unclear": 1}),
            Step(601.000001, beat("c"), {"down": 0, "unclear": 2}),
        ],
    ),
    "a newcomer takes the place of one whose sidecar has gone": (
        (TRIAL,),
        [
            Step(0, claim("a"), yes(1)),
            Step(1, beat("n", first=True), {"down": 1}),
            *told(2, "a", Presence.DOWN, claim_id="a"),
            Step(2, beat("m", first=True), {"down": 1}),
            *told(2, "a", Presence.GONE),
            Step(3, beat("n", first=True), {"down": 1}),
            Step(3, beat("o"), {"down": 1}),
            Step(3, beat("p", first=True), {"down": 0}),
            Step(4, beat("a", Presence.DOWN, claim_id="a"), {"down": 0}),
            Step(63, beat("p"), {"helped": 1}),
        ],
    ),
    "a newcomer takes the place that is empty longest, and of two the first by name": (
        (TRIAL,),
        [
            *[Step(at_s, claim(name), {"replayed": False}) for at_s, name in ((0, "c"), (1, "b"), (1, "a"))],
            *told(2, "abc", Presence.GONE),
            Step(3, beat("n", first=True), {"down": 2}),
            Step(4, beat("c", life="2"), {"down": 2}),
            Step(5, beat("o", first=True), {"down": 1}),
            Step(6, beat("a", life="2"), {"down": 1}),
            Step(7, beat("b", life="2"), {"down": 0}),
        ],
    ),
    "who serves again after it was replaced is missing once more when it goes down": (
        (TRIAL,),
        [
            Step(0, claim("a"), yes(1)),
            *told(1, "a", Presence.GONE),
            Step(2, beat("n", first=True), {"down": 0}),
            Step(3, beat("a", life="2"), {"down": 0}),
            Step(70, beat("n"), {"helped": 1}),
            Step(71, beat("a", Presence.DOWN, life="2", claim_id="elsewhere"), {"down": 1}),
        ],
    ),
    "who comes back replaces nobody else": (
        (TRIAL,),
        [
            *told(0, "ab"),
            *told(1, "b", Presence.GONE),
            Step(2, claim("a"), yes(1)),
            *told(2, "a", Presence.GONE),
            Step(3, beat("b", first=True), {"down": 1}),
            Step(3, beat("c", first=True), {"down": 0}),
        ],
    ),
    "who was replaced before it went down passes the gates once more": (
        (replace(TRIAL, capacity=Share(1)),),
        [
            *told(0, "ab"),
            Step(1, claim("a"), yes(1)),
            Step(2, beat("a", life="2"), {"down": 0}),
            Step(3, claim("a"), yes(1, replayed=True)),
        ],
    ),
}

USELESS: Final = replace(TRIAL, useless_after=2)


def failed(at_s: float, name: str) -> list[Step]:
    """A cull whose replacement wants to be culled again."""
    return [
        Step(at_s, claim(name), {"replayed": False}),
        *told(at_s + 1, name, life="2"),
        *wanting(at_s + 2, name, life="2"),
        *told(at_s + 3, name, life="3"),
    ]


LEARNT: dict[str, Story] = {
    "a kind that culls did not help with twice in a row no longer culls": (
        (USELESS,),
        [
            *failed(0, "a"),
            Step(5, beat("z"), {"useless": (), "unhelped": 1}),
            *failed(10, "b"),
            Step(15, beat("z"), {"useless": ("redis",), "unhelped": 2}),
            Step(20, claim("c"), no("useless", 3600)),
            Step(20, claim("d", "disk"), yes(3)),
        ],
    ),
    "it has a clean sheet after an hour without it": (
        (USELESS,),
        [
            *failed(0, "a"),
            *failed(10, "b"),
            Step(3612, beat("z"), {"useless": ("redis",)}),
            Step(3612.000001, beat("z"), {"useless": ()}),
            Step(3613, claim("c"), yes(1)),
        ],
    ),
    "it keeps its sheet while somebody suffers from it": (
        (USELESS,),
        [
            *failed(0, "a"),
            *failed(10, "b"),
            *wanting(3000, "c"),
            Step(6600, beat("z"), {"useless": ("redis",)}),
            Step(6600.000001, beat("z"), {"useless": ()}),
        ],
    ),
    "a person may give it a clean sheet": (
        (USELESS,),
        [*failed(0, "a"), *failed(10, "b"), Step(20, Release()), Step(20, claim("c"), yes(3))],
    ),
    "a cull that helped gives it a clean sheet": (
        (USELESS,),
        [
            *failed(0, "a"),
            Step(10, claim("b"), yes(2)),
            *told(11, "b", life="2"),
            Step(71, beat("b", life="2"), {"helped": 1}),
            *failed(80, "c"),
            Step(90, beat("z"), {"useless": ()}),
        ],
    ),
}


each_story = tellings(BRAKES | TRIALS | LEARNT)


@each_story
async def test_stories_of_the_twin(story: Story) -> None:
    await assert_twin_tells(story)


@each_story
async def test_stories_in_redis(story: Story, world: World) -> None:
    await assert_both_tell(story, world)
