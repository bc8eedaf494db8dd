"""Three nodes in virtual time, ten calls a second: one dies, and comes back."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from random import Random

import pytest

from sidecar.cascade.fallback import Cascade
from sidecar.core.measure.success_rate import DEFAULT_FLOOR, Floor

CALLS_A_SECOND = 10
NODES = ("a", "b", "c")
ILL = "c"
LITERAL = Floor.of_gist(len(NODES))

seeds = pytest.mark.parametrize("seed", range(5))


@dataclass
class Fleet:
    """The nodes, the dead ones among them, and which node was called first at which time."""

    seed: int
    floor: Floor = DEFAULT_FLOOR
    now_s: float = 0.0
    dead: set[str] = field(default_factory=set)
    firsts: list[tuple[float, str]] = field(default_factory=list)
    answered: int = 0

    def __post_init__(self) -> None:
        self.cascade = Cascade(NODES, Random(self.seed), lambda: self.now_s, floor=self.floor)

    async def serve(self, seconds: float, beat_s: float | None = None) -> None:
        """Let the calls of that many seconds pass; with ``beat_s`` every node hears a beat that often."""
        for _ in range(round(seconds * CALLS_A_SECOND)):
            if beat_s and round(self.now_s * CALLS_A_SECOND) % round(beat_s * CALLS_A_SECOND) == 0:
                await self._beat()
            await self._call()
            self.now_s += 1 / CALLS_A_SECOND

    async def _call(self) -> None:
        walk = await self.cascade.walk(self._answer)
        self.firsts.append((self.now_s, next(iter([*walk.errors, *walk.results]))))
        self.answered += walk.settled

    async def _beat(self) -> None:
        for node in NODES:
            try:
                await self.cascade.attempt(node, self._answer)
            except TimeoutError:
                assert node in self.dead

    async def _answer(self, node: str) -> str:
        if node in self.dead:
            raise TimeoutError
        return "pong"

    def share(self, from_s: float, to_s: float) -> float:
        """Share of the first tries that went to the ill one between those times."""
        firsts = [node for at_s, node in self.firsts if from_s <= at_s < to_s]
        return firsts.count(ILL) / len(firsts)

    def tries(self, from_s: float) -> Iterator[float]:
        """Times from then on at which the ill one was tried first."""
        return (at_s for at_s, node in self.firsts if node == ILL and at_s >= from_s)


@seeds
async def test_dead_node_loses_its_first_places_within_seconds(seed: int) -> None:
    fleet = Fleet(seed)
    await fleet.serve(60)
    assert fleet.share(0, 60) == pytest.approx(1 / 3, abs=0.08)
    fleet.dead.add(ILL)
    await fleet.serve(120)
    assert fleet.share(65, 180) < 0.02
    assert fleet.answered == 180 * CALLS_A_SECOND, "a caller never notices"


@seeds
async def test_node_that_returns_has_its_full_share_again_within_minutes(seed: int) -> None:
    fleet = Fleet(seed)
    await fleet.serve(60)
    fleet.dead.add(ILL)
    await fleet.serve(120)
    fleet.dead.clear()
    await fleet.serve(240)
    found_s = next(fleet.tries(180))
    assert found_s < 180 + 120
    assert fleet.share(found_s, found_s + 60) == pytest.approx(1 / 3, abs=0.08)


@seeds
async def test_by_the_letter_of_the_gist_it_is_not_looked_at_again(seed: int) -> None:
    fleet = Fleet(seed, LITERAL)
    fleet.dead.add(ILL)
    await fleet.serve(60)
    fleet.dead.clear()
    await fleet.serve(600)
    assert list(fleet.tries(65)) == []


@seeds
@pytest.mark.parametrize("floor", [DEFAULT_FLOOR, LITERAL], ids=["default", "literal"])
async def test_beats_to_all_nodes_bring_it_back_under_any_floor(floor: Floor, seed: int) -> None:
    fleet = Fleet(seed, floor)
    await fleet.serve(60, beat_s=10)
    fleet.dead.add(ILL)
    await fleet.serve(60, beat_s=10)
    fleet.dead.clear()
    await fleet.serve(60, beat_s=10)
    assert next(fleet.tries(120)) < 120 + 15
    assert fleet.share(140, 180) == pytest.approx(1 / 3, abs=0.1)
