"""Stories of a fleet: who says what at which time, and what of the answer matters."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any, Final

import pytest

from harness.claims import WINDOW_ONLY, S, beat
from harness.twins import START_US, World
from sidecar.budget import Budget
from sidecar.core.terms import Terms
from sidecar.core.words import Beat, Claim, Hold, Lease, Presence

HOUR: Final = 3600
CALM: Final = replace(WINDOW_ONLY, beat_us=HOUR * S)
"""Nobody falls silent within these stories, unless they are told by other terms."""


@dataclass(frozen=True)
class Freeze:
    for_s: float
    instance: str = ""


@dataclass(frozen=True)
class Release:
    instance: str = ""


@dataclass(frozen=True)
class Resign:
    instance: str
    holder: str


class Forget:
    """The server loses its memory."""


Asked = Claim | Beat | Lease | Resign | Freeze | Release


@dataclass(frozen=True)
class Step:
    """``shows``: fields of the answer, as far as they matter here. ``by`` whose terms: their place in the story's."""

    at_s: float
    what: Asked | Forget
    shows: dict[str, Any] = field(default_factory=dict)
    by: int = 0


Story = tuple[tuple[Terms, ...], list[Step]]


def tellings(stories: dict[str, Story]) -> pytest.MarkDecorator:
    """Hands a test each ``story``, by its title."""
    return pytest.mark.parametrize("story", [pytest.param(story, id=title) for title, story in stories.items()])


def told(at_s: float, names: str, presence: Presence = Presence.WELL, **more: Any) -> list[Step]:
    """One beat of each container; their names are letters."""
    return [Step(at_s, beat(name, presence, **more)) for name in names]


def wanting(at_s: float, names: str, kind: str = "redis", **more: Any) -> list[Step]:
    return told(at_s, names, Presence.WANTS, kind=kind, **more)


def no(reason: str, retry_after_s: float) -> dict[str, Any]:
    return {"reason": reason, "retry_after_s": retry_after_s}


def yes(used: int, **more: Any) -> dict[str, Any]:
    return {"used": used, "replayed": False, "canary": False, **more}


FROZEN: Final = Hold("ops", "a deploy", START_US / S + 60)


async def tell(world: World, budgets: list[Budget], step: Step) -> list[Any]:
    """What each bucket answers to this step; nothing from any when it is no question."""
    world.go(START_US + round(step.at_s * S))
    if isinstance(step.what, Forget):
        world.forget()
        return []
    return [await _ask(budget, step.what) for budget in budgets]


async def _ask(budget: Budget, what: Asked) -> Any:
    match what:
        case Claim():
            return await budget.claim(what)
        case Beat():
            return await budget.beat(what)
        case Lease():
            return await budget.retire(what)
        case Resign():
            return await budget.resign(what.instance, what.holder)
        case Freeze():
            return await budget.hold(what.instance, "ops", "a deploy", what.for_s)
        case Release():
            return await budget.release(what.instance)


def shown(answer: Any, fields: dict[str, Any]) -> dict[str, Any]:
    """The same fields of the answer, as far as it has them."""
    return {name: answer if name == "self" else getattr(answer, name, None) for name in fields}


async def assert_twin_tells(story: Story) -> None:
    """The bucket in memory answers as told."""
    terms, steps = story
    world = World()
    twins = [world.twin(one) for one in terms]
    for step in steps:
        for answer in await tell(world, [twins[step.by]], step):
            assert shown(answer, step.shows) == step.shows, step


async def assert_both_tell(story: Story, world: World) -> None:
    """The bucket in Redis answers as the one in memory does, field by field."""
    terms, steps = story
    twins, redis = [world.twin(one) for one in terms], [world.redis(one) for one in terms]
    for step in steps:
        answers = await tell(world, [twins[step.by], redis[step.by]], step)
        assert answers[1:] == answers[:1], step
        assert await redis[step.by].roll() == await twins[step.by].roll(), step
    assert await redis[0].entries(0, "", 1000) == await twins[0].entries(0, "", 1000)
    for budget in redis:
        await budget.aclose()
