"""Three nodes in virtual time, ten calls a second: one dies, and comes back."""

from __future__ import annotations

from collections.abc import Iterator
from random import Random

import pytest

from sidecar.client import Cascade
from sidecar.client.success_rate import DEFAULT_FLOOR, Floor

CALLS_A_SECOND = 10
NODES = ("a", "b", "c")
ILL = "c"
LITERAL = Floor.of_gist(len(NODES))

seeds = pytest.mark.parametrize("seed", range(3))


class Service:
    """The nodes, whether the ill one is dead, and which node was called first at which time."""

    def __init__(self, seed: int, floor: Floor = DEFAULT_FLOOR) -> None:
        self.now_s = 0.0
        self.is_dead = False
        self.firsts: list[tuple[float, str]] = []
        self._cascade = Cascade(NODES, rng=Random(seed), clock=lambda: self.now_s, floor=floor)

    async def serve(self, seconds: float) -> None:
        """Let the calls of that many seconds pass; each of them is answered."""
        for _ in range(round(seconds * CALLS_A_SECOND)):
            called: list[str] = []

            async def answer(node: str, called: list[str] = called) -> str:
                called.append(node)
                if self.is_dead and node == ILL:
                    raise TimeoutError
                return "pong"

            assert await self._cascade.run(answer) == "pong"
            self.firsts.append((self.now_s, called[0]))
            self.now_s += 1 / CALLS_A_SECOND

    def share(self, from_s: float, to_s: float) -> float:
        """The part of the first places that the ill one had between those times."""
        firsts = [node for at_s, node in self.firsts if from_s <= at_s < to_s]
        return firsts.count(ILL) / len(firsts)

    def tries(self, from_s: float) -> Iterator[float]:
        """Times from then on at which the ill one was called first."""
        return (at_s for at_s, node in self.firsts if node == ILL and at_s >= from_s)


@seeds
async def test_dead_node_loses_its_share_within_seconds_and_has_it_again_within_minutes(
    seed: int,
) -> None:
    service = Service(seed)
    await service.serve(60)
    assert service.share(0, 60) == pytest.approx(1 / 3, abs=0.08)
    service.is_dead = True
    await service.serve(120)
    assert service.share(65, 180) < 0.02
    service.is_dead = False
    await service.serve(240)
    first_s = next(service.tries(180))
    assert first_s < 180 + 120
    assert service.share(first_s, first_s + 60) == pytest.approx(1 / 3, abs=0.08)


@seeds
async def test_by_the_letter_of_the_gist_it_is_not_called_again(seed: int) -> None:
    service = Service(seed, LITERAL)
    service.is_dead = True
    await service.serve(60)
    service.is_dead = False
    await service.serve(600)
    assert list(service.tries(65)) == []
