"""Misbehaving clients of every kind: each gets a response or is cut, is counted, and does no harm to others."""

from __future__ import annotations

import asyncio
import os
import random
import socket
import stat
from contextlib import AsyncExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

import pytest
from aiohttp import web

from harness.raw_http import Observed, RawConnection, chunked, get, listening, pass_idle, post
from harness.virtual_time import settle
from harness.waiting import eventually
from sidecar.net.listener import PRIORITY_ACCEPTS, Listener
from sidecar.net.request_head import HEADERS_LIMIT, LINE_LIMIT
from sidecar.net.web import BODY_LIMIT, HttpError, LongResponse, read_body

if TYPE_CHECKING:
    from sidecar.net.web import Routes

SEED = 20261120
UP = get("/up")
IDLE_S = 60.0
BIG = 20_000_000


class Boom(Exception):  # noqa: N818 - what a route of ours might let out
    pass


async def _up(_request: web.BaseRequest) -> web.Response:
    return web.Response(text="up\n")


async def _echo(request: web.BaseRequest) -> web.Response:
    return web.Response(body=await read_body(request))


async def _hurried(request: web.BaseRequest) -> web.Response:
    return web.Response(body=await read_body(request, timeout_s=0.05))


async def _boom(_request: web.BaseRequest) -> NoReturn:
    raise Boom("secret")


async def _timeout(_request: web.BaseRequest) -> NoReturn:
    raise TimeoutError("secret")


async def _big(_request: web.BaseRequest) -> web.Response:
    return web.Response(body=b"x" * BIG)


class _Long(LongResponse):
    async def send_until(self, ended: asyncio.Future[None]) -> None:
        del ended


async def _long(_request: web.BaseRequest) -> LongResponse:
    response = _Long(lambda: None)
    response.content_length = 0
    return response


ROUTES: Routes = {
    "/long": {"GET": _long},
    "/up": {"GET": _up},
    "/echo": {"POST": _echo, "GET": _up},
    "/hurried": {"POST": _hurried},
    "/boom": {"GET": _boom},
    "/timeout": {"GET": _timeout},
    "/big": {"GET": _big},
}


@pytest.fixture
def observed() -> Observed:
    return Observed()


async def _is_up(listener: Listener) -> bool:
    async with await RawConnection.to(listener) as wire:
        return (await wire.ask(UP)).body == b"up\n"


def _held(listener: Listener) -> int:
    return len(listener._server._last_request)


# -- what it answers ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("request_", "length", "content"),
    [
        pytest.param(UP, 3, b"up\n", id="GET"),
        pytest.param(get("/up", method="HEAD"), 3, b"", id="HEAD of what GET serves"),
        pytest.param(get("/up?a=b#c"), 3, b"up\n", id="query"),
        pytest.param(get("/%75p"), 3, b"up\n", id="escaped path"),
        pytest.param(post("/echo", b"hello"), 5, b"hello", id="POST"),
        pytest.param(post("/echo"), 0, b"", id="POST of nothing"),
        pytest.param(chunked("/echo", b"hel", b"lo"), 5, b"hello", id="POST in chunks"),
        pytest.param(post("/echo", b"x" * BODY_LIMIT), BODY_LIMIT, b"x" * BODY_LIMIT, id="largest body"),
    ],
)
async def test_what_a_route_serves_is_served_and_the_connection_kept(
    observed: Observed, request_: bytes, length: int, content: bytes
) -> None:
    async with listening(ROUTES, observed) as listener, await RawConnection.to(listener) as wire:
        answer = await wire.ask(request_)
        assert (answer.status, answer.headers["content-length"], answer.body) == (200, str(length), content)
        assert (await wire.ask(UP)).status == 200
    assert observed == Observed()


@pytest.mark.parametrize("method", ["GET", "HEAD"])
async def test_http_1_0_without_a_host_is_served_and_its_connection_ended(observed: Observed, method: str) -> None:
    async with listening(ROUTES, observed) as listener, await RawConnection.to(listener) as wire:
        assert (await wire.ask(f"{method} /up HTTP/1.0\r\n\r\n".encode())).status == 200
        assert await wire.rest() == b""
    assert observed == Observed()


@pytest.mark.parametrize(
    ("request_", "status", "allow", "error"),
    [
        pytest.param(get("/"), 404, None, "path: '/' is not served here", id="unknown path"),
        pytest.param(get("//up"), 404, None, "path: '//up' is not served here", id="two slashes"),
        pytest.param(get("/up/"), 404, None, "path: '/up/' is not served here", id="slash behind"),
        pytest.param(get("/a/../up"), 404, None, "path: ", id="dots"),
        pytest.param(get("/" + "x" * 2_000), 404, None, f"path: '/{'x' * 99}' is not served here", id="long path"),
        pytest.param(get("/%0d%0aX:%20y"), 404, None, "path: '/\\r\\nX: y' is not served here", id="newline in path"),
        pytest.param(b"OPTIONS / HTTP/1.0\r\n\r\n", 404, None, "path: '/' is", id="HAProxy's httpchk as it is"),
        pytest.param(get("*", method="OPTIONS"), 404, None, "path: ", id="OPTIONS of everything"),
        pytest.param(post("/up"), 405, "GET, HEAD", "method: /up takes GET, HEAD", id="POST to GET"),
        pytest.param(get("/hurried"), 405, "POST", "method: /hurried takes POST", id="GET to POST"),
        pytest.param(get("/echo", method="PUT"), 405, "GET, HEAD, POST", "method: /echo takes", id="PUT to both"),
        pytest.param(get("/up", method="OPTIONS"), 405, "GET, HEAD", "method: /up takes", id="OPTIONS"),
        pytest.param(get("/up", method="TRACE"), 405, "GET, HEAD", "method: /up takes", id="TRACE"),
        pytest.param(
            post("/echo", b"x" * (BODY_LIMIT + 1)), 413, None, "body: larger than 65536 bytes", id="too large"
        ),
        pytest.param(
            chunked("/echo", *[b"x" * 8192] * 9), 413, None, "body: larger than 65536 bytes", id="too large, in chunks"
        ),
        pytest.param(
            post("/echo", b"x", "Content-Encoding: gzip"), 415, None, "Content-Encoding: send the body as", id="gzip"
        ),
        pytest.param(post("/echo", b"x", "Content-Encoding: identity, br"), 415, None, "Content-Encoding: ", id="br"),
    ],
)
async def test_request_that_cannot_be_served_is_refused_with_a_sentence(
    observed: Observed, request_: bytes, status: int, allow: str | None, error: str
) -> None:
    async with listening(ROUTES, observed) as listener:
        async with await RawConnection.to(listener) as wire:
            answer = await wire.ask(request_)
        assert await _is_up(listener)
    assert answer.status == status
    assert answer.headers.get("allow") == allow
    assert answer.error.startswith(error)
    assert len(observed.refusals) == 1
    assert observed.failures == []


@pytest.mark.parametrize(
    ("request_", "status"),
    [
        pytest.param(UP, 200, id="good"),
        pytest.param(get("/none"), 404, id="path"),
        pytest.param(post("/up"), 405, id="method"),
        pytest.param(post("/echo", b"", f"Content-Length: {BODY_LIMIT + 1}"), 400, id="two lengths"),
        pytest.param(post("/echo", b"x" * (BODY_LIMIT + 1)), 413, id="large body"),
        pytest.param(get("/boom"), 500, id="bug"),
        pytest.param(get("/long"), 200, id="long response"),
        pytest.param(get("none"), 400, id="target without a slash"),
        pytest.param(get("*"), 400, id="target of OPTIONS"),
        pytest.param(get("http://[::1"), 400, id="target that is no URL"),
        pytest.param(get("http://host:99999/"), 400, id="target with a bad port"),
        pytest.param(get("/up", "User-Agent: a", "User-Agent: b"), 400, id="header twice"),
        pytest.param(b"\x16\x03\x01\r\n\r\n", 400, id="not HTTP"),
    ],
)
async def test_no_response_names_a_version(request_: bytes, status: int, observed: Observed) -> None:
    """Some of these responses are aiohttp's own, which names the versions of itself and of Python."""
    async with listening(ROUTES, observed) as listener, await RawConnection.to(listener) as wire:
        answer = await wire.ask(request_)
        assert answer.status == status
        assert answer.headers.get("server", "health-arbiter") == "health-arbiter"
        assert b"aiohttp" not in answer.body


async def test_head_that_is_refused_has_no_body(observed: Observed) -> None:
    async with listening(ROUTES, observed) as listener, await RawConnection.to(listener) as wire:
        assert (await wire.ask(get("/none", method="HEAD"))).status == 404
        assert (await wire.ask(UP)).body == b"up\n"


async def test_guard_sees_every_request_first(observed: Observed) -> None:
    def guard(request: web.BaseRequest) -> None:
        if "Cookie" in request.headers:
            raise HttpError(403, "cookie", "no cookies")

    async with listening(ROUTES, observed, guard=guard) as listener, await RawConnection.to(listener) as wire:
        for request in (get("/up", "Cookie: a"), get("/none", "Cookie: a")):
            answer = await wire.ask(request)
            assert (answer.status, answer.error) == (403, "no cookies")
        assert (await wire.ask(UP)).status == 200
    assert observed.refusals == [("listener", "cookie")] * 2


@pytest.mark.parametrize("path", ["/boom", "/timeout"])
async def test_exception_of_a_route_is_reported_and_the_client_sees_500_without_the_cause(
    observed: Observed, path: str
) -> None:
    async with listening(ROUTES, observed) as listener, await RawConnection.to(listener) as wire:
        answer = await wire.ask(get(path))
        assert answer.status == 500
        assert answer.error == "the sidecar failed to answer, see its log"
        assert (await wire.ask(UP)).status == 200
    assert [str(error) for error in observed.failures] == ["secret"]
    assert observed.refusals == []


async def test_connection_is_kept_and_pipelined_requests_are_answered_in_order(observed: Observed) -> None:
    async with listening(ROUTES, observed) as listener, await RawConnection.to(listener) as wire:
        await wire.send(b"".join(post("/echo", b"%d" % n) for n in range(100)))
        assert [(await wire.answer()).body for _ in range(100)] == [b"%d" % n for n in range(100)]
        assert (await wire.ask(UP)).status == 200
    assert observed == Observed()


async def test_client_that_expects_100_continue_gets_it(observed: Observed) -> None:
    asks, payload = post("/echo", b"hello", "Expect: 100-continue")[:-5], b"hello"
    async with listening(ROUTES, observed) as listener, await RawConnection.to(listener) as wire:
        await wire.send(asks)
        assert (await wire.answer()).status == 100
        answer = await wire.ask(payload)
        assert (answer.status, answer.body) == (200, b"hello")


async def test_client_that_expects_100_continue_for_too_large_a_body_is_refused_at_once(observed: Observed) -> None:
    asks = get("/echo", "Expect: 100-continue", f"Content-Length: {BODY_LIMIT + 1}", method="POST")
    async with listening(ROUTES, observed) as listener, await RawConnection.to(listener) as wire:
        assert (await wire.ask(asks)).status == 413


# -- what is no request -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "garbage",
    [
        pytest.param(b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03", id="TLS"),
        pytest.param(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", id="HTTP/2"),
        pytest.param(b"SSH-2.0-OpenSSH_9.2\r\n", id="SSH"),
        pytest.param(b"*1\r\n$4\r\nPING\r\n", id="Redis"),
        pytest.param(b"\x00" * 100, id="zeros"),
        pytest.param(b"errors:1|c\n", id="StatsD"),
        pytest.param(b"FETCH /up HTTP/1.1\r\nHost: a\r\n\r\n", id="unknown method"),
        pytest.param(b"GET /up HTTP/9.9\r\nHost: a\r\n\r\n", id="unknown version"),
        pytest.param(b"GET /up HTTP/1.1\r\n\r\n", id="HTTP/1.1 without a Host"),
        pytest.param(b"GET /up HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n", id="two Hosts"),
        pytest.param(b"GET /\xff\x80 HTTP/1.1\r\nHost: a\r\n\r\n", id="raw bytes in the path"),
        pytest.param(b"GET http://[::1/up HTTP/1.1\r\nHost: a\r\n\r\n", id="URL that is none"),
        pytest.param(b"GET http://a:99999/up HTTP/1.1\r\nHost: a\r\n\r\n", id="URL with a port that is none"),
        pytest.param(b"GET /up HTTP/1.1\r\nHost: a\r\nno colon\r\n\r\n", id="header without a colon"),
        pytest.param(b"GET /up HTTP/1.1\r\nHost: a\r\nA: b\r\n c\r\n\r\n", id="folded header"),
        pytest.param(b"GET /up HTTP/1.1\r\nHost: a\r\nA: \x00\r\n\r\n", id="zero in a header"),
        pytest.param(get("/" + "x" * LINE_LIMIT), id="URL over the limit"),
        pytest.param(get("/up", "A: " + "x" * (LINE_LIMIT + 1)), id="header over the limit"),
        pytest.param(get("/up", "x" * (LINE_LIMIT + 1) + ": a"), id="header's name over the limit"),
        pytest.param(get("/up", *[f"H{n}: x" for n in range(HEADERS_LIMIT)]), id="a header too many"),
        pytest.param(get("/up", *["A: b"] * 1000), id="a thousand headers"),
        pytest.param(get("/u p", "A: " + "x" * 9_000), id="long head behind a line that is none"),
        pytest.param(post("/echo", b"x", "Transfer-Encoding: chunked"), id="length and chunks"),
        pytest.param(post("/echo", b"x", "Content-Length: 2"), id="two lengths"),
        pytest.param(get("/echo", "Content-Length: -1", method="POST"), id="negative length"),
        pytest.param(get("/echo", "Transfer-Encoding: chunked", method="POST") + b"zz\r\n", id="chunk of no size"),
    ],
)
async def test_what_is_not_http_gets_a_400_is_counted_and_ends_its_connection(
    observed: Observed, garbage: bytes
) -> None:
    async with listening(ROUTES, observed) as listener:
        async with await RawConnection.to(listener) as wire:
            assert (await wire.ask(garbage)).status == 400
            assert await wire.rest() == b""
        assert await _is_up(listener)
    assert observed.refusals == [("listener", "not_http")]
    assert observed.failures == []


async def test_noise_gets_no_good_response_and_is_no_failure_of_the_sidecar(observed: Observed) -> None:
    noise = random.Random(SEED)
    methods = [b"", b"GET /up HTTP/1.1\r\n", UP[:-2], post("/echo", b"x" * 9)[:-9], chunked("/echo")[:-5]]
    async with listening(ROUTES, observed) as listener:
        for n in range(300):
            async with await RawConnection.to(listener) as wire:
                await wire.send(methods[n % len(methods)] + noise.randbytes(noise.randrange(1, 300)) + b"\r\n\r\n")
                wire.reset() if n % 2 else wire.close()
        await eventually(lambda: _held(listener) == 0, timeout_s=60, what="all of them are gone")
        assert await _is_up(listener)
    assert observed.failures == []


@pytest.mark.parametrize("leave", ["close", "reset"])
async def test_client_that_leaves_midway_does_no_harm(observed: Observed, leave: str) -> None:
    requests = [post("/echo", b"hello world"), chunked("/echo", b"hello", b" world"), UP * 3]
    async with listening(ROUTES, observed) as listener:
        for request in requests:
            for end in range(len(request)):
                wire = await RawConnection.to(listener)
                await wire.send(request[:end])
                getattr(wire, leave)()
        await eventually(lambda: _held(listener) == 0, timeout_s=60, what="closed connections are forgotten")
        assert await _is_up(listener)
    assert observed.failures == []


async def test_request_of_a_client_that_does_not_wait_is_still_read(observed: Observed) -> None:
    seen: list[bytes] = []

    async def note(request: web.BaseRequest) -> web.Response:
        seen.append(await read_body(request))
        return web.Response()

    async with listening({"/note": {"POST": note}}, observed) as listener:
        for n in range(20):
            wire = await RawConnection.to(listener)
            await wire.send(post("/note", b"%d" % n))
            wire.close()
        await eventually(lambda: len(seen) == 20, timeout_s=60, what="all of them are read")
    assert sorted(seen) == sorted(b"%d" % n for n in range(20))


async def test_chunks_that_go_wrong_midway_are_a_body_that_does_not_come(observed: Observed) -> None:
    async with listening(ROUTES, observed) as listener, await RawConnection.to(listener) as wire:
        await wire.send(chunked("/hurried", b"hello")[:-5])
        await eventually(lambda: listener._server.requests_count, timeout_s=60, what="the head is read")
        assert (await wire.ask(b"zz\r\n" + UP)).status == 408
        assert b" 200 OK" not in await wire.rest()
    assert observed.words[0] == "slow"
    assert observed.failures == []


async def test_body_that_breaks_off_is_counted_as_broken(observed: Observed) -> None:
    async with listening(ROUTES, observed) as listener:
        async with await RawConnection.to(listener) as wire:
            await wire.send(post("/echo", b"hello")[:-1])
            await eventually(lambda: listener._server.requests_count, timeout_s=60, what="the head is read")
        await eventually(lambda: observed.words, timeout_s=60, what="it is counted")
    assert observed.words == ["broken"]
    assert observed.failures == []


# -- slow clients -------------------------------------------------------------------------------------------


async def test_client_that_trickles_a_head_is_cut(observed: Observed) -> None:
    async with listening(ROUTES, observed, idle_s=0.1) as listener, await RawConnection.to(listener) as wire:

        async def drip() -> bool:
            await wire.send(b"G" if not wire.ended else b"")
            return wire.ended

        await wire.send(UP[:-2] + b"X-Slow: ")
        await eventually(drip, timeout_s=60, what="it is cut")
        assert await wire.rest() == b""
    assert observed.failures == []


async def test_kept_connection_that_trickles_is_cut_too(observed: Observed) -> None:
    async with listening(ROUTES, observed, idle_s=IDLE_S) as listener, await RawConnection.to(listener) as wire:
        assert (await wire.ask(UP)).status == 200
        await wire.send(b"GET /u")
        pass_idle(listener, IDLE_S + 1)
        assert await wire.rest() == b""
    assert observed.words == ["idle"]


async def test_kept_connection_stays_while_it_sends_requests(observed: Observed) -> None:
    async with listening(ROUTES, observed, idle_s=IDLE_S) as listener, await RawConnection.to(listener) as wire:
        for _ in range(5):
            assert (await wire.ask(UP)).status == 200
            pass_idle(listener, IDLE_S - 1)
        assert (await wire.ask(UP)).status == 200
        pass_idle(listener, IDLE_S + 1)
        assert await wire.rest() == b""
    assert observed.words == ["idle"]


async def test_client_that_does_not_read_is_cut_and_costs_nothing_more(observed: Observed) -> None:
    async with listening(ROUTES, observed, idle_s=0.1) as listener, await RawConnection.to(listener) as wire:
        await wire.send(get("/big") * 3)
        await eventually(lambda: observed.words, timeout_s=60, what="it is cut")
        assert observed.words == ["idle"]
        await eventually(lambda: not listener._server.connections, timeout_s=60, what="the connection is gone")
        assert len(await wire.rest()) < 3 * BIG
    assert observed.failures == []


async def test_body_that_does_not_come_is_a_408_and_ends_its_connection(observed: Observed) -> None:
    async with listening(ROUTES, observed) as listener, await RawConnection.to(listener) as wire:
        answer = await wire.ask(post("/hurried", b"hello")[:-1])
        assert (answer.status, answer.error) == (408, "body: did not come within 0.05 s")
        assert await wire.rest() == b""
    assert observed.words == ["slow"]


async def test_body_that_no_handler_reads_does_not_hold_up_the_response(observed: Observed) -> None:
    async with listening(ROUTES, observed) as listener, await RawConnection.to(listener) as wire:
        answer = await wire.ask(get("/up", "Content-Length: 1000000", method="POST"))
        assert answer.status == 405
        assert await wire.rest() == b""


# -- too many clients ---------------------------------------------------------------------------------------


async def test_when_all_places_are_taken_the_connection_idle_for_longest_is_cut(observed: Observed) -> None:
    async with listening(ROUTES, observed, max_connections=8) as listener, AsyncExitStack() as held:
        clients = [await held.enter_async_context(await RawConnection.to(listener)) for _ in range(8)]
        await eventually(lambda: _held(listener) == 8, timeout_s=60, what="all places are taken")
        assert (await clients[0].ask(UP)).status == 200  # now the second has been silent for longest
        assert await _is_up(listener)
        assert await clients[1].rest() == b""
        for wire in (clients[0], *clients[2:]):
            assert (await wire.ask(UP)).status == 200
    assert observed.refusals == [("listener", "crowded")]


async def test_many_clients_at_once_do_not_push_out_a_poll_among_them(observed: Observed) -> None:
    async with listening(ROUTES, observed, max_connections=8 * PRIORITY_ACCEPTS) as listener, AsyncExitStack() as held:

        async def idle() -> None:
            await held.enter_async_context(await RawConnection.to(listener))

        polls = [asyncio.create_task(_is_up(listener)) if n % 50 == 25 else idle() for n in range(600)]
        results = await asyncio.gather(*polls)
        assert results.count(True) == 12
        assert await _is_up(listener)
        assert _held(listener) <= 8 * PRIORITY_ACCEPTS
    assert set(observed.words) == {"crowded"}
    assert observed.failures == []


# -- the end ------------------------------------------------------------------------------------------------


async def test_close_ends_everything_and_waits_only_for_responses_under_way(observed: Observed, run_dir: Path) -> None:
    entered, leave = asyncio.Event(), asyncio.Event()

    async def slow(_request: web.BaseRequest) -> web.Response:
        entered.set()
        await leave.wait()
        return web.Response(text="late\n")

    path = str(run_dir / "app.sock")
    async with listening({"/slow": {"GET": slow}, **ROUTES}, observed, path) as listener, AsyncExitStack() as wires:
        await listener.open_tcp("127.0.0.1", 0)
        kept, busy, silent = [await wires.enter_async_context(await RawConnection.to(listener)) for _ in range(3)]
        assert (await kept.ask(UP)).status == 200
        await busy.send(get("/slow"))
        await entered.wait()
        closing = asyncio.create_task(listener.close())
        assert await kept.rest() == await silent.rest() == b""
        leave.set()
        assert (await busy.answer()).body == b"late\n"
        await closing
        assert await busy.rest() == b""
        assert not _exists(path)
        with pytest.raises(ConnectionRefusedError):
            await asyncio.open_connection("127.0.0.1", int(listener.addresses[1].rpartition(":")[2]))


async def test_close_does_not_wait_for_connections_between_two_requests(observed: Observed) -> None:
    async with listening(ROUTES, observed) as listener, await RawConnection.to(listener) as wire:
        assert (await wire.ask(UP)).status == 200
        closing = asyncio.create_task(listener.close())
        await settle()
        assert closing.done()


async def test_close_ends_a_response_that_hangs(observed: Observed) -> None:
    async def hang(_request: web.BaseRequest) -> web.Response:
        return await asyncio.get_running_loop().create_future()  # type: ignore[no-any-return]

    async with listening({"/hang": {"GET": hang}}, observed) as listener, await RawConnection.to(listener) as wire:
        await wire.send(get("/hang"))
        await eventually(lambda: listener._server.requests_count, timeout_s=60, what="it hangs")
        async with asyncio.timeout(60):
            await listener.close()
        assert await wire.rest() == b""


# -- the unix socket ----------------------------------------------------------------------------------------


async def test_unix_socket_is_for_owner_and_group_and_leaves_the_umask_as_it_was(
    observed: Observed, run_dir: Path
) -> None:
    before = os.umask(0o022)
    try:
        async with listening(ROUTES, observed, str(run_dir / "app.sock")) as listener:
            mode = (run_dir / "app.sock").stat().st_mode
            assert stat.S_ISSOCK(mode)
            assert stat.S_IMODE(mode) == 0o660
            assert await _is_up(listener)
        assert os.umask(0o022) == 0o022
    finally:
        os.umask(before)
    assert not (run_dir / "app.sock").exists()


async def test_socket_left_by_a_killed_process_is_replaced(observed: Observed, run_dir: Path) -> None:
    path = run_dir / "app.sock"
    with socket.socket(socket.AF_UNIX) as dead:
        dead.bind(str(path))
    async with listening(ROUTES, observed, str(path)) as listener:
        assert await _is_up(listener)


async def test_socket_in_use_is_refused_and_goes_on_answering(observed: Observed, run_dir: Path) -> None:
    path = str(run_dir / "app.sock")
    async with listening(ROUTES, observed, path) as first:
        with pytest.raises(OSError, match="in use"):
            await _open(path)
        assert await _is_up(first)


async def test_close_leaves_a_socket_that_another_process_has_bound(observed: Observed, run_dir: Path) -> None:
    path = str(run_dir / "app.sock")
    async with listening(ROUTES, observed, path) as first:
        _remove(path)
        async with listening(ROUTES, Observed(), path) as second:
            await first.close()
            assert await _is_up(second)


def _exists(path: str) -> bool:
    return os.path.lexists(path)


def _remove(path: str) -> None:
    Path(path).unlink()


async def _open(path: str) -> None:
    listener = Listener("listener", ROUTES, on_refusal=_ignore, on_failure=_ignore)
    try:
        await listener.open_unix(path)
    finally:
        await listener.close()


def _ignore(*_: Any) -> None:
    pass


def _identity(path: Path) -> tuple[int, ...]:
    """What identifies a file; without the access time, which following a link changes."""
    found = path.lstat()
    return found.st_mode, found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns


def _make_file(path: Path) -> None:
    path.write_text("precious")


def _make_dangling_link(path: Path) -> None:
    path.symlink_to(path.with_name("nowhere"))


@pytest.mark.parametrize("make", [_make_file, _make_dangling_link, os.mkdir], ids=lambda make: make.__name__)
async def test_file_that_is_no_socket_is_left_in_its_place(run_dir: Path, make: Any) -> None:
    path = run_dir / "app.sock"
    make(path)
    before = _identity(path)
    with pytest.raises(OSError, match="in use"):
        await _open(str(path))
    assert _identity(path) == before


async def test_datagram_socket_in_use_is_left_in_its_place(run_dir: Path) -> None:
    path = run_dir / "app.sock"
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as other:
        other.bind(str(path))
        with pytest.raises(OSError, match="in use"):
            await _open(str(path))
        assert path.exists()


@pytest.mark.parametrize(
    ("name", "complaint"),
    [("none/app.sock", "No such file"), ("file/app.sock", "Not a directory"), ("x" * 120, "too long")],
)
async def test_impossible_path_is_refused(run_dir: Path, name: str, complaint: str) -> None:
    (run_dir / "file").touch()
    with pytest.raises(OSError, match=complaint):
        await _open(str(run_dir / name))


async def test_port_in_use_is_refused(observed: Observed) -> None:
    async with listening(ROUTES, observed) as listener:
        host, _, port = listener.addresses[0].rpartition(":")
        other = Listener("other", ROUTES, on_refusal=_ignore, on_failure=_ignore)
        with pytest.raises(OSError, match="in use"):
            await other.open_tcp(host, int(port))
        await other.close()


async def test_addresses_of_both_families_are_written_as_in_a_url(observed: Observed) -> None:
    async with listening(ROUTES, observed) as listener:
        try:
            await listener.open_tcp("::1", 0)
        except OSError:
            pytest.skip("this machine has no IPv6 loopback")
        four, six = listener.addresses
        assert four.startswith("127.0.0.1:")
        assert six.startswith("[::1]:")
