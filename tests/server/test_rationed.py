"""A page that everybody asks for takes a fifth of the time and is never an old one; who asks now and then waits not."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, cast

import pytest

from harness.virtual_time import in_virtual_time, settle
from sidecar.server.rationed import LONGEST_REST_S, Rationed

if TYPE_CHECKING:
    from harness.virtual_time import VirtualLoop

CROWD = 40
COST_S = 0.003
REST_S = 4 * COST_S


class Page:
    """Says when it was written, which takes ``cost_s`` of the loop."""

    def __init__(self, cost_s: float = COST_S) -> None:
        self.loop = cast("VirtualLoop", asyncio.get_running_loop())
        self.cost_s = cost_s
        self.written = 0
        self.failure: Exception | None = None
        self.rationed = Rationed(self.write, self.loop.time)

    def write(self) -> float:
        begun_at = self.loop.time()
        self.loop.stall(self.cost_s)
        self.written += 1
        if self.failure is not None:
            raise self.failure
        return begun_at

    async def waited_s(self) -> float:
        """How long one waits who asks now, beyond the writing itself."""
        asked_at = self.loop.time()
        return await self.rationed.get() - asked_at


@in_virtual_time
async def test_crowd_that_never_stops_has_a_fifth_of_the_time_and_no_old_page() -> None:
    page = Page()
    ends_at = page.loop.time() + 10

    async def ask() -> list[float]:
        waited = []
        while page.loop.time() < ends_at:
            waited.append(await page.waited_s())
        return waited

    waited = [each for client in await asyncio.gather(*(ask() for _ in range(CROWD))) for each in client]
    assert page.written * page.cost_s == pytest.approx(10 / 5, rel=0.01)
    assert min(waited) >= 0
    assert max(waited) == pytest.approx(REST_S)


@in_virtual_time
async def test_who_asks_each_second_waits_for_nothing() -> None:
    page = Page()
    for _ in range(5):
        assert await page.waited_s() == 0
        await asyncio.sleep(1)


@in_virtual_time
async def test_who_comes_at_once_sees_what_has_happened_since() -> None:
    page = Page()
    first, second = await page.rationed.get(), await page.rationed.get()
    assert second - first == pytest.approx(COST_S + REST_S)


@in_virtual_time
async def test_process_that_was_stopped_while_it_wrote_makes_nobody_wait_for_minutes() -> None:
    page = Page(cost_s=60.0)
    await page.rationed.get()
    page.cost_s = COST_S
    assert await page.waited_s() == pytest.approx(LONGEST_REST_S)


@in_virtual_time
async def test_failure_is_told_to_all_who_wait_and_to_nobody_later() -> None:
    page = Page()
    page.failure = KeyError("boom")
    outcomes = await asyncio.gather(*(page.rationed.get() for _ in range(CROWD)), return_exceptions=True)
    assert outcomes == [page.failure] * CROWD
    assert page.written == 2, "it rests after a failure as well"
    page.failure = None
    assert await page.waited_s() == pytest.approx(REST_S)


@in_virtual_time
async def test_who_leaves_takes_the_page_from_nobody() -> None:
    page = Page()
    await page.rationed.get()
    leaves, stays = (asyncio.create_task(page.rationed.get()) for _ in range(2))
    await settle()
    leaves.cancel()
    await stays
    assert leaves.cancelled()
    assert page.written == 2
