"""A public listener in this process, and connections to it, also from another address than loopback."""

from __future__ import annotations

import asyncio
import os
import socket
from contextlib import asynccontextmanager, suppress
from typing import TYPE_CHECKING, Any

import pytest

from harness.raw_http import RawConnection
from sidecar.net.http_error import HttpError
from sidecar.server.public import PublicServer
from sidecar.server.public_http import PublicAnswer

if TYPE_CHECKING:
    import ssl
    from collections.abc import AsyncIterator, Callable

    from harness.raw_http import Observed
    from sidecar.server.public_http import PublicRequest


def up(request: PublicRequest) -> PublicAnswer:
    """What a small listener answers: ``up`` at ``/up``, and nothing at any other path."""
    if request.path != "/up":
        raise HttpError(404, "path", f"path: {request.path[:100]!r} is not served here")
    return PublicAnswer(200, b"up\n")


@asynccontextmanager
async def public_door(
    observed: Observed, answer_to: Callable[[PublicRequest], PublicAnswer] = up, **options: Any
) -> AsyncIterator[PublicServer]:
    """An open public listener on loopback. AssertionError at the end when asyncio reported an exception."""
    asyncio.get_running_loop().set_exception_handler(lambda _, context: observed.unhandled.append(context))
    server = PublicServer(answer_to, on_refusal=observed.refused, on_failure=observed.failures.append, **options)
    await server.open_tcp("127.0.0.1", 0)
    try:
        yield server
    finally:
        await server.close()
    assert not observed.unhandled, observed.unhandled


def place_of(server: PublicServer) -> tuple[str, int]:
    """Host and port."""
    host, _, port = server.addresses[0].rpartition(":")
    return host, int(port)


async def connect(
    server: PublicServer, source: str = "127.0.0.1", context: ssl.SSLContext | None = None
) -> RawConnection:
    """A connection from the address ``source``."""
    return RawConnection(*await asyncio.open_connection(*place_of(server), local_addr=(source, 0), ssl=context))


_ELSEWHERE = ("203.0.113.1", 9)
"""An address for documentation (RFC 5737). A datagram socket that is connected sends nothing."""


def own_address() -> str:
    """An IPv4 address of this machine. Without a network the test is skipped, and under ``CI=true`` it fails."""
    found: list[str] = []
    with suppress(OSError), socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        probe.connect(_ELSEWHERE)
        found.append(probe.getsockname()[0])
    with suppress(OSError):
        found += [str(row[4][0]) for row in socket.getaddrinfo(socket.gethostname(), None, socket.AF_INET)]
    address = next((each for each in found if not each.startswith("127.")), None)
    if address is not None:
        return address
    message = "this machine has no address but loopback"
    if os.environ.get("CI") == "true":
        pytest.fail(f"{message}, and under CI=true that is a failure", pytrace=False)
    pytest.skip(message)
