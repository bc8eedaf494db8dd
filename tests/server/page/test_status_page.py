"""The routes of the status page: files, state, orders. Who may ask is the matter of ``test_request_check``."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import pytest

from harness.local_http import serving
from harness.raw_http import Observed, RawConnection, get, post
from sidecar.net import web
from sidecar.server.page import status_page
from sidecar.server.page.status_page import CSRF, FILES, POLICY

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

WORD = "csrf-word"
DATA = Path(status_page.__file__).parent


class Board:
    """A page over a state that the test sets, and the orders that came."""

    csrf = WORD

    def __init__(self) -> None:
        self.orders: list[str] = []
        self.hurried = 0
        self.routes = status_page.routes(cast("Any", self), dict.fromkeys(("POST", "DELETE"), self._order))

    async def document(self) -> list[bytes]:
        return [b'{"csrf": "csrf-', b'word"}']

    def hurry(self) -> None:
        self.hurried += 1

    async def _order(self, request: web.BaseRequest) -> web.Response:
        self.orders.append(request.method)
        return web.json_response({"done": True})


@pytest.fixture
def board() -> Board:
    return Board()


@pytest.fixture
async def wire(board: Board) -> AsyncIterator[RawConnection]:
    async with serving(board.routes, Observed()) as server, await RawConnection.to(server) as wire:
        yield wire


@pytest.mark.parametrize("path", ["/", *FILES, "/page/state"])
async def test_every_answer_keeps_scripts_and_other_sites_out(wire: RawConnection, path: str) -> None:
    answer = await wire.ask(get(path))
    assert (answer.status, answer.headers.get("location")) == ((303, "page") if path == "/" else (200, None))
    assert answer.headers["content-security-policy"] == POLICY
    assert answer.headers["x-content-type-options"] == "nosniff"
    assert answer.headers["cache-control"] == "no-store"
    assert answer.headers["referrer-policy"] == "no-referrer"
    if path == "/page/state":
        assert (answer.json(), answer.headers["content-type"]) == ({"csrf": WORD}, "application/json")


@pytest.mark.parametrize("method", ["POST", "DELETE"])
async def test_order_with_the_secret_of_the_state_is_passed_on_and_shown_at_once(
    wire: RawConnection, board: Board, method: str
) -> None:
    order = post("/page/hold", b"", f"{CSRF}: {WORD}").replace(b"POST", method.encode(), 1)
    assert (await wire.ask(order)).json() == {"done": True}
    assert (board.orders, board.hurried) == ([method], 1)


@pytest.mark.parametrize("headers", [[], [f"{CSRF}: other"], [f"{CSRF}: \xe9"], [f"{CSRF}:"]])
async def test_order_without_the_secret_is_refused(wire: RawConnection, board: Board, headers: list[str]) -> None:
    assert (await wire.ask(post("/page/hold", b"", *headers))).status == 403
    assert (board.orders, board.hurried) == ([], 0)


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
