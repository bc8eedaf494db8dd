"""Who brings the token is let in, and a disk that hangs costs whoever waits for it an answer, and nobody else."""

from __future__ import annotations

import asyncio
import threading
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from aiohttp import web

from harness.listening import Told, Wire, get, listening, post
from harness.virtual_time import in_virtual_time, settle
from harness.waiting import eventually
from sidecar.net.admission import LIMIT_S, Admission
from sidecar.net.listener import Refusal
from sidecar.net.token_file import Token
from sidecar.server import callers

if TYPE_CHECKING:
    from collections.abc import Iterator

    from sidecar.net.listener import Routes

WORD = b"sesame-0123456789"
RIGHT = f"Bearer {WORD.decode()}"
WRONG = "Bearer sesame-9876543210"
CROWD = 50
NEVER_S = 20.0
"""Longer than any test takes: a thread that nobody lets go ends by itself."""


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
        self.begun += 1  # last: who sees it changes the content
        self.goes_on.wait(NEVER_S)
        self._under_way -= 1
        return content


@pytest.fixture
def disk() -> Iterator[Disk]:
    disk = Disk()
    yield disk
    disk.goes_on.set()


async def _refused(admission: Admission, header: str = RIGHT) -> Refusal:
    with pytest.raises(Refusal) as refused:
        await admission.admits(header)
    return refused.value


async def test_file_is_read_at_each_use(tmp_path: Path) -> None:
    path = tmp_path / "token"
    admission = Admission(Token(str(path)).read)
    for content, header in ((WORD, RIGHT), (WRONG.removeprefix("Bearer ").encode(), WRONG)):
        path.write_bytes(content)
        assert [await admission.admits(brought) for brought in (RIGHT, WRONG)] == [header == RIGHT, header == WRONG]
    path.unlink()
    assert not await admission.admits(WRONG)


@pytest.mark.parametrize("header", [None, "", "Bearer", "Bearer ", f"Basic {WORD.decode()}"])
@in_virtual_time
async def test_who_brings_no_token_is_not_worth_a_reading(disk: Disk, header: str | None) -> None:
    assert not await Admission(disk.read).admits(header)
    assert disk.begun == 0


# -- a disk that hangs --------------------------------------------------------------------------------------


@in_virtual_time
async def test_who_waits_for_a_disk_that_hangs_is_refused_in_time_and_told_why(disk: Disk) -> None:
    begun_at = asyncio.get_running_loop().time()
    refused = await _refused(Admission(disk.read))
    assert asyncio.get_running_loop().time() - begun_at == pytest.approx(LIMIT_S)
    assert (refused.status, refused.word) == (503, "token_file")
    assert "ARBITER_TOKEN_FILE cannot be read within 2 s" in str(refused)
    assert WORD.decode() not in str(refused)


@in_virtual_time
async def test_crowd_at_a_disk_that_hangs_costs_one_thread_however_often_it_comes(disk: Disk) -> None:
    admission = Admission(disk.read)
    for _ in range(3):
        begun_at = asyncio.get_running_loop().time()
        crowd = await asyncio.gather(*(_refused(admission) for _ in range(CROWD)))
        assert {refused.status for refused in crowd} == {503}
        assert asyncio.get_running_loop().time() - begun_at == pytest.approx(LIMIT_S)
    await eventually(lambda: disk.begun, timeout_s=5, what="it is read")
    assert disk.begun == 1


async def test_disk_that_comes_back_lets_in_again(disk: Disk) -> None:
    admission = Admission(disk.read, limit_s=0.05)
    await _refused(admission)
    disk.goes_on.set()
    assert await Admission.admits(_patient(admission), RIGHT)
    assert (disk.begun, disk.together) == (2, 1)


def _patient(admission: Admission) -> Admission:
    """The same with all the time that a test has."""
    admission._limit_s = NEVER_S
    return admission


@in_virtual_time
async def test_who_can_start_no_thread_lets_nobody_in() -> None:
    def read() -> bytes:
        raise RuntimeError("can't start new thread")

    assert (await _refused(Admission(read))).status == 503


# -- one reading for many -----------------------------------------------------------------------------------


async def test_who_comes_during_a_reading_shares_the_next(disk: Disk) -> None:
    admission = Admission(disk.read, NEVER_S)
    first = asyncio.create_task(admission.admits(RIGHT))
    await eventually(lambda: disk.begun == 1, timeout_s=5, what="it is read")
    crowd = [asyncio.create_task(admission.admits(RIGHT)) for _ in range(CROWD)]
    await settle()
    disk.goes_on.set()
    assert {await one for one in (first, *crowd)} == {True}
    assert (disk.begun, disk.together) == (2, 1)


async def test_file_that_changes_during_a_reading_counts_for_who_comes_after(disk: Disk) -> None:
    admission = Admission(disk.read, NEVER_S)
    before = asyncio.create_task(admission.admits(RIGHT))
    await eventually(lambda: disk.begun == 1, timeout_s=5, what="it is read")
    disk.content = b"another-0123456789"
    after = [asyncio.create_task(admission.admits(header)) for header in (RIGHT, "Bearer another-0123456789")]
    await settle()
    disk.goes_on.set()
    assert await before
    assert [await one for one in after] == [False, True]


async def test_who_leaves_takes_the_reading_from_nobody(disk: Disk) -> None:
    admission = Admission(disk.read, NEVER_S)
    leaves = asyncio.create_task(admission.admits(RIGHT))
    await eventually(lambda: disk.begun == 1, timeout_s=5, what="it is read")
    stays = asyncio.create_task(admission.admits(RIGHT))
    await settle()
    leaves.cancel()
    await settle()
    assert (disk.begun, stays.done()) == (1, False)
    disk.goes_on.set()
    assert await stays
    assert disk.together == 1


# -- at a door ----------------------------------------------------------------------------------------------


async def _up(_request: web.BaseRequest) -> web.Response:
    return web.Response(text="up\n")


async def _order(admission: Admission, request: web.BaseRequest) -> web.Response:
    await callers.check(request, admission.admits)
    return web.Response(text="done\n")


async def test_health_is_answered_while_an_order_waits_for_the_disk(disk: Disk) -> None:
    told = Told()
    routes: Routes = {"/health": {"GET": _up}, "/hold": {"POST": partial(_order, Admission(disk.read, NEVER_S))}}
    async with listening(routes, told) as door, await Wire.to(door) as orders, await Wire.to(door) as polls:
        await orders.send(post("/hold", b"", f"Authorization: {RIGHT}"))
        await eventually(lambda: disk.begun == 1, timeout_s=5, what="it is read")
        for _ in range(10):
            assert (await polls.ask(get("/health"))).status == 200
        disk.goes_on.set()
        assert (await orders.answer()).status == 200
    assert told.failures == []


async def test_order_that_waits_too_long_is_not_carried_out_and_counted(disk: Disk) -> None:
    told = Told()
    routes: Routes = {"/hold": {"POST": partial(_order, Admission(disk.read, 0.05))}}
    async with listening(routes, told) as door, await Wire.to(door) as orders:
        answer = await orders.ask(post("/hold", b"", f"Authorization: {RIGHT}"))
    assert (answer.status, told.words) == (503, ["token_file"])
    assert "ARBITER_TOKEN_FILE" in answer.error
