"""Who may ask what, at the local listener over TCP and its unix socket, and at the page for other machines."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import pytest

from harness.local_http import serving
from harness.raw_http import Observed, RawConnection, get, post
from sidecar.net import web
from sidecar.server import request_check

if TYPE_CHECKING:
    from pathlib import Path

RIGHT = "Authorization: Bearer right"
WRONG = "Authorization: Bearer wrong"
NEVER = "Authorization: Bearer unreadable"
OWN_ORIGIN = "Origin: http://localhost"
PATHS = ("/", "/page", "/page.css", "/page.js", "/fleet", "/hold", "/cull", "/errors", "/why")

Routes = web.Routes


async def _ok(request: web.BaseRequest) -> web.Response:
    return web.json_response({"origin": request_check.origin(request)})


ROUTES: Routes = {path: {"GET": _ok, "POST": _ok} for path in PATHS}


async def _authorize(header: str | None) -> bool:
    if header == NEVER.removeprefix("Authorization: "):
        raise web.HttpError(503, "token_file", "token: its file cannot be read")
    return header == RIGHT.removeprefix("Authorization: ")


async def _status(request: bytes, *, is_remote: bool = False, path: str | None = None, token: bool = True) -> list[str]:
    """The status of the answer, and the words of the refusals."""
    observed = Observed()
    async with (
        serving(ROUTES, observed, path, authorize=_authorize if token else None, is_remote=is_remote) as server,
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
    local = await _status(get(path, *headers), token=False)
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
        ("/hold", [NEVER], 503, 503),
        ("/cull", [], 401, 401),
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
    assert await _status(post("/hold"), token=False) == ["200"]
    assert await _status(post("/hold", b"", RIGHT), token=False, is_remote=True) == ["401", "token"]
    assert await _status(get("/why", RIGHT, "Host: node-7.example:9183"), is_remote=True) == ["200"]


async def test_unix_socket_takes_any_host_needs_no_token_and_names_the_user(run_dir: Path) -> None:
    path = str(run_dir / "app.sock")
    async with (
        serving(ROUTES, Observed(), path, authorize=_authorize) as server,
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
