"""A listener in this process, local or public: AssertionError at its end when asyncio reported an exception."""

from __future__ import annotations

import asyncio
import os
import socket
from contextlib import asynccontextmanager, suppress
from typing import TYPE_CHECKING, Any

import pytest

from sidecar.net.http_error import HttpError
from sidecar.server.local_server import LocalServer
from sidecar.server.public import PublicServer
from sidecar.server.public_http import PublicAnswer
from sidecar.server.request_check import RequestCheck

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable

    from harness.raw_http import Observed
    from sidecar.net.web import Routes
    from sidecar.server.public_http import PublicRequest
    from sidecar.server.request_check import TokenCheck


@asynccontextmanager
async def serving(
    routes: Routes,
    observed: Observed,
    path: str | None = None,
    *,
    token: TokenCheck | None = None,
    is_remote: bool = False,
    **options: Any,
) -> AsyncIterator[LocalServer]:
    """A local listener over these routes named ``listener``, on loopback or on the unix socket ``path``."""
    check = RequestCheck(token, is_remote=is_remote)
    server = LocalServer(
        "listener", routes, check, on_refusal=observed.refused, on_failure=observed.failures.append, **options
    )
    await (server.open_unix(path) if path else server.open_tcp("127.0.0.1", 0))
    async with _open(server, observed):
        yield server


def up(request: PublicRequest) -> PublicAnswer:
    """What a small listener answers: ``up`` at ``/up``, and nothing at any other path."""
    if request.path != "/up":
        raise HttpError(404, "path", f"path: {request.path[:100]!r} is not served here")
    return PublicAnswer(200, b"up\n")


@asynccontextmanager
async def public_listener(
    observed: Observed, answer_to: Callable[[PublicRequest], PublicAnswer] = up, **options: Any
) -> AsyncIterator[PublicServer]:
    """A public listener on loopback."""
    server = PublicServer(answer_to, on_refusal=observed.refused, on_failure=observed.failures.append, **options)
    await server.open_tcp("127.0.0.1", 0)
    async with _open(server, observed):
        yield server


@asynccontextmanager
async def _open(server: LocalServer | PublicServer, observed: Observed) -> AsyncIterator[None]:
    asyncio.get_running_loop().set_exception_handler(lambda _, context: observed.unhandled.append(context))
    try:
        yield
    finally:
        await server.close()
    assert not observed.unhandled, observed.unhandled


_ELSEWHERE = ("203.0.113.1", 9)
"""An address for documentation (RFC 5737). A datagram socket that is connected sends nothing."""


def own_address() -> str:
    """An IPv4 address of this machine. Without a network the test is skipped, and under ``CI=true`` it fails."""
    addresses: list[str] = []
    with suppress(OSError), socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        probe.connect(_ELSEWHERE)
        addresses.append(probe.getsockname()[0])
    with suppress(OSError):
        addresses += [str(row[4][0]) for row in socket.getaddrinfo(socket.gethostname(), None, socket.AF_INET)]
    address = next((each for each in addresses if not each.startswith("127.")), None)
    if address is not None:
        return address
    message = "this machine has no address but loopback"
    if os.environ.get("CI") == "true":
        pytest.fail(f"{message}, and under CI=true that is a failure", pytrace=False)
    pytest.skip(message)
