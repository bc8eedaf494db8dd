"""The local listener is bounded against mistakes of its app, and says what it refuses."""

from __future__ import annotations

import asyncio
import shutil
import stat
from contextlib import AsyncExitStack
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from harness.certificates import Authority, certificate, client_context
from harness.listeners import serving
from harness.raw_http import Observed, RawConnection, get, post
from harness.waiting import eventually
from sidecar.net import web
from sidecar.net.credential_files import KeyPair
from sidecar.net.tls import ServerTls
from sidecar.server import local_server

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from sidecar.server.local_server import LocalServer

PLACES = 4
EXPECTING = b"POST /errors HTTP/1.1\r\nHost: localhost\r\nExpect: 100-continue\r\nContent-Length: 4\r\n\r\n"


class Handlers:
    """What the listener serves, and what has happened there."""

    def __init__(self) -> None:
        self.begun = 0
        self.ended: list[str] = []
        self.may_end = asyncio.Event()

    async def answer(self, request: web.BaseRequest) -> web.Response:
        return web.json_response({"length": len(await web.read_body(request, timeout_s=0.1))})

    async def fail(self, _request: web.BaseRequest) -> web.Response:
        raise KeyError("secret")

    async def refuse(self, _request: web.BaseRequest) -> web.Response:
        raise web.HttpError(401, "token", "token: wrong")

    async def wait(self, request: web.BaseRequest) -> web.Response:
        self.begun += 1
        await self.may_end.wait()
        self.ended.append(request.path)
        return web.json_response({})

    async def long(self, _request: web.BaseRequest) -> web.Response:
        self.begun += 1
        return web.Response(body=b"x" * 10_000)

    def routes(self) -> web.Routes:
        return {
            "/errors": {"POST": self.answer, "GET": self.answer},
            "/fail": {"GET": self.fail},
            "/secret": {"GET": self.refuse},
            "/hold": {"POST": self.wait},
            "/wait": {"GET": self.wait},
            "/long": {"GET": self.long},
        }


@pytest.fixture
async def handlers() -> Handlers:
    return Handlers()


@pytest.fixture
async def server(handlers: Handlers, observed: Observed) -> AsyncIterator[LocalServer]:
    async with serving(handlers.routes(), observed, max_connections=PLACES) as server:
        yield server


@pytest.mark.parametrize(
    ("request_", "status", "word", "error"),
    [
        (get("/nowhere"), 404, "path", "path: '/nowhere' is not served here"),
        (get("/errors", method="DELETE"), 405, "method", "method: /errors takes GET, HEAD, POST"),
        (get("/fail"), 500, None, "the sidecar failed to answer, see its log"),
        (post("/errors", b"x" * 70_000), 413, "too_large", "body: larger than 65536 bytes"),
        (post("/errors", b"none", "Content-Encoding: deflate"), 415, "encoding", "Content-Encoding: send"),
        (
            b"POST /errors HTTP/1.1\r\nHost: localhost\r\nContent-Length: 9\r\n\r\nhalf",
            408,
            "slow",
            "body: did not come",
        ),
    ],
    ids=["path", "method", "failure", "large", "compressed", "slow"],
)
async def test_refusal_says_why_and_is_counted(
    server: LocalServer, observed: Observed, request_: bytes, status: int, *, word: str | None, error: str
) -> None:
    async with await RawConnection.to(server) as wire:
        answer = await wire.ask(request_)
    assert answer.status == status
    assert answer.error.startswith(error)
    assert observed.words == ([word] if word else [])
    assert [type(failure) for failure in observed.failures] == ([] if word else [KeyError])


async def test_wrong_token_is_answered_late_against_guessing(server: LocalServer, observed: Observed) -> None:
    begun = asyncio.get_running_loop().time()
    async with await RawConnection.to(server) as wire:
        assert (await wire.ask(get("/secret"))).status == 401
    assert asyncio.get_running_loop().time() - begun >= 0.2
    assert observed.words == ["token"]


@pytest.mark.parametrize(
    "request_",
    [
        b"GET /errors HTTP/1.1 x\r\n\r\n",
        b"\x16\x03\x01\x02\x00\x01\x00\r\n\r\n",
        get(f"/{'a' * 9000}"),
        get("/errors", f"A: {'a' * 9000}"),
    ],
    ids=["bad version", "TLS", "long line", "long header"],
)
async def test_what_is_not_http_is_counted_and_its_connection_closed(
    server: LocalServer, observed: Observed, request_: bytes
) -> None:
    async with await RawConnection.to(server) as wire:
        assert (await wire.ask(request_)).status == 400
        await wire.rest()
    assert observed.words == ["not_http"]
    assert observed.failures == []


@pytest.mark.parametrize(
    "request_",
    [
        post("/errors", b"four"),
        get("/errors", method="HEAD"),
        get("/nowhere"),
        get("/fail"),
        b"GET /errors HTTP/1.1 x\r\n\r\n",
        b"POST /errors HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n",
    ],
    ids=["200", "HEAD", "404", "500", "not HTTP", "bad chunk"],
)
async def test_no_answer_names_a_version(server: LocalServer, request_: bytes) -> None:
    async with await RawConnection.to(server) as wire:
        answer = await wire.ask(request_)
    assert answer.headers.get("server", "health-arbiter") == "health-arbiter"
    assert not any(name in f"{answer.headers}{answer.body!r}".lower() for name in ("aiohttp", "python"))


@pytest.mark.parametrize(("path", "status"), [("/nowhere", 404), ("/fail", 500), ("/errors", 408)])
async def test_rest_of_a_body_in_chunks_is_not_read_after_the_answer(
    server: LocalServer, path: str, status: int
) -> None:
    async with await RawConnection.to(server) as wire:
        answer = await wire.ask(get(path)[:-2] + b"Transfer-Encoding: chunked\r\n\r\n1\r\nx\r\n")
        assert answer.status == status
        assert await wire.rest() == b""


async def test_client_that_waits_for_leave_to_send_its_body_gets_it(server: LocalServer) -> None:
    async with await RawConnection.to(server) as wire:
        assert (await wire.ask(EXPECTING)).status == 100
        await wire.send(b"four")
        assert (await wire.answer()).json() == {"length": 4}


async def test_idle_connections_give_way_and_those_that_are_answered_do_not(
    server: LocalServer, handlers: Handlers, observed: Observed
) -> None:
    async with AsyncExitStack() as stack:
        busy = await stack.enter_async_context(await RawConnection.to(server))
        await busy.send(get("/wait"))
        await eventually(lambda: handlers.begun == 1, timeout_s=60, what="it is being answered")
        for _ in range(3 * PLACES):
            wire = await stack.enter_async_context(await RawConnection.to(server))
            assert (await wire.ask(post("/errors"))).status == 200
        handlers.may_end.set()
        assert (await busy.answer()).status == 200
    assert observed.words == ["crowded"] * (3 * PLACES + 1 - PLACES)


async def test_full_listener_answers_and_closes(server: LocalServer, handlers: Handlers, observed: Observed) -> None:
    async with AsyncExitStack() as stack:
        for number in range(PLACES):
            wire = await stack.enter_async_context(await RawConnection.to(server))
            await wire.send(get("/wait"))
            await eventually(lambda number=number: handlers.begun == number + 1, timeout_s=60, what="it is answered")  # type: ignore[misc]
        async with await RawConnection.to(server) as another:
            assert (await another.answer()).status == 503
            assert await another.rest() == b""
        handlers.may_end.set()
    assert observed.words == ["crowded"]


async def test_client_that_reads_no_answers_is_not_answered_further(server: LocalServer, handlers: Handlers) -> None:
    sent = 5_000
    async with await RawConnection.to(server) as wire:
        sending = asyncio.create_task(wire.send(get("/long") * sent))
        begun = -1
        while begun < handlers.begun:  # until it stands still
            begun = handlers.begun
            await asyncio.sleep(0.2)
        assert 0 < handlers.begun < sent
        sending.cancel()
        async with await RawConnection.to(server) as another:
            assert (await another.ask(post("/errors"))).status == 200


async def test_order_is_carried_out_also_when_its_client_leaves(server: LocalServer, handlers: Handlers) -> None:
    for number, request in enumerate((post("/hold"), get("/wait")), 1):
        wire = await RawConnection.to(server)
        await wire.send(request)
        await eventually(lambda number=number: handlers.begun == number, timeout_s=60, what="it has begun")  # type: ignore[misc]
        wire.reset()
    await eventually(lambda: len(server._answering) == 0, timeout_s=60, what="both are over for their clients")
    handlers.may_end.set()
    await eventually(lambda: handlers.ended, timeout_s=60, what="the order is carried out")
    assert handlers.ended == ["/hold"], "nobody waits for the other answer"


async def test_unix_socket_is_for_owner_and_group_and_an_answer_under_way_is_waited_for_at_the_end(
    handlers: Handlers, observed: Observed, monkeypatch: pytest.MonkeyPatch, run_dir: Path
) -> None:
    monkeypatch.setattr(local_server, "CLOSE_S", 60.0)
    path = run_dir / "app.sock"
    async with serving(handlers.routes(), observed, str(path)) as server, AsyncExitStack() as stack:
        assert stat.S_IMODE(path.stat().st_mode) == 0o660
        idle, busy = [await stack.enter_async_context(await RawConnection.to(server)) for _ in range(2)]
        await busy.send(get("/wait"))
        await eventually(lambda: handlers.begun == 1, timeout_s=60, what="it is being answered")
        closing = asyncio.create_task(server.close())
        await idle.rest()
        assert not path.exists()
        handlers.may_end.set()
        assert (await busy.answer()).status == 200
        await closing


async def test_flood_holds_up_others_for_one_answer_only(handlers: Handlers, observed: Observed) -> None:
    turns: list[int] = []
    async with (
        serving(handlers.routes(), observed, between=lambda: turns.append(handlers.begun)) as server,
        await RawConnection.to(server) as wire,
    ):
        await wire.send(get("/long") * 3)
        for _ in range(3):
            await wire.answer()
    assert turns == [0, 0, 1, 2], "before it is parsed, and before each answer"


# -- TLS -------------------------------------------------------------------------------------------------------


@pytest.fixture
def tls(pair: KeyPair) -> ServerTls:
    return ServerTls(pair, on_loaded=lambda _: None, on_failure=lambda error: pytest.fail(str(error)))


async def _over_tls(server: LocalServer) -> RawConnection:
    return await RawConnection.to(server, ssl=client_context())


async def test_tcp_speaks_tls_with_the_newest_certificate_and_the_unix_socket_does_not(
    handlers: Handlers, tls: ServerTls, pair: KeyPair, authority: Authority, run_dir: Path
) -> None:
    observed = Observed()
    async with serving(handlers.routes(), observed, tls=tls) as server:
        await server.open_unix(str(run_dir / "app.sock"))
        renewed = KeyPair(*map(str, authority.sign("second")))
        for path, new in zip(pair, renewed, strict=True):
            shutil.copy(new, path)
        await tls.reload()
        async with await _over_tls(server) as wire:
            shown = wire._writer.get_extra_info("ssl_object").getpeercert(binary_form=True)
            assert shown == certificate(renewed.cert)
            assert (await wire.ask(post("/errors"))).status == 200
        async with await RawConnection.to(server, at=1) as wire:
            assert (await wire.ask(post("/errors"))).status == 200
    assert observed == Observed()


async def test_unfinished_handshakes_are_bounded_and_end(
    handlers: Handlers, observed: Observed, tls: ServerTls, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(local_server, "HANDSHAKES", 2)
    async with serving(handlers.routes(), observed, tls=tls) as server, AsyncExitStack() as stack:
        silent = [await stack.enter_async_context(await RawConnection.to(server)) for _ in range(6)]
        async with await _over_tls(server) as wire:
            assert (await wire.ask(post("/errors"))).status == 200
        for each in silent[:5]:
            assert await each.rest() == b"", "the oldest gives way"
        monkeypatch.setattr(local_server, "HANDSHAKE_S", 0.1)
        late = await stack.enter_async_context(await RawConnection.to(server))
        assert await late.rest() == b""
        async with await RawConnection.to(server) as plain:
            await plain.send(get("/errors"))
            assert b"HTTP" not in await plain.rest()
    assert observed.words == ["handshake"] * 7
