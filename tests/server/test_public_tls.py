"""The public listener with TLS: clients that speak it, that do not, and that never finish their handshake."""

from __future__ import annotations

import asyncio
import socket
import ssl
import struct
from contextlib import AsyncExitStack
from typing import TYPE_CHECKING

import pytest

from harness.certificates import Authority, client_context
from harness.listeners import public_listener, up
from harness.raw_http import Observed, RawConnection, get
from harness.waiting import eventually
from sidecar.config.addresses import split
from sidecar.net.credential_files import KeyPair
from sidecar.net.tls import ServerTls
from sidecar.server import public
from sidecar.server.public_http import PublicAnswer

if TYPE_CHECKING:
    from sidecar.server.public import PublicServer
    from sidecar.server.public_http import PublicRequest

UP = get("/up")


@pytest.fixture
def tls(pair: KeyPair) -> ServerTls:
    return ServerTls(pair, on_loaded=lambda _: None, on_failure=lambda error: pytest.fail(str(error)))


async def _connect(server: PublicServer, context: ssl.SSLContext | None = None) -> RawConnection:
    return await RawConnection.to(server, ssl=context or client_context())


@pytest.mark.parametrize("version", [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3], ids=lambda each: each.name)
async def test_listener_serves_over_tls_and_keeps_the_connection(
    tls: ServerTls, observed: Observed, authority: Authority, version: ssl.TLSVersion
) -> None:
    context = ssl.create_default_context(cafile=str(authority.ca))
    context.minimum_version = context.maximum_version = version
    async with public_listener(observed, tls=tls) as server, await _connect(server, context) as client:
        assert (await client.ask(UP)).body == b"up\n"
        assert (await client.ask(get("/none"))).status == 404
    assert observed.words == ["path"]


@pytest.mark.filterwarnings("ignore:ssl.TLSVersion.TLSv1_1 is deprecated")
async def test_older_tls_is_refused(tls: ServerTls, observed: Observed) -> None:
    context = client_context()
    context.minimum_version = ssl.TLSVersion.MINIMUM_SUPPORTED
    context.maximum_version = ssl.TLSVersion.TLSv1_1
    context.set_ciphers("DEFAULT:@SECLEVEL=0")
    async with public_listener(observed, tls=tls) as server:
        with pytest.raises((ssl.SSLError, ConnectionError)):
            await _connect(server, context)
        await eventually(lambda: observed.words == ["handshake"], timeout_s=60, what="it is counted")


@pytest.mark.parametrize("sent", [UP, b"\0" * 100, b"\x16\x03\x01\x00\x05hello"], ids=["HTTP", "zeros", "no hello"])
async def test_client_that_speaks_no_tls_is_cut_and_counted(tls: ServerTls, observed: Observed, sent: bytes) -> None:
    async with public_listener(observed, tls=tls) as server:
        async with await RawConnection.to(server) as client:
            await client.send(sent)
            assert b"HTTP" not in await client.rest()
        async with await _connect(server) as client:
            assert (await client.ask(UP)).status == 200
    assert observed.words == ["handshake"]
    assert observed.failures == []


# -- the ends of connections and of handshakes --------------------------------------------------------------


async def test_large_answer_reaches_a_client_that_reads_late_and_then_ends_in_good_order(
    tls: ServerTls, observed: Observed
) -> None:
    def large(request: PublicRequest) -> PublicAnswer:
        return PublicAnswer(200, b"x" * 5_000_000) if request.path == "/large" else up(request)

    async with public_listener(observed, large, tls=tls) as server, await _connect(server) as client:
        client.stops_reading()
        await client.send(get("/large"))
        await asyncio.sleep(0.01)
        client.reads_on()
        assert (await client.answer()).body == b"x" * 5_000_000
        assert (await client.ask(UP)).body == b"up\n"


@pytest.mark.parametrize("request_", [b"GET /up HTTP/1.0\r\n\r\n", b"nonsense\r\n", UP + UP])
async def test_last_answer_ends_with_the_notice_that_nothing_is_cut_off(
    tls: ServerTls, observed: Observed, request_: bytes
) -> None:
    context = client_context()

    def ask(place: tuple[str, int]) -> bytes:
        with (
            socket.create_connection(place, 60) as plain,
            context.wrap_socket(plain, suppress_ragged_eofs=False) as client,
        ):
            client.sendall(request_)
            return b"".join(iter(lambda: client.recv(65_536), b""))

    async with public_listener(observed, tls=tls) as server:
        answer = await asyncio.to_thread(ask, split(server.addresses[0]))
    assert answer.startswith(b"HTTP/1.1 ")
    assert answer.count(b"HTTP/1.1 ") == 1


def _hello() -> bytes:
    """The first flight of a client, which the server answers with a signature."""
    incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
    with pytest.raises(ssl.SSLWantReadError):
        client_context().wrap_bio(incoming, outgoing).do_handshake()
    return outgoing.read()


@pytest.mark.parametrize("hello", [b"", b"\x16\x03\x01\x02\x00\x01", _hello()], ids=["silent", "half", "whole"])
async def test_handshakes_that_one_address_does_not_finish_keep_no_other_out(
    tls: ServerTls, observed: Observed, hello: bytes
) -> None:
    async with public_listener(observed, tls=tls, most=80) as server, AsyncExitStack() as stack:
        kept = await stack.enter_async_context(await _connect(server))
        assert (await kept.ask(UP)).status == 200
        for _ in range(200):
            attacker = await stack.enter_async_context(await RawConnection.to(server, source="127.0.0.2"))
            await attacker.send(hello)
        await eventually(lambda: len(observed.words) >= 161, timeout_s=60, what="they take each other's places")
        assert server.connected == 40
        assert (await kept.ask(UP)).status == 200
        async with await _connect(server) as client:
            assert (await client.ask(UP)).status == 200
    assert {*observed.words} == {"crowded"}


async def test_handshake_has_its_time_and_no_more(
    tls: ServerTls, observed: Observed, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(public, "SWEEP_S", 0.01)
    monkeypatch.setattr(public, "SLOW_S", 0.05)
    async with public_listener(observed, tls=tls) as server, await RawConnection.to(server) as client:
        await client.send(_hello())
        assert (await client.rest())[:1] == b"\x16", "the server's part of the handshake"
    assert (observed.words, observed.failures) == (["handshake"], [])


async def test_client_that_has_gone_before_its_handshake_does_no_harm(tls: ServerTls, observed: Observed) -> None:
    async with public_listener(observed, tls=tls) as server:
        for hello in (b"", _hello()) * 10:
            with socket.create_connection(split(server.addresses[0])) as leaving:
                leaving.sendall(hello)
                leaving.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        async with await _connect(server) as client:
            assert (await client.ask(UP)).status == 200
    assert {*observed.words} <= {"handshake"}
    assert observed.failures == []
