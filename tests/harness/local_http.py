"""A local listener in this process, over given routes."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

from sidecar.server.local_server import LocalServer
from sidecar.server.request_check import RequestCheck

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from harness.raw_http import Observed
    from sidecar.net.web import Routes
    from sidecar.server.request_check import Authorize


@asynccontextmanager
async def serving(
    routes: Routes,
    observed: Observed,
    path: str | None = None,
    *,
    authorize: Authorize | None = None,
    is_remote: bool = False,
    **options: Any,
) -> AsyncIterator[LocalServer]:
    """An open listener named ``listener``, on loopback or on the unix socket ``path``.

    AssertionError at the end when asyncio reported an exception.
    """
    asyncio.get_running_loop().set_exception_handler(lambda _, context: observed.unhandled.append(context))
    check = RequestCheck(authorize, is_remote=is_remote)
    server = LocalServer(
        "listener", routes, check, on_refusal=observed.refused, on_failure=observed.failures.append, **options
    )
    await (server.open_unix(path) if path else server.open_tcp("127.0.0.1", 0))
    try:
        yield server
    finally:
        await server.close()
    assert not observed.unhandled, observed.unhandled
