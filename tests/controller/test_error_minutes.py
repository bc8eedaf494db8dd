"""The errors of a container are added to those of its service, in the minute in which they were counted."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from random import Random

import pytest

from harness.memory_store import MemoryStore
from harness.virtual_time import in_virtual_time
from sidecar.controller.error_minutes import ErrorMinutes
from sidecar.core.claims import Unknown

EPOCH_S = 1_700_000_400.0
"""Begins a minute."""

FIRST = int(EPOCH_S // 60)


class Rig:
    """A count, and what was sent of it; ``answer`` is what the store says."""

    def __init__(self) -> None:
        self.total = 7
        self.now = EPOCH_S
        self.added: list[Mapping[int, int]] = []
        self.failures: list[Exception] = []
        self.answer: int | Unknown | Exception = 1
        self.sharing = ErrorMinutes(
            lambda: self.total, self.add_errors, wall=lambda: self.now, rng=Random(1), on_failure=self.failures.append
        )

    async def add_errors(self, minutes: Mapping[int, int]) -> int | Unknown:
        self.added.append(minutes)
        if isinstance(self.answer, Exception):
            raise self.answer
        return self.answer


@pytest.mark.parametrize("answer", [1, Unknown("timeout"), ValueError("x")], ids=["added", "unknown", "failed"])
async def test_growth_is_sent_once_whatever_the_answer(answer: int | Unknown | Exception) -> None:
    rig = Rig()
    await rig.sharing.turn()
    assert rig.added == [], "errors from before the start are not new"
    rig.answer, rig.total = answer, 12
    await rig.sharing.turn()
    await rig.sharing.turn()
    assert rig.added == [{FIRST: 5}]
    assert rig.failures == ([answer] if isinstance(answer, Exception) else [])


async def test_errors_of_several_minutes_are_sent_together_and_a_clock_may_step_back() -> None:
    rig = Rig()
    for total, now in ((10, EPOCH_S + 60), (14, EPOCH_S + 120), (15, EPOCH_S + 60), (17, EPOCH_S + 60)):
        rig.total, rig.now = total, now
        rig.sharing.count()
    await rig.sharing.turn()
    assert rig.added == [{FIRST: 3, FIRST + 1: 4 + 2, FIRST + 2: 1}]


async def test_own_page_has_sixty_minutes_sent_or_not_and_forgets_older_ones() -> None:
    rig = Rig()
    rig.total = 10
    assert rig.sharing.counts() == [0] * 59 + [3]
    await rig.sharing.turn()
    rig.now, rig.total = EPOCH_S + 60, 12
    assert rig.sharing.counts() == [0] * 58 + [5, 0], "errors since the last look count for the minute of that look"
    rig.now = EPOCH_S + 59 * 60
    assert rig.sharing.counts() == [5] + [0] * 59
    rig.now = EPOCH_S + 60 * 60
    assert rig.sharing.counts() == [0] * 60


@pytest.mark.parametrize("store_ahead_s", [-20, 0, 20])
@pytest.mark.parametrize("seed", range(5))
def test_errors_stand_in_the_minute_in_which_they_were_counted_whenever_they_are_sent(
    seed: int, store_ahead_s: int
) -> None:
    @in_virtual_time
    async def story() -> None:
        loop, rng = asyncio.get_running_loop(), Random(seed)
        begun, total, failures = loop.time(), 0, list[Exception]()

        def wall() -> float:
            return EPOCH_S + loop.time() - begun

        store = MemoryStore(lambda: round((wall() + store_ahead_s) * 1_000_000))
        sharing = ErrorMinutes(lambda: total, store.add_errors, wall=wall, rng=rng, on_failure=failures.append)
        task = loop.create_task(sharing.run())
        expected: dict[int, int] = {}
        for number in range(300):
            await asyncio.sleep(3 * rng.random())
            if wall() % 60 > 0.1:  # errors of the moment after a minute may count for that minute
                total += number
                expected[int(wall() // 60)] = expected.get(int(wall() // 60), 0) + number
        await asyncio.sleep(30)
        assert (await store.error_minutes(), failures) == (expected, [])
        task.cancel()

    story()
