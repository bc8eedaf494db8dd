"""An expensive page takes a fifth of the loop's time at most, is never old, and seldom makes a request wait."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, cast

import pytest

from harness.virtual_time import in_virtual_time, settle
from sidecar.server.throttled_page import MAX_PAUSE_S, ThrottledPage

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
        self.page = ThrottledPage(self.write, self.loop.time)

    def write(self) -> float:
        begun_at = self.loop.time()
        self.loop.stall(self.cost_s)
        self.written += 1
        if self.failure is not None:
            raise self.failure
        return begun_at

    async def waited_s(self) -> float:
        """How long a request waits now, beyond the writing itself."""
        asked_at = self.loop.time()
        return await self.page.get() - asked_at


@in_virtual_time
async def test_endless_requests_take_a_fifth_of_the_time_and_get_no_old_page() -> None:
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
async def test_one_request_a_second_never_waits() -> None:
    page = Page()
    for _ in range(5):
        assert await page.waited_s() == 0
        await asyncio.sleep(1)


@in_virtual_time
async def test_next_request_sees_what_has_happened_since() -> None:
    page = Page()
    first, second = await page.page.get(), await page.page.get()
    assert second - first == pytest.approx(COST_S + REST_S)


@in_virtual_time
async def test_process_stopped_during_a_write_pauses_only_briefly() -> None:
    page = Page(cost_s=60.0)
    await page.page.get()
    page.cost_s = COST_S
    assert await page.waited_s() == pytest.approx(MAX_PAUSE_S)


@in_virtual_time
async def test_failure_is_raised_to_all_waiting_requests_and_to_no_later_one() -> None:
    page = Page()
    page.failure = KeyError("boom")
    outcomes = await asyncio.gather(*(page.page.get() for _ in range(CROWD)), return_exceptions=True)
    assert outcomes == [page.failure] * CROWD
    assert page.written == 2, "it rests after a failure as well"
    page.failure = None
    assert await page.waited_s() == pytest.approx(REST_S)


@in_virtual_time
async def test_cancelled_request_does_not_cancel_the_others() -> None:
    page = Page()
    await page.page.get()
    leaves, stays = (asyncio.create_task(page.page.get()) for _ in range(2))
    await settle()
    leaves.cancel()
    await stays
    assert leaves.cancelled()
    assert page.written == 2
