"""Who may go for its age, one story each, told to the bucket in memory and to the one in a real Redis."""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from harness.claims import S, beat, claim, lease
from harness.stories import (
    CALM,
    FROZEN,
    Forget,
    Freeze,
    Release,
    Resign,
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
from sidecar.core.terms import HALF, Share
from sidecar.core.words import Brake, Presence

DOWN: Final = Presence.DOWN
FOUR: Final = told(0, "abcd")


def gone(used: int, capacity: int = 1, **more: object) -> dict[str, object]:
    return yes(used, capacity=capacity, **more)


SLOTS: dict[str, Story] = {
    "as many go at a time as there are slots, and it costs no token": (
        (replace(CALM, capacity=Share(1)),),
        [
            *FOUR,
            Step(1, lease("a", slots="2"), {**gone(1, 2), "alive": 4}),
            Step(1, lease("b", slots="2"), {**gone(2, 2), "alive": 3}),
            Step(1, lease("c", slots="2"), {**no("slots", 3600), "used": 2, "capacity": 2}),
            Step(1, beat("d"), {"alive": 2, "down": 2, "retiring": 2}),
            Step(1, claim("c"), yes(1)),
        ],
    ),
    "a part of the fleet is rounded down, and is one at least": (
        (CALM,),
        [
            *told(0, "abcdefghi"),
            Step(1, lease("a", slots="250p"), gone(1, 2)),
            Step(1, lease("b", slots="250p"), gone(2, 2)),
            Step(1, lease("c", slots="250p"), no("slots", 3600)),
            Step(1, lease("c", slots="1p"), {**no("slots", 3600), "capacity": 1}),
        ],
    ),
    "who asks again is granted again while its time lasts, and costs nothing": (
        (CALM,),
        [
            *FOUR,
            Step(1, lease("a"), gone(1)),
            Step(2, lease("a"), gone(1, replayed=True)),
            Step(300, lease("a"), gone(1, replayed=True)),
            Step(300.999999, lease("b"), no("slots", 3600)),
            Step(301, lease("b"), gone(1)),
            Step(301, lease("a"), no("slots", 3600)),
        ],
    ),
    "a container has one slot, whoever holds it": (
        (CALM,),
        [
            *FOUR,
            Step(1, lease("a", slots="3"), gone(1, 3)),
            Step(2, lease("a", "another's", slots="3"), no("slots", 3600)),
            Step(301, lease("a", "another's", slots="3"), gone(1, 3)),
        ],
    ),
    "a slot is free when its time is over, and not before, though its container stays missing": (
        (CALM,),
        [
            *FOUR,
            Step(0, lease("a"), gone(1)),
            *told(290, "a", DOWN, lease="a's"),
            Step(299.999999, lease("b"), no("slots", 3600)),
            Step(299.999999, beat("d"), {"retiring": 1, "down": 1}),
            Step(300, beat("d"), {"retiring": 0, "down": 1}),
            Step(300, lease("b"), gone(1)),
            Step(889, beat("a", DOWN, lease="a's"), {"retiring": 0, "down": 2}),
            Step(900.000001, beat("d"), {"retiring": 0, "down": 1}),
        ],
    ),
    "a clock that steps back stands still at the newest lease": (
        (CALM,),
        [
            *FOUR,
            Step(1000, lease("a"), gone(1)),
            Step(0, lease("b"), {**no("slots", 4600)}),
            Step(1300, lease("b"), gone(1)),
            Step(1200, lease("c"), no("slots", 3700)),
            Step(1599.999999, lease("c"), no("slots", 3600)),
            Step(1600, lease("c"), gone(1)),
        ],
    ),
}

ENDS: dict[str, Story] = {
    "it ends when another life in its place is well, and not while that starts": (
        (CALM,),
        [
            *FOUR,
            Step(1, lease("a"), gone(1)),
            *told(2, "a", DOWN, lease="a's"),
            Step(3, beat("a", Presence.STARTING, life="2"), {"alive": 4, "down": 0, "retiring": 1}),
            Step(4, lease("b"), no("slots", 3600)),
            Step(5, beat("a", life="2"), {"retiring": 0, "helped": 0}),
            Step(5, lease("b"), gone(1)),
        ],
    ),
    "it ends when the newcomer that took its place is well": (
        (CALM,),
        [
            *FOUR,
            Step(1, lease("a"), gone(1)),
            *told(2, "a", DOWN, lease="a's"),
            *told(3, "a", Presence.GONE),
            Step(4, beat("n", Presence.STARTING, first=True), {"down": 0, "retiring": 1}),
            Step(5, beat("n", Presence.WANTS), {"retiring": 1}),
            Step(6, beat("b"), {"retiring": 1}),
            Step(7, beat("n"), {"retiring": 0}),
            Step(8, beat("a", DOWN, lease="a's"), {"down": 0, "retiring": 0}),
        ],
    ),
    "a newcomer that has a slot by its name is another life of that one": (
        (CALM,),
        [
            *FOUR,
            Step(1, lease("a", slots="2", timeout_s=3600), gone(1, 2)),
            Step(1, lease("b", slots="2", timeout_s=3600), gone(2, 2)),
            *told(2, "ab", Presence.GONE),
            *told(603, "c"),
            Step(604, beat("a", Presence.STARTING, life="2", first=True), {"retiring": 2}),
            Step(605, beat("a", life="2"), {"retiring": 1}),
        ],
    ),
    "its holder gives it back, and nobody else": (
        (CALM,),
        [
            *FOUR,
            Step(1, lease("a"), gone(1)),
            Step(2, beat("a"), {"alive": 3, "down": 1}),
            Step(3, Resign("a", "another's"), {"self": False}),
            Step(3, Resign("b", "a's"), {"self": False}),
            Step(3, beat("a"), {"alive": 3, "down": 1, "retiring": 1}),
            Step(4, Resign("a", "a's"), {"self": True}),
            Step(4, Resign("a", "a's"), {"self": False}),
            Step(5, beat("a"), {"alive": 4, "down": 0, "retiring": 0}),
        ],
    ),
    "after its time it can still be taken back": (
        (CALM,),
        [
            *FOUR,
            Step(1, lease("a"), gone(1)),
            Step(301, Resign("a", "a's"), {"self": True}),
            Step(302, beat("a"), {"alive": 4, "down": 0}),
        ],
    ),
    "a token is not given back so": (
        (CALM,),
        [
            *FOUR,
            Step(1, claim("a"), yes(1)),
            Step(2, Resign("a", "a"), {"self": False}),
            Step(3, beat("a"), {"down": 1}),
        ],
    ),
}

YIELDS: dict[str, Story] = {
    "nobody goes under a hold, nor again": (
        (CALM,),
        [
            *FOUR,
            Step(0, lease("a"), gone(1)),
            Step(0, Freeze(60)),
            Step(1, lease("a"), {**no("hold", 59), "used": 1, "capacity": 1, "hold": FROZEN}),
            Step(1, lease("b"), no("hold", 59)),
            Step(2, Release()),
            Step(2, lease("a"), gone(1, replayed=True)),
        ],
    ),
    "who wants a cull for a kind that those do not help with holds up nobody": (
        (replace(CALM, useless_after=1),),
        [
            *told(0, "abcdef"),
            *wanting(1, "a"),
            Step(2, claim("a"), yes(1)),
            Step(3, beat("a", life="2"), {"down": 0}),
            Step(4, beat("a", Presence.WANTS, life="2", kind="redis"), {"unhelped": 1, "useless": ("redis",)}),
            Step(5, lease("b"), {**gone(1), "wanting": 1}),
            *wanting(6, "c", kind="mysql"),
            Step(7, lease("d", slots="2"), {**no("culls", 3600), "wanting": 2}),
        ],
    ),
    "nobody goes while somebody wants to be culled": (
        (CALM,),
        [
            *FOUR,
            *wanting(1, "b"),
            Step(2, lease("a"), {**no("culls", 3600), "wanting": 1}),
            *told(3, "b"),
            Step(4, lease("a"), gone(1)),
        ],
    ),
    "who asks for its age is well itself": (
        (CALM,),
        [*FOUR, *wanting(1, "a"), Step(2, lease("a"), {**gone(1), "wanting": 0})],
    ),
    "nobody goes while the brake is anything but off": (
        (replace(CALM, brake=500, probation_us=60 * S),),
        [
            *told(0, "abcdef"),
            *wanting(1, "abc"),
            *told(2, "abc"),
            Step(3, lease("d"), {**no("brake", 3600), "wanting": 0}),
            Step(61.000001, beat("d"), {"brake": Brake.OFF}),
            Step(62, lease("d"), gone(1)),
        ],
    ),
    "nobody goes after a loss of memory": (
        (replace(CALM, lost_is_empty=True),),
        [
            *FOUR,
            Step(5400, lease("a"), gone(1)),
            Step(5401, Forget()),
            Step(5401, beat("b"), {"losses": 1}),
            Step(5402, lease("c"), no("lost_memory", 599.000001)),
        ],
    ),
    "the floor counts both who is culled and who went": (
        (replace(CALM, min_healthy=HALF),),
        [
            *FOUR,
            Step(1, claim("a"), yes(1)),
            Step(2, lease("b", slots="4"), gone(1, 4)),
            Step(3, lease("c", slots="4"), no("floor", 3600)),
            Step(3, claim("c"), no("floor", 3600)),
            Step(4, beat("c"), {"alive": 2, "down": 2}),
        ],
    ),
    "the last one stays": (
        (replace(CALM, never_last=True),),
        [*told(0, "ab"), Step(1, lease("a", slots="2"), gone(1, 2)), Step(2, lease("b", slots="2"), no("last", 3600))],
    ),
    "the first of several servers keeps to its share": (
        (replace(CALM, min_healthy=HALF, servers=2),),
        [
            *FOUR,
            Step(1, lease("a", slots="4"), gone(1, 4)),
            Step(2, lease("b", slots="4"), no("share", 3600)),
        ],
    ),
    "a service of one may go when it was alone for an hour": (
        (replace(CALM, never_last=True),),
        [
            Step(0, beat("a")),
            Step(3599.999999, lease("a"), no("last", 3600)),
            Step(3600, lease("a"), gone(1)),
        ],
    ),
}

UNJUDGED: dict[str, Story] = {
    "nobody learns from it": (
        (replace(CALM, probation_us=60 * S, useless_after=1),),
        [
            *FOUR,
            Step(1, lease("a"), gone(1)),
            *told(2, "a", DOWN, lease="a's", kind="redis"),
            *told(3, "a", life="2"),
            Step(4, beat("a", Presence.WANTS, life="2", kind="redis"), {"unhelped": 0, "useless": ()}),
            *told(5, "a", life="2"),
            Step(5, lease("b"), gone(1)),
            Step(605.000001, beat("c"), {"unclear": 0, "down": 0, "culls_by": ()}),
        ],
    ),
    "a replacement that goes while it is on trial tells nothing": (
        (replace(CALM, probation_us=60 * S),),
        [
            *FOUR,
            Step(1, claim("a"), yes(1)),
            *told(2, "a", life="2"),
            Step(3, lease("a", life="2"), gone(1)),
            Step(4, beat("a", DOWN, life="2", lease="a's"), {"unclear": 1, "unhelped": 0}),
        ],
    ),
    "how many culls of which kind ended how is told, of twenty kinds": (
        (replace(CALM, capacity=Share(99)),),
        [
            *[Step(number, claim(f"c{number:02}", kind=f"k{number:02}")) for number in range(22)],
            Step(
                700,
                beat("z"),
                {"culls_by": (*(("unclear", f"k{number:02}", 1) for number in range(20)), ("unclear", "other", 2))},
            ),
        ],
    ),
}

LOST: dict[str, Story] = {
    "those that are down bring their leases back, more than there are slots": (
        (CALM,),
        [
            *FOUR,
            Step(1, lease("a", slots="2"), gone(1, 2)),
            Step(1, lease("b", slots="2"), gone(2, 2)),
            Step(2, Forget()),
            Step(3, beat("a", DOWN, lease="a's"), {"down": 1, "retiring": 1}),
            Step(3, beat("b", DOWN, lease="b's"), {"down": 2, "retiring": 2}),
            *told(3, "cd"),
            Step(4, lease("c"), {**no("slots", 3600), "used": 2}),
            Step(602.999999, beat("a", DOWN, lease="a's"), {"down": 2, "retiring": 2}),
            Step(603, beat("b", DOWN, lease="b's"), {"down": 2, "retiring": 0}),
            Step(604, lease("c"), gone(1)),
        ],
    ),
    "a server that is not the first has no slots": (
        (replace(CALM, servers=2, index=1),),
        [*FOUR, Step(1, beat("a", DOWN, lease="a's"), {"down": 1, "retiring": 0})],
    ),
    "a grant of a lease shows a loss as one of a token does": (
        (CALM,),
        [*FOUR, Step(1, lease("a"), gone(1)), Step(2, Forget()), Step(2, beat("b"), {"losses": 1})],
    ),
}


each_story = tellings(SLOTS | ENDS | YIELDS | UNJUDGED | LOST)


@each_story
async def test_stories_of_the_twin(story: Story) -> None:
    await assert_twin_tells(story)


@each_story
async def test_stories_in_redis(story: Story, world: World) -> None:
    await assert_both_tell(story, world)
