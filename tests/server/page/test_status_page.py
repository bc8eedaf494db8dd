"""The routes of the status page on a real socket: access, what is sent, and for how long."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import AsyncIterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from aiohttp import web

from harness.raw_http import Answer, Observed, RawConnection, get, listening, pass_idle, post
from harness.waiting import eventually
from sidecar.app import build_listeners
from sidecar.net.listener import Listener
from sidecar.net.web import HttpError, json_response
from sidecar.server.page import status_page
from sidecar.server.page.change_stream import ChangeStream
from sidecar.server.page.status_page import FILES, POLICY, STREAMS, StatusPage

if TYPE_CHECKING:
    from collections.abc import Callable

WORD = "csrf-word"
OWN = "Origin: http://localhost"
TOKEN = "Bearer sesame"
DATA = Path(status_page.__file__).parent
BIG = 20_000_000
"""More bytes than all buffers on the way take."""

STATIC = ("/", *FILES)
CLOSED = ("/page/state", "/page/stream", "/page/plain")


class Board:
    """A page over a state that the test sets, and the orders that came."""

    def __init__(self) -> None:
        self.observed = Observed()
        self.state: dict[str, Any] = {"csrf": WORD, "n": 0}
        self.orders: list[str] = []
        self.is_admitted = True
        self.is_in_doubt = False
        orders = {"POST": self._order, "DELETE": self._order}
        self.changes = ChangeStream(
            lambda: self.state,
            self._slow,
            wall=lambda: 1.5,
            clock=asyncio.get_running_loop().time,
            on_failure=self.observed.failures.append,
        )
        self.page = StatusPage(self.changes, orders, csrf=WORD)

    async def authorize(self, header: str | None) -> bool:
        if self.is_in_doubt:
            raise HttpError(503, "token_file", "token: not known")
        return self.is_admitted and header == TOKEN

    async def _slow(self) -> dict[str, Any]:
        return {"fleet": None}

    async def _order(self, request: web.BaseRequest) -> web.Response:
        self.orders.append(request.method)
        return json_response({"done": True})


@pytest.fixture
async def board(monkeypatch: pytest.MonkeyPatch) -> Board:
    monkeypatch.setattr("sidecar.server.page.change_stream.QUICK_PAUSE_S", 0.02)
    return Board()


@pytest.fixture
async def local(board: Board) -> AsyncIterator[Listener]:
    async with listening(board.page.routes(), board.observed, guard=build_listeners.guard_local) as listener:
        yield listener
    assert board.observed.failures == []


@pytest.fixture
async def remote(board: Board) -> AsyncIterator[Listener]:
    async with listening(board.page.routes(board.authorize), board.observed) as listener:
        yield listener
    assert board.observed.failures == []


async def _ask(listener: Listener, request: bytes) -> Answer:
    async with await RawConnection.to(listener) as wire:
        return await wire.ask(request)


async def _events(wire: RawConnection, count: int) -> list[str]:
    """So many blocks of a stream that was asked for."""
    taken, ends = bytearray(), 0
    async with asyncio.timeout(60):
        while ends < count:
            size = int((await wire._reader.readline()).strip() or b"0", 16)
            before = max(0, len(taken) - 1)
            taken += (await wire._reader.readexactly(size + 2))[:size]
            ends += taken.count(b"\n\n", before)
    return taken.decode().split("\n\n")[:-1]


def _is_stuck(listener: Listener) -> bool:
    """Whether something that was sent waits for its client."""
    return any(transport.get_write_buffer_size() for transport in listener._server._connections.values())


# -- what is served -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("path", STATIC)
@pytest.mark.parametrize("site", ["none", "same-origin", "cross-site"])
async def test_files_have_no_data_and_need_no_token(remote: Listener, path: str, site: str) -> None:
    answer = await _ask(remote, get(path, f"Sec-Fetch-Site: {site}"))
    assert answer.status == (303 if path == "/" else 200)
    assert answer.headers["content-security-policy"] == POLICY
    assert answer.headers["x-content-type-options"] == "nosniff"
    assert answer.headers["cache-control"] == "no-store"
    assert answer.headers["referrer-policy"] == "no-referrer"


async def test_root_redirects_to_the_page(local: Listener) -> None:
    assert (await _ask(local, get("/"))).headers["location"] == "page"


async def test_state_has_all_parts(local: Listener) -> None:
    answer = await _ask(local, get("/page/state"))
    assert answer.json() == {"now": 1.5, "csrf": WORD, "n": 0, "fleet": None}
    assert answer.headers["content-type"].startswith("application/json")
    assert answer.headers["cache-control"] == "no-store"


async def test_browser_without_javascript_goes_on_to_the_plain_page_unless_a_token_is_needed(
    local: Listener, remote: Listener
) -> None:
    assert b'url=page/plain"></noscript>\n</head>' in (await _ask(local, get("/page"))).body
    assert b"page/plain" not in (await _ask(remote, get("/page"))).body


@pytest.mark.parametrize(
    ("request_", "status"),
    [
        (get("/why", "Sec-Fetch-Site: same-origin"), 200),
        (get("/why", "Sec-Fetch-Site: same-site"), 403),
        (get("/why", "Sec-Fetch-Site: cross-site"), 403),
        (get("/why", "Sec-Fetch-Site: same-origin", OWN), 403),
        (get("/why", "Sec-Fetch-Site: same-origin", "Host: evil.example"), 403),
        (post("/why", b"", "Sec-Fetch-Site: same-origin"), 403),
        (get("/errors", "Sec-Fetch-Site: same-origin"), 403),
    ],
    ids=["link", "another port", "another page", "script", "rebound name", "order", "another path"],
)
async def test_links_of_the_page_can_be_followed(board: Board, request_: bytes, status: int) -> None:
    async def handler(_: web.BaseRequest) -> web.Response:
        return json_response({})

    routes = {path: {"GET": handler, "POST": handler} for path in ("/why", "/errors")}
    async with listening(routes, board.observed, guard=build_listeners.guard_local) as listener:
        assert (await _ask(listener, request_)).status == status


def test_late_routes_have_the_paths_of_the_page(board: Board) -> None:
    assert {path: tuple(methods) for path, methods in board.page.routes().items()} == build_listeners.PAGE_PATHS


# -- the stream ---------------------------------------------------------------------------------------------


async def test_stream_sends_everything_and_then_each_change(board: Board, local: Listener) -> None:
    async with await RawConnection.to(local) as wire:
        answer = await wire.ask(get("/page/stream"))
        assert answer.headers["content-type"] == "text/event-stream; charset=utf-8"
        first, second = await _events(wire, 2)
        assert json.loads(first.removeprefix("data: ")) == {"now": 1.5, "csrf": WORD, "n": 0}
        assert json.loads(second.removeprefix("data: ")) == {"now": 1.5, "fleet": None}
        board.state = {**board.state, "n": 1}
        (third,) = await _events(wire, 1)
        assert json.loads(third.removeprefix("data: ")) == {"now": 1.5, "n": 1}


async def test_stream_sends_changes_made_while_its_client_reads_slowly(
    board: Board, local: Listener, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(status_page, "SLOW_S", 60)
    async with await RawConnection.to(local) as wire:
        await wire.ask(get("/page/stream"))
        await _events(wire, 2)
        board.state = {**board.state, "text": "x" * BIG}
        await eventually(lambda: _is_stuck(local), timeout_s=60, what="it is more than the client reads")
        version = board.changes.version
        board.state = {**board.state, "n": "last"}
        await eventually(lambda: board.changes.version > version, timeout_s=60, what="it is seen")
        taken = await _events(wire, 2)
    assert len(taken[0]) > BIG
    assert json.loads(taken[1].removeprefix("data: ")) == {"now": 1.5, "n": "last"}


async def test_quiet_stream_sends_comments(local: Listener, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(status_page, "COMMENT_S", 0.05)
    async with await RawConnection.to(local) as wire:
        await wire.ask(get("/page/stream"))
        assert (await _events(wire, 4))[-1].startswith(": ")


async def test_head_request_opens_no_stream(board: Board, local: Listener) -> None:
    async with await RawConnection.to(local) as wire:
        assert (await wire.ask(get("/page/stream", method="HEAD"))).status == 200
        assert (await wire.ask(get("/page/state"))).status == 200
    assert board.changes.viewers == 0


async def test_one_stream_too_many_is_refused_until_another_ends(board: Board, local: Listener) -> None:
    wires = [await RawConnection.to(local) for _ in range(STREAMS + 1)]
    try:
        for wire in wires[:-1]:
            assert (await wire.ask(get("/page/stream"))).status == 200
        refused = await wires[-1].ask(get("/page/stream"))
        assert (refused.status, board.observed.words) == (503, ["full"])
        await eventually(lambda: board.changes.viewers == STREAMS, timeout_s=60, what="all are connected")
        wires[0].close()
        await eventually(lambda: board.changes.viewers < STREAMS, timeout_s=60, what="one is closed")
        assert (await wires[-1].ask(get("/page/stream"))).status == 200
        async with await RawConnection.to(local) as another:
            assert (await another.ask(get("/page/stream"))).status == 503, "one place was free, and no more"
    finally:
        for wire in wires:
            wire.close()
    await eventually(lambda: board.changes.viewers == 0, timeout_s=60, what="all are closed")


async def test_client_that_does_not_read_is_cut(board: Board, local: Listener, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(status_page, "SLOW_S", 0.1)
    monkeypatch.setattr("sidecar.server.page.change_stream.QUICK_PAUSE_S", 0.001)
    async with await RawConnection.to(local) as wire, await RawConnection.to(local) as other:
        await wire.send(get("/page/stream"))
        await eventually(lambda: board.changes.viewers == 1, timeout_s=60, what="it is connected")
        grown = 0

        def left() -> bool:
            nonlocal grown
            grown += 1
            board.state = {"text": f"{grown}" + "x" * 200_000}
            return board.changes.viewers == 0

        await eventually(left, timeout_s=60, what="it is dropped")
        assert (await other.ask(get("/page.css"))).status == 200


async def test_client_that_resets_a_full_connection_is_no_failure(board: Board, local: Listener) -> None:
    board.state = {**board.state, "text": "x" * BIG}
    async with await RawConnection.to(local) as wire:
        await wire.send(get("/page/stream"))
        await eventually(lambda: _is_stuck(local), timeout_s=60, what="it is more than the client reads")
        wire.reset()
        await eventually(lambda: board.changes.viewers == 0, timeout_s=60, what="it is gone")


async def test_stream_is_not_cut_for_being_quiet(board: Board) -> None:
    async with (
        listening(board.page.routes(), board.observed, idle_s=60) as listener,
        await RawConnection.to(listener) as wire,
    ):
        await wire.ask(get("/page/stream"))
        async with await RawConnection.to(listener) as idle:
            await eventually(lambda: listener._server._last_request, timeout_s=60, what="it is there")
            pass_idle(listener, 61)
            await eventually(lambda: idle.ended, timeout_s=60, what="a connection without requests is cut")
        assert not wire.ended
        assert board.changes.viewers == 1


async def test_listener_that_closes_ends_its_streams(board: Board) -> None:
    async with listening(board.page.routes(), board.observed) as listener:
        wire = await RawConnection.to(listener)
        await wire.ask(get("/page/stream"))
    assert await wire.rest()
    assert board.changes.viewers == 0
    wire.close()


async def test_stream_ends_when_its_token_is_no_longer_valid(board: Board, remote: Listener) -> None:
    async with await RawConnection.to(remote) as wire:
        await wire.ask(get("/page/stream", f"Authorization: {TOKEN}"))
        await _events(wire, 2)
        board.is_admitted = False
        board.state = {**board.state, "n": "secret"}
        assert b"secret" not in await wire.rest()


async def test_stream_ends_in_good_order_when_the_token_cannot_be_checked(board: Board, remote: Listener) -> None:
    async with await RawConnection.to(remote) as wire:
        await wire.ask(get("/page/stream", f"Authorization: {TOKEN}"))
        await _events(wire, 2)
        board.is_in_doubt = True
        board.state = {**board.state, "n": "secret"}
        assert await wire.rest() == b"0\r\n\r\n"
    assert board.observed.words == []


# -- access -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("path", CLOSED)
@pytest.mark.parametrize(
    "headers",
    [
        ["Sec-Fetch-Site: cross-site"],
        ["Sec-Fetch-Site: same-site"],
        ["Origin: http://evil.example"],
        ["Origin: null"],
        ["Origin: http://[::1"],
        ["Origin: http://localhost:1"],
    ],
    ids=lambda headers: headers[0],
)
async def test_other_web_pages_see_nothing(local: Listener, path: str, headers: list[str]) -> None:
    answer = await _ask(local, get(path, *headers))
    assert answer.status == 403
    assert WORD.encode() not in answer.body


@pytest.mark.parametrize("path", [*STATIC, *CLOSED, "/page/hold"])
async def test_rebound_host_name_is_refused_at_the_local_listener(local: Listener, path: str) -> None:
    method = "DELETE" if path == "/page/hold" else "GET"
    answer = await _ask(local, get(path, "Host: evil.example", "Origin: http://evil.example", method=method))
    assert (answer.status, answer.error.split(":")[0]) == (403, "Host")


@pytest.mark.parametrize("path", ["/errors", "/hold"])
async def test_local_listener_still_refuses_other_web_pages(board: Board, local: Listener, path: str) -> None:
    answer = await _ask(local, post(path, b"", OWN, "Sec-Fetch-Site: same-origin"))
    assert (answer.status, board.observed.words) == (403, ["cross_origin"])


@pytest.mark.parametrize("path", [*CLOSED, "/page/hold"])
@pytest.mark.parametrize("header", [None, "Bearer wrong", "Basic sesame"])
async def test_page_listener_needs_the_token_for_everything_else(
    board: Board, remote: Listener, path: str, header: str | None
) -> None:
    authorization = [f"Authorization: {header}"] if header else []
    headers = (*authorization, OWN, f"X-Arbiter-CSRF: {WORD}")
    answer = await _ask(remote, post(path, b"", *headers) if path == "/page/hold" else get(path, *headers))
    assert (answer.status, answer.headers["www-authenticate"]) == (401, "Bearer")
    assert board.orders == []


@pytest.mark.parametrize("path", [*CLOSED, "/page/hold"])
async def test_page_listener_allows_nothing_if_the_token_cannot_be_checked(
    board: Board, remote: Listener, path: str
) -> None:
    board.is_in_doubt = True
    headers = (f"Authorization: {TOKEN}", OWN, f"X-Arbiter-CSRF: {WORD}")
    answer = await _ask(remote, post(path, b"", *headers) if path == "/page/hold" else get(path, *headers))
    assert (answer.status, answer.error) == (503, "token: not known")
    assert (board.orders, board.observed.words) == ([], ["token_file"])


# -- orders -------------------------------------------------------------------------------------------------

ORDERS: list[Callable[..., bytes]] = [
    lambda *headers: post("/page/hold", b"{}", *headers),
    lambda *headers: get("/page/hold", *headers, method="DELETE"),
]


@pytest.mark.parametrize("order", ORDERS, ids=["hold", "release"])
@pytest.mark.parametrize(
    ("headers", "word"),
    [
        ([OWN], "csrf"),
        ([OWN, "X-Arbiter-CSRF: other"], "csrf"),
        ([OWN, "X-Arbiter-CSRF: \xff"], "csrf"),
        ([f"X-Arbiter-CSRF: {WORD}"], "cross_origin"),
        ([f"X-Arbiter-CSRF: {WORD}", "Sec-Fetch-Site: none"], "cross_origin"),
        ([f"X-Arbiter-CSRF: {WORD}", "Sec-Fetch-Site: cross-site"], "cross_origin"),
        ([f"X-Arbiter-CSRF: {WORD}", "Sec-Fetch-Site: cross-site", OWN], "cross_origin"),
        ([f"X-Arbiter-CSRF: {WORD}", "Origin: http://evil.example"], "cross_origin"),
        ([f"X-Arbiter-CSRF: {WORD}", "Origin: http://evil.example", "Sec-Fetch-Site: same-origin"], "cross_origin"),
    ],
)
async def test_order_from_elsewhere_is_refused(
    board: Board, local: Listener, order: Callable[..., bytes], headers: list[str], word: str
) -> None:
    answer = await _ask(local, order(*headers))
    assert (answer.status, board.observed.words, board.orders) == (403, [word], [])


@pytest.mark.parametrize("order", ORDERS, ids=["hold", "release"])
@pytest.mark.parametrize("headers", [[OWN], ["Sec-Fetch-Site: same-origin"], [OWN, "Sec-Fetch-Site: same-origin"]])
async def test_order_of_the_page_is_passed_on(
    board: Board, local: Listener, remote: Listener, order: Callable[..., bytes], headers: list[str]
) -> None:
    headers = [*headers, f"X-Arbiter-CSRF: {WORD}"]
    assert (await _ask(local, order(*headers))).json() == {"done": True}
    assert (await _ask(remote, order(*headers, f"Authorization: {TOKEN}"))).json() == {"done": True}
    assert len(board.orders) == 2


# -- the files ----------------------------------------------------------------------------------------------


def test_script_makes_no_markup_or_code_of_data() -> None:
    script = (DATA / "page.js").read_text()
    forbidden = r"innerHTML|outerHTML|insertAdjacent|document\.write|eval\(|Function\(|srcdoc|DOMParser|\.on[a-z]+ ?="
    assert re.findall(forbidden, script) == []


def test_page_loads_nothing_from_elsewhere_and_nothing_inline() -> None:
    html, style = (DATA / "index.html").read_text(), (DATA / "page.css").read_text()
    assert re.findall(r"https?://|\son[a-z]+=|\sstyle=|<style|<script(?! src=\"page.js\")", html) == []
    assert re.findall(r"https?://|@import|url\(", style) == []


def test_every_element_that_the_script_names_is_there() -> None:
    named = set(re.findall(r'(?:byId|say|fill)\("([a-z-]+)"', (DATA / "page.js").read_text()))
    there = set(re.findall(r'id="([a-z-]+)"', (DATA / "index.html").read_text()))
    assert named - there == set()
