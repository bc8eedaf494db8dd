"""Clients of every kind at the public listener: each gets an answer or is cut, is counted, and does no harm."""

from __future__ import annotations

import asyncio
import socket
import struct
from contextlib import AsyncExitStack, closing
from typing import TYPE_CHECKING, Final

import pytest

from harness.descriptors import no_free_descriptor
from harness.listeners import own_address, public_listener, up
from harness.raw_http import Observed, RawConnection, get
from harness.waiting import eventually
from sidecar.config.addresses import split
from sidecar.net import listening
from sidecar.net.address_gate import AddressGate, parse_networks
from sidecar.server import public
from sidecar.server.public_http import HEAD_LIMIT, PublicAnswer

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from sidecar.server.public import PublicServer
    from sidecar.server.public_http import PublicRequest

UP: Final = get("/up")
BIG: Final = 20_000_000


def _big(request: PublicRequest) -> PublicAnswer:
    return PublicAnswer(200, b"x" * BIG) if request.path == "/big" else up(request)


async def _is_up(server: PublicServer) -> bool:
    async with await RawConnection.to(server) as client:
        return (await client.ask(UP)).body == b"up\n"


# -- what it answers ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("request_", "status", "content", "keeps"),
    [
        pytest.param(UP, 200, b"up\n", True, id="GET"),
        pytest.param(get("/up", method="HEAD"), 200, b"", True, id="HEAD"),
        pytest.param(get("/up", method="OPTIONS"), 200, b"up\n", True, id="OPTIONS"),
        pytest.param(get("/up?a=b?c"), 200, b"up\n", True, id="query"),
        pytest.param(get("/up", "Content-Length: 0"), 200, b"up\n", True, id="an empty body"),
        pytest.param(get("/up", "connection:\tClose "), 200, b"up\n", False, id="close"),
        pytest.param(b"\r\n" + UP, 200, b"up\n", True, id="an empty line before"),
        pytest.param(b"GET /up HTTP/1.1\r\nhost:\r\n\r\n", 200, b"up\n", True, id="empty Host"),
        pytest.param(b"GET /up HTTP/1.0\r\n\r\n", 200, b"up\n", False, id="HTTP/1.0"),
        pytest.param(b"HEAD /up HTTP/1.0\r\nCONNECTION: Keep-Alive\r\n\r\n", 200, b"", True, id="HTTP/1.0 that keeps"),
        pytest.param(
            get("/up", "Connection: Upgrade, HTTP2-Settings", "Upgrade: h2c", "HTTP2-Settings: AAMAAABkAAQAAP__"),
            *(200, b"up\n", True),
            id="an upgrade that may be ignored",
        ),
        pytest.param(get("/up", "A: " + "b" * (HEAD_LIMIT - len(UP) - 5)), 200, b"up\n", True, id="longest head"),
        pytest.param(get("/none"), 404, b'{"error": "path: \'/none\' is not served here"}\n', True, id="no path"),
    ],
)
async def test_request_is_answered_in_any_pieces_and_the_connection_kept_as_the_client_wants(
    observed: Observed, request_: bytes, status: int, content: bytes, *, keeps: bool
) -> None:
    async with public_listener(observed) as server:
        for pieces in ([request_], [request_[:-1], request_[-1:]], [bytes([byte]) for byte in request_[:300]]):
            if b"".join(pieces) != request_:
                continue
            async with await RawConnection.to(server) as client:
                for piece in pieces:
                    await client.send(piece)
                answer = await client.answer(to_head=request_.startswith(b"HEAD"))
                assert (answer.status, answer.body) == (status, content)
                assert answer.headers["connection"] == ("keep-alive" if keeps else "close")
                assert answer.headers["server"] == "health-arbiter"
                if keeps:
                    assert (await client.ask(UP)).body == b"up\n"
                else:
                    assert await client.rest() == b""
    assert {*observed.words} <= {"path"}
    assert observed.failures == []


REFUSED: Final = {
    "not_http": {
        "TLS": b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03",
        "HTTP/2": b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
        "SSH": b"SSH-2.0-OpenSSH_9.2\r\n",
        "unknown version": b"GET /up HTTP/9.9\r\nHost: a\r\n\r\n",
        "two blanks": b"GET  /up HTTP/1.1\r\nHost: a\r\n\r\n",
        "long method": b"G" * 40 + b" /up HTTP/1.1\r\n",
        "long target": b"GET /" + b"x" * 5_000 + b" HTTP/1.1\r\n",
        "endless target": b"GET /" + b"x" * 9_000,
        "raw bytes in the path": b"GET /\xff\x80 HTTP/1.1\r\nHost: a\r\n\r\n",
        "no Host": b"GET /up HTTP/1.1\r\n\r\n",
        "two Hosts": b"GET /up HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n",
        "two lengths": get("/up", "Content-Length: 0", "Content-Length: 0"),
        "no colon": get("/up", "no colon"),
        "blank before the colon": get("/up", "A : b"),
        "newline in a header": get("/up", "A: b\nC: d"),
        "zero in a header": get("/up", "A: \x00"),
        "many headers": get("/up", *["A: b"] * 32),
        "long head": get("/up", "A: " + "b" * (HEAD_LIMIT - len(UP) - 4)),
        "endless head": (UP[:-2] + b"A: b\r\n" * 2_000),
    },
    "upgrade": {
        "websocket": get("/up", "Connection: Upgrade", "Upgrade: websocket"),
        "websocket and what follows": get("/up", "Connection: Upgrade", "Upgrade: websocket") + b"x" * 100_000,
        "CONNECT": b"CONNECT a:80 HTTP/1.1\r\nHost: a\r\n\r\n",
    },
    "body": {
        "a length": get("/up", "Content-Length: 5") + b"hello",
        "a long body": get("/up", "Content-Length: 1000000") + b"x" * 1_000_000,
        "a strange length": get("/up", "Content-Length: +0"),
        "chunks": get("/up", "Transfer-Encoding: chunked") + b"0\r\n\r\n",
        "an announced one": get("/up", "Expect: 100-continue"),
    },
    "method": {method: get("/up", method=method) for method in ("POST", "FETCH")},
}


@pytest.mark.parametrize(
    ("word", "request_"),
    [pytest.param(word, raw, id=f"{word}: {what}") for word, all_ in REFUSED.items() for what, raw in all_.items()],
)
@pytest.mark.parametrize("first", [b"", UP], ids=["new", "kept"])
async def test_request_is_refused_with_a_sentence_that_reaches_a_client_which_still_sends(
    observed: Observed, word: str, request_: bytes, first: bytes
) -> None:
    async with public_listener(observed) as server:
        async with await RawConnection.to(server) as client:
            if first:
                assert (await client.ask(first)).status == 200
            sending = asyncio.create_task(client.send(request_))
            answer = await client.answer()
            await sending
            assert (answer.status, answer.headers["connection"]) == (405 if word == "method" else 400, "close")
            assert answer.headers.get("allow") == ("GET, HEAD, OPTIONS" if word == "method" else None)
            assert answer.error
            assert await client.rest() == b""
        assert await _is_up(server)
        await eventually(lambda: server.connected == 0, timeout_s=60, what="closed connections are forgotten")
    assert observed.refusals == [("public", word)]
    assert observed.failures == []


async def test_what_is_sent_behind_a_request_ends_the_connection_after_its_answer(observed: Observed) -> None:
    async with public_listener(observed) as server:
        for more in (UP, UP * 1_000, b"G", b"\x16\x03\x01"):
            async with await RawConnection.to(server) as client:
                sending = asyncio.create_task(client.send(UP + more))
                answer = await client.answer()
                assert (answer.status, answer.headers["connection"]) == (200, "close")
                assert await client.rest() == b""
                await sending
    assert observed == Observed()


async def test_failure_of_an_answer_is_reported_and_its_text_is_for_us_alone(observed: Observed) -> None:
    def fail(request: PublicRequest) -> PublicAnswer:
        if request.path == "/up":
            return up(request)
        raise TimeoutError("secret")

    async with public_listener(observed, fail) as server, await RawConnection.to(server) as client:
        answer = await client.ask(get("/boom"))
        assert (answer.status, answer.error) == (500, "the sidecar failed to answer, see its log")
        assert (await client.ask(UP)).status == 200
    assert [str(error) for error in observed.failures] == ["secret"]
    assert observed.refusals == []


# -- slow clients -------------------------------------------------------------------------------------------


async def _nothing(_client: RawConnection) -> None: ...


async def _half_a_head(client: RawConnection) -> None:
    await client.send(UP[:-1])


async def _request(client: RawConnection) -> None:
    assert (await client.ask(UP)).status == 200


async def _request_and_a_half(client: RawConnection) -> None:
    await _request(client)
    await client.send(b"G")


async def _refused_request(client: RawConnection) -> None:
    assert (await client.ask(b"x\r\n")).status == 400


async def _large_request(client: RawConnection) -> None:
    client.stops_reading()
    await client.send(get("/big"))


@pytest.mark.parametrize("patience", ["SLOW_S", "IDLE_S"])
@pytest.mark.parametrize(
    ("does", "expected"),
    [
        (_nothing, ("SLOW_S", "idle")),
        (_half_a_head, ("SLOW_S", "idle")),
        (_request, ("IDLE_S", "idle")),
        (_request_and_a_half, ("SLOW_S", "idle")),
        (_refused_request, ("SLOW_S", "idle")),
        (_large_request, ("SLOW_S", "unread")),
    ],
    ids=lambda each: getattr(each, "__name__", None),
)
async def test_client_has_ten_seconds_and_between_two_requests_75(
    observed: Observed,
    monkeypatch: pytest.MonkeyPatch,
    patience: str,
    does: Callable[[RawConnection], Awaitable[None]],
    expected: tuple[str, str],
) -> None:
    waits_for, word = expected
    monkeypatch.setattr(public, "SWEEP_S", 0.01)
    async with public_listener(observed, _big) as server, await RawConnection.to(server) as client:
        await does(client)
        await eventually(lambda: server.connected, timeout_s=60, what="it is accepted")
        monkeypatch.setattr(public, patience, -1.0)
        if patience == waits_for:
            await eventually(lambda: observed.words[-1:] == [word], timeout_s=60, what="it is cut")
            assert server.connected == 0
        else:
            for _ in range(5):
                await asyncio.sleep(0.01)
            assert server.connected == 1
    assert observed.failures == []


async def test_trickled_bytes_are_no_sign_of_life(observed: Observed, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(public, "SWEEP_S", 0.01)
    monkeypatch.setattr(public, "SLOW_S", 0.1)
    async with public_listener(observed) as server, await RawConnection.to(server) as client:
        await client.send(UP[:-2] + b"X-Slow: ")

        while not client.ended:
            await client.send(b"G")
            await asyncio.sleep(0)
    assert observed.words == ["idle"]


async def test_client_that_reads_late_gets_the_whole_answer_and_then_the_next(observed: Observed) -> None:
    asked: list[str] = []

    def note(request: PublicRequest) -> PublicAnswer:
        asked.append(request.path)
        return _big(request)

    async with public_listener(observed, note) as server, await RawConnection.to(server) as client:
        client.stops_reading()
        await client.send(get("/big"))
        await eventually(lambda: asked, timeout_s=60, what="it is asked")
        await client.send(UP)
        for _ in range(5):
            await asyncio.sleep(0.001)
        assert asked == ["/big"]
        client.reads_on()
        assert len((await client.answer()).body) == BIG
        assert (await client.answer()).body == b"up\n"
        assert len((await client.ask(get("/big"))).body) == BIG, "also to a client that sends nothing meanwhile"
    assert observed == Observed()


# -- too many clients ---------------------------------------------------------------------------------------


async def test_next_connection_takes_the_place_of_the_one_that_is_silent_for_longest(observed: Observed) -> None:
    async with public_listener(observed, most=10) as server, AsyncExitStack() as stack:
        clients = []
        for _ in range(8):
            clients.append(await stack.enter_async_context(await RawConnection.to(server)))
            assert (await clients[-1].ask(UP)).headers["connection"] == "keep-alive"
        assert (await clients[0].ask(UP)).status == 200  # now the second has been silent for longest
        for _ in range(3):
            await stack.enter_async_context(await RawConnection.to(server))
        assert await clients[1].rest() == b""
        for client in (clients[0], *clients[2:]):
            assert (await client.ask(UP)).headers["connection"] == "close", "ten of ten are open"
    assert observed.refusals == [("public", "crowded")]


async def test_connections_of_one_address_take_no_place_of_another(observed: Observed) -> None:
    async with public_listener(observed, most=10) as server, AsyncExitStack() as stack:
        honest = await stack.enter_async_context(await RawConnection.to(server))
        assert (await honest.ask(UP)).status == 200
        for _ in range(50):
            await stack.enter_async_context(await RawConnection.to(server, source="127.0.0.2"))
        await eventually(lambda: len(observed.words) == 41, timeout_s=60, what="the others take their own places")
        assert (await honest.ask(UP)).status == 200
        async with await RawConnection.to(server, source="127.0.0.3") as new:
            assert (await new.ask(UP)).status == 200
        await server.close()
        assert not server._hosts, "addresses that come and go take no memory"
    assert {*observed.words} == {"crowded"}


async def test_flood_of_clients_at_once_is_answered_without_a_reset(observed: Observed) -> None:
    async with public_listener(observed) as server:
        assert all(await asyncio.gather(*(_is_up(server) for _ in range(300))))
    assert observed == Observed()


@pytest.mark.parametrize(("pause_s", "is_paused"), [(0.01, False), (3_600.0, True)], ids=["after", "during the pause"])
async def test_without_a_free_descriptor_the_silent_one_gives_its_own(
    observed: Observed, monkeypatch: pytest.MonkeyPatch, pause_s: float, *, is_paused: bool
) -> None:
    monkeypatch.setattr(listening, "NO_DESCRIPTOR_S", pause_s)
    async with public_listener(observed) as server, AsyncExitStack() as stack:
        silent = await stack.enter_async_context(await RawConnection.to(server))
        await eventually(lambda: server.connected, timeout_s=60, what="it is accepted")
        with closing(socket.socket()) as late:
            late.settimeout(0)
            with no_free_descriptor():
                await asyncio.get_running_loop().sock_connect(late, split(server.addresses[0]))
                await eventually(lambda: observed.words, timeout_s=60, what="it makes room")
                for _ in range(3 * is_paused):
                    server.turn()
            if is_paused:
                assert (server.connected, observed.words) == (0, ["descriptors"]), "others may take it first"
                return
            await asyncio.get_running_loop().sock_sendall(late, UP)
            assert (await asyncio.get_running_loop().sock_recv(late, 100)).startswith(b"HTTP/1.1 200 OK")
        assert await silent.rest() == b""
    assert observed.words == ["descriptors"]


# -- other addresses ----------------------------------------------------------------------------------------


async def test_connection_from_elsewhere_is_closed_unread_and_counted(observed: Observed) -> None:
    own = own_address()
    gate = AddressGate(parse_networks("198.51.100.0/24"), lambda: observed.refused("public", "address"))
    async with public_listener(observed, gate=gate) as server:
        await server.open_tcp(own, 0)
        for number in range(1, 30):
            async with await RawConnection.to(server, source=own) as stranger:
                await stranger.send(UP)
                assert await stranger.rest() == b""
            assert observed.words == ["address"] * number
        with socket.create_connection(split(server.addresses[0])) as leaving:
            leaving.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        assert await _is_up(server)
        async with await RawConnection.to(server, at=1, source=own) as admitted:
            assert (await admitted.ask(UP)).status == 200
    assert len(observed.words) == 29


async def test_addresses_of_both_families_are_written_as_in_a_url(observed: Observed) -> None:
    async with public_listener(observed) as server:
        with pytest.raises(OSError, match="in use"):
            await server.open_tcp(*split(server.addresses[0]))
        try:
            await server.open_tcp("::1", 0)
        except OSError:
            pytest.skip("this machine has no IPv6 loopback")
        four, six = server.addresses
        assert four.startswith("127.0.0.1:")
        assert six.startswith("[::1]:")
        async with await RawConnection.to(server, at=1) as client:
            assert (await client.ask(UP)).status == 200


# -- turns and the end --------------------------------------------------------------------------------------


@pytest.mark.parametrize(("pause_s", "is_due"), [(0.0, True), (3_600.0, False)])
async def test_work_that_holds_the_loop_may_let_the_listener_answer_in_between(
    observed: Observed, monkeypatch: pytest.MonkeyPatch, pause_s: float, *, is_due: bool
) -> None:
    monkeypatch.setattr(public, "BETWEEN_S", pause_s)
    async with public_listener(observed) as server:
        server.turn()
        with closing(socket.create_connection(split(server.addresses[0]))) as client:
            client.sendall(UP)
            for _ in range(2):  # the loop has no turn meanwhile
                server.turn_between()
            assert server.connected == is_due
            server.turn()
            assert client.recv(100).startswith(b"HTTP/1.1 200 OK")


async def test_turn_ends_in_time_and_the_next_one_goes_on(observed: Observed, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[str] = []

    def note(request: PublicRequest) -> PublicAnswer:
        asked.append(request.path)
        return up(request)

    async with public_listener(observed, note) as server, AsyncExitStack() as stack:
        clients = [stack.enter_context(closing(socket.create_connection(split(server.addresses[0])))) for _ in range(5)]
        server.turn()
        for client in clients:
            client.sendall(UP)
        monkeypatch.setattr(public, "TURN_S", 1e-9)  # over after one event
        for number in range(1, 6):
            server.turn()
            assert len(asked) == number
    assert observed == Observed()


async def test_close_ends_every_connection_and_stop_only_the_listening_socket(observed: Observed) -> None:
    async with public_listener(observed, _big) as server, AsyncExitStack() as stack:
        silent, kept, unread = [await stack.enter_async_context(await RawConnection.to(server)) for _ in range(3)]
        assert (await kept.ask(UP)).status == 200
        unread.stops_reading()
        await unread.send(get("/big"))
        await eventually(lambda: server.connected == 3, timeout_s=60, what="all are accepted")
        server.stop()
        with pytest.raises(ConnectionRefusedError):
            await RawConnection.to(server)
        assert (await kept.ask(UP)).status == 200
        await server.close()
        assert await kept.rest() == await silent.rest() == b""
    assert observed == Observed()
