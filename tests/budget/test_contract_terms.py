"""Tokens that are earned back, and sidecars that go by different terms: stories for both buckets."""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from harness.claims import WINDOW_ONLY, S, beat, claim
from harness.stories import CALM, Step, Story, assert_both_tell, assert_twin_tells, no, tellings, told, yes
from harness.twins import World
from sidecar.core.terms import Share

TRIAL: Final = replace(CALM, probation_us=60 * S)
EARNING: Final = replace(TRIAL, capacity=Share(1), earn_max=2)
EARNED: dict[str, Story] = {
    "a cull that is proven gives its token back, up to so many a window": (
        (EARNING,),
        [
            Step(0, claim("a"), yes(1)),
            *told(1, "a", life="2"),
            Step(10, claim("b"), no("window", 590.000001)),
            Step(61, beat("a", life="2"), {"helped": 1}),
            Step(62, claim("b"), yes(1)),
            *told(63, "b", life="2"),
            Step(123, beat("b", life="2"), {"helped": 2}),
            Step(130, claim("c"), {**no("earn_max", 470.000001), "used": 0}),
            Step(600.000001, claim("c"), yes(1)),
        ],
    ),
    "tokens are counted again once somebody does not earn": (
        (EARNING, TRIAL),
        [
            Step(0, claim("a"), yes(1)),
            *told(1, "a", life="2"),
            Step(61, beat("a", life="2"), {"helped": 1}),
            Step(62, beat("z"), {"policies": 2}, by=1),
            Step(62, claim("b"), {**no("window", 538.000001), "used": 1}),
        ],
    ),
}

DRIFT: dict[str, Story] = {
    "the strictest of all terms holds, for as long as somebody goes by them": (
        (replace(WINDOW_ONLY, capacity=Share(3)), replace(WINDOW_ONLY, capacity=Share(1), spacing_us=20 * S)),
        [
            Step(0, claim("a"), {**yes(1), "capacity": 3}),
            Step(1, beat("z"), {"policies": 2}, by=1),
            Step(1, claim("b"), no("spacing", 19)),
            Step(20, claim("b"), {**no("window", 580.000001), "capacity": 1}),
            Step(31, beat("y"), {"policies": 2}),
            Step(31.000001, beat("y"), {"policies": 1}),
            Step(32, claim("b"), {**yes(2), "capacity": 3}),
        ],
    ),
    "a window that is longer counts for all": (
        (replace(WINDOW_ONLY, capacity=Share(1)), replace(WINDOW_ONLY, window_us=1200 * S)),
        [
            Step(0, claim("a"), yes(1)),
            Step(601, beat("z"), {"policies": 1}, by=1),
            Step(601, claim("b"), no("window", 599.000001)),
            Step(632, claim("b"), yes(1)),
        ],
    ),
}


each_story = tellings(EARNED | DRIFT)


@each_story
async def test_stories_of_the_twin(story: Story) -> None:
    await assert_twin_tells(story)


@each_story
async def test_stories_in_redis(story: Story, world: World) -> None:
    await assert_both_tell(story, world)
