"""Who may ask what, at the local listener over TCP and its unix socket, and at the page for other machines."""

from __future__ import annotations

import asyncio
import os
import threading
from typing import TYPE_CHECKING

import pytest

from harness.listeners import serving
from harness.raw_http import Observed, RawConnection, get, post
from harness.virtual_time import in_virtual_time, settle
from harness.waiting import eventually
from sidecar.net import web
from sidecar.server import request_check
from sidecar.server.request_check import LIMIT_S, TokenCheck

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

RIGHT = "Authorization: Bearer right"
WRONG = "Authorization: Bearer wrong"
OWN_ORIGIN = "Origin: http://localhost"
PATHS = ("/", "/page", "/page.css", "/page.js", "/fleet", "/hold", "/cull", "/errors", "/why")

Routes = web.Routes


async def _ok(request: web.BaseRequest) -> web.Response:
    return web.json_response({"origin": request_check.origin(request)})


ROUTES: Routes = {path: {"GET": _ok, "POST": _ok} for path in PATHS}


def _unreadable() -> bytes:
    raise RuntimeError("can't start new thread")


TOKEN = TokenCheck(lambda: b"right")


async def _status(request: bytes, *, is_remote: bool = False, token: TokenCheck | None = TOKEN) -> list[str]:
    """The status of the answer, and the words of the refusals."""
    observed = Observed()
    async with (
        serving(ROUTES, observed, token=token, is_remote=is_remote) as server,
        await RawConnection.to(server) as wire,
    ):
        answer = await wire.ask(request)
    assert not [name for name in answer.headers if name.startswith("access-control-")]
    return [str(answer.status), *observed.words]


@pytest.mark.parametrize(
    ("headers", "word"),
    [
        pytest.param(["Origin: http://evil.example"], "cross_origin", id="another origin"),
        pytest.param(["Origin: null"], "cross_origin", id="hidden origin"),
        pytest.param([OWN_ORIGIN], "cross_origin", id="another port of this machine"),
        pytest.param(["Sec-Fetch-Site: cross-site"], "cross_origin", id="cross-site"),
        pytest.param(["Sec-Fetch-Site: same-site"], "cross_origin", id="same-site"),
        pytest.param(["Sec-Fetch-Site: same-origin"], "cross_origin", id="a script of the status page"),
        pytest.param(["Host: evil.example"], "host", id="rebound name"),
        pytest.param(["Host: 127.0.0.1.nip.io:9180"], "host", id="name that begins like our address"),
        pytest.param(["Host: evil.example:localhost"], "host", id="our name as the port"),
        pytest.param(["Host: 2130706433"], "host", id="our address as one number"),
        pytest.param(["Host: 0.0.0.0:9180"], "host", id="address of all"),
    ],
)
async def test_web_page_is_refused_at_the_local_listener(headers: list[str], word: str) -> None:
    assert await _status(post("/errors", b"", *headers)) == ["403", word]


@pytest.mark.parametrize(
    "header",
    ["Host: localhost", "Host: LocalHost:9180", "Host: 127.0.0.2:9180", "Host: [::1]:9180", "Host:", "A: b"],
)
async def test_program_on_this_machine_is_served(header: str) -> None:
    assert await _status(post("/errors", b"", header)) == ["200"]


@pytest.mark.parametrize("path", ["/fleet", "/hold"])
@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ([], 200),
        (["Sec-Fetch-Site: same-origin"], 200),
        (["Sec-Fetch-Site: none"], 200),
        (["Sec-Fetch-Site: same-origin", OWN_ORIGIN], 200),
        ([OWN_ORIGIN], 200),
        (["Origin: http://LOCALHOST"], 200),
        (["Sec-Fetch-Site: same-site"], 403),
        (["Sec-Fetch-Site: cross-site", OWN_ORIGIN], 403),
        (["Origin: http://localhost:1"], 403),
        (["Origin: null"], 403),
        (["Origin: http://[a"], 403),
        (["Origin: http://", "Host:"], 403),
    ],
    ids=lambda value: ", ".join(value) or "no headers" if isinstance(value, list) else str(value),
)
async def test_only_the_status_page_may_ask_for_its_data(path: str, headers: list[str], status: int) -> None:
    local = await _status(get(path, *headers), token=None)
    remote = await _status(get(path, *headers, RIGHT), is_remote=True)
    assert (local[0], remote[0]) == (str(status), str(status))


@pytest.mark.parametrize("path", ["/", "/page", "/page.css", "/page.js"])
@pytest.mark.parametrize("is_remote", [False, True], ids=["local", "remote"])
async def test_files_of_the_page_are_for_links_of_any_site(path: str, is_remote: bool) -> None:  # noqa: FBT001
    assert await _status(get(path, "Sec-Fetch-Site: cross-site"), is_remote=is_remote) == ["200"]


# -- the token ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("path", "headers", "local", "remote"),
    [
        ("/hold", [], 401, 401),
        ("/hold", [WRONG], 401, 401),
        ("/hold", [RIGHT], 200, 200),
        ("/cull", [], 401, 401),
        ("/revive", [], 401, 401),
        ("/errors", [], 200, 401),
        ("/why", [], 200, 401),
        ("/why", [RIGHT], 200, 200),
        ("/fleet", [], 200, 401),
        ("/nowhere", [RIGHT], 404, 404),
    ],
)
async def test_orders_need_the_token_and_at_the_page_for_others_everything(
    path: str, headers: list[str], local: int, remote: int
) -> None:
    request = post(path, b"", *headers)
    assert [(await _status(request, is_remote=place))[0] for place in (False, True)] == [str(local), str(remote)]


async def test_without_a_token_local_orders_are_free_and_the_page_for_others_is_closed() -> None:
    assert await _status(post("/hold"), token=None) == ["200"]
    assert await _status(post("/hold", b"", RIGHT), token=None, is_remote=True) == ["401", "token"]
    assert await _status(get("/why", RIGHT, "Host: node-7.example:9183"), is_remote=True) == ["200"]


async def test_unix_socket_takes_any_host_needs_no_token_and_names_the_user(run_dir: Path) -> None:
    path = str(run_dir / "app.sock")
    async with (
        serving(ROUTES, Observed(), path, token=TOKEN) as server,
        await RawConnection.to(server) as wire,
    ):
        answer = await wire.ask(post("/hold", b"", "Host: evil.example:80"))
        assert answer.json() == {"origin": f"over the unix socket by user {os.getuid()}"}
        assert (await wire.ask(post("/errors", b"", "Origin: http://evil.example"))).status == 403
    async with serving(ROUTES, Observed()) as server, await RawConnection.to(server) as wire:
        assert (await wire.ask(post("/hold"))).json() == {"origin": "over TCP from 127.0.0.1"}


async def test_no_other_protocol_is_spoken_and_the_connection_ends() -> None:
    async with serving(ROUTES, observed := Observed()) as server, await RawConnection.to(server) as wire:
        assert (await wire.ask(get("/why", "Connection: Upgrade", "Upgrade: websocket"))).status == 400
        await wire.rest()
    assert observed.words == ["upgrade"]


# -- the file of the token, whose disk may hang ---------------------------------------------------------------------


WORD = b"sesame-0123456789"
BEARER = f"Bearer {WORD.decode()}"
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


async def _refused(check: TokenCheck, header: str = BEARER) -> web.HttpError:
    with pytest.raises(web.HttpError) as refused:
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
    assert await TokenCheck.allows(_patient(check), BEARER)
    assert disk.together == 1


def _patient(check: TokenCheck) -> TokenCheck:
    """The same with all the time that a test has."""
    check._limit_s = NEVER_S
    return check


async def test_no_request_is_allowed_if_no_thread_can_be_started() -> None:
    for is_remote in (False, True):
        request = post("/hold", b"", RIGHT)
        assert await _status(request, token=TokenCheck(_unreadable), is_remote=is_remote) == ["503", "token_file"]


# -- one reading for many -----------------------------------------------------------------------------------


async def test_requests_during_a_read_share_it_and_the_next_one_reads_again(disk: Disk) -> None:
    check = TokenCheck(disk.read, NEVER_S)
    first = asyncio.create_task(check.allows(BEARER))
    await eventually(lambda: disk.begun == 1, timeout_s=60, what="it is read")
    waiting = [asyncio.create_task(check.allows(BEARER)) for _ in range(MANY)]
    await settle()
    disk.goes_on.set()
    assert {await one for one in (first, *waiting)} == {True}
    disk.content = b"another-0123456789"
    assert not await check.allows(BEARER)
    assert (disk.begun, disk.together) == (2, 1)


async def test_cancelled_request_does_not_cancel_the_read_of_others(disk: Disk) -> None:
    check = TokenCheck(disk.read, NEVER_S)
    leaves = asyncio.create_task(check.allows(BEARER))
    await eventually(lambda: disk.begun == 1, timeout_s=60, what="it is read")
    stays = asyncio.create_task(check.allows(BEARER))
    await settle()
    leaves.cancel()
    await settle()
    assert (disk.begun, stays.done()) == (1, False)
    disk.goes_on.set()
    assert await stays
    assert disk.together == 1


# -- at a listener ------------------------------------------------------------------------------------------


async def test_reports_are_taken_while_an_order_waits_for_the_disk(disk: Disk) -> None:
    observed = Observed()
    async with (
        serving(ROUTES, observed, token=TokenCheck(disk.read, NEVER_S)) as server,
        await RawConnection.to(server) as orders,
        await RawConnection.to(server) as app,
    ):
        await orders.send(post("/hold", b"", f"Authorization: {BEARER}"))
        await eventually(lambda: disk.begun == 1, timeout_s=60, what="it is read")
        for _ in range(10):
            assert (await app.ask(post("/errors"))).status == 200
        disk.goes_on.set()
        assert (await orders.answer()).status == 200
    assert observed.failures == []
