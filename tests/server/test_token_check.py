"""Requests with the token are allowed, and a hung disk delays only the requests that need the file."""

from __future__ import annotations

import asyncio
import threading
from typing import TYPE_CHECKING

import pytest
from aiohttp import web

from harness.local_http import serving
from harness.raw_http import Observed, RawConnection, post
from harness.virtual_time import in_virtual_time, settle
from harness.waiting import eventually
from sidecar.net.web import HttpError
from sidecar.server.request_check import LIMIT_S, TokenCheck

if TYPE_CHECKING:
    from collections.abc import Iterator

    from sidecar.net.web import Routes

WORD = b"sesame-0123456789"
RIGHT = f"Bearer {WORD.decode()}"
WRONG = "Bearer sesame-9876543210"
MANY = 50
NEVER_S = 20.0
"""Longer than any test takes: then a thread ends by itself."""


class Disk:
    """A file that a test holds up. ``content`` is what a reading gives that begins now."""

    def __init__(self) -> None:
        self.content = WORD
        self.begun = 0
        self.together = 0
        self.goes_on = threading.Event()
        self._under_way = 0

    def read(self) -> bytes:
        self._under_way += 1
        self.together = max(self.together, self._under_way)
        content = self.content
        self.begun += 1  # last: the test changes the content when it sees this
        self.goes_on.wait(NEVER_S)
        self._under_way -= 1
        return content


@pytest.fixture
def disk() -> Iterator[Disk]:
    disk = Disk()
    yield disk
    disk.goes_on.set()


async def _refused(check: TokenCheck, header: str = RIGHT) -> HttpError:
    with pytest.raises(HttpError) as refused:
        await check.allows(header)
    return refused.value


@pytest.mark.parametrize("header", [None, "", "Bearer", "Bearer ", f"Basic {WORD.decode()}"])
@in_virtual_time
async def test_request_without_a_token_does_not_read_the_file(disk: Disk, header: str | None) -> None:
    assert not await TokenCheck(disk.read).allows(header)
    assert disk.begun == 0


# -- a disk that hangs --------------------------------------------------------------------------------------


@in_virtual_time
async def test_many_requests_at_a_hung_disk_cost_one_thread_and_are_refused_in_time_with_the_reason(disk: Disk) -> None:
    check = TokenCheck(disk.read)
    for _ in range(3):
        begun_at = asyncio.get_running_loop().time()
        refusals = await asyncio.gather(*(_refused(check) for _ in range(MANY)))
        assert {(refused.status, refused.word) for refused in refusals} == {(503, "token_file")}
        sentence = "token: the file of ARBITER_TOKEN_FILE cannot be read within 2 s, try again"
        assert {str(refused) for refused in refusals} == {sentence}
        assert asyncio.get_running_loop().time() - begun_at == pytest.approx(LIMIT_S)
    await eventually(lambda: disk.begun, timeout_s=60, what="it is read")
    assert disk.begun == 1


async def test_requests_are_allowed_again_when_the_disk_comes_back(disk: Disk) -> None:
    check = TokenCheck(disk.read, limit_s=0.05)
    await _refused(check)
    disk.goes_on.set()
    assert await TokenCheck.allows(_patient(check), RIGHT)
    assert disk.together == 1


def _patient(check: TokenCheck) -> TokenCheck:
    """The same with all the time that a test has."""
    check._limit_s = NEVER_S
    return check


@in_virtual_time
async def test_no_request_is_allowed_if_no_thread_can_be_started() -> None:
    def read() -> bytes:
        raise RuntimeError("can't start new thread")

    assert (await _refused(TokenCheck(read))).status == 503


# -- one reading for many -----------------------------------------------------------------------------------


async def test_requests_during_a_read_share_it_and_the_next_one_reads_again(disk: Disk) -> None:
    check = TokenCheck(disk.read, NEVER_S)
    first = asyncio.create_task(check.allows(RIGHT))
    await eventually(lambda: disk.begun == 1, timeout_s=60, what="it is read")
    waiting = [asyncio.create_task(check.allows(RIGHT)) for _ in range(MANY)]
    await settle()
    disk.goes_on.set()
    assert {await one for one in (first, *waiting)} == {True}
    disk.content = b"another-0123456789"
    assert not await check.allows(RIGHT)
    assert (disk.begun, disk.together) == (2, 1)


async def test_cancelled_request_does_not_cancel_the_read_of_others(disk: Disk) -> None:
    check = TokenCheck(disk.read, NEVER_S)
    leaves = asyncio.create_task(check.allows(RIGHT))
    await eventually(lambda: disk.begun == 1, timeout_s=60, what="it is read")
    stays = asyncio.create_task(check.allows(RIGHT))
    await settle()
    leaves.cancel()
    await settle()
    assert (disk.begun, stays.done()) == (1, False)
    disk.goes_on.set()
    assert await stays
    assert disk.together == 1


# -- at a listener ------------------------------------------------------------------------------------------


async def _done(_request: web.BaseRequest) -> web.Response:
    return web.Response(text="done\n")


ROUTES: Routes = {"/errors": {"POST": _done}, "/hold": {"POST": _done}}


async def test_reports_are_taken_while_an_order_waits_for_the_disk(disk: Disk) -> None:
    observed = Observed()
    async with (
        serving(ROUTES, observed, authorize=TokenCheck(disk.read, NEVER_S).allows) as server,
        await RawConnection.to(server) as orders,
        await RawConnection.to(server) as app,
    ):
        await orders.send(post("/hold", b"", f"Authorization: {RIGHT}"))
        await eventually(lambda: disk.begun == 1, timeout_s=60, what="it is read")
        for _ in range(10):
            assert (await app.ask(post("/errors"))).status == 200
        disk.goes_on.set()
        assert (await orders.answer()).status == 200
    assert observed.failures == []
