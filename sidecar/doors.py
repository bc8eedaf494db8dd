"""Opens the doors: which routes stand on which address, and a clear word when one cannot be opened."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from functools import partial
from typing import TYPE_CHECKING, Final

from sidecar import __version__, addresses
from sidecar.answer import health
from sidecar.answer.agent import open_agent
from sidecar.answer.log import logger
from sidecar.intake import http
from sidecar.listener import Listener
from sidecar.loop import Hall
from sidecar.observers import Observers
from sidecar.sockets import printed

if TYPE_CHECKING:
    from sidecar.settings import Settings

LOCAL_CONNECTIONS: Final = 128
PUBLIC_CONNECTIONS: Final = 128


class CannotListenError(Exception):
    """A door cannot be opened; the text begins with the setting that names it."""


@asynccontextmanager
async def opened(settings: Settings, hall: Hall, told: Observers) -> AsyncIterator[list[Listener]]:
    """Every door, open while the context lasts; ``CannotListenError`` names the one that cannot be opened."""
    local, public = _local(settings, hall, told), _public(settings, hall, told)
    agents: list[asyncio.Server] = []
    try:
        with _named("ARBITER_PUBLIC_LISTEN", settings.public_listen):
            await public.open_tcp(*addresses.split(settings.public_listen))
        if settings.local_listen != addresses.OFF:
            with _named("ARBITER_LOCAL_LISTEN", settings.local_listen):
                await local.open_tcp(*addresses.split(settings.local_listen))
        if settings.socket:
            with _named("ARBITER_SOCKET", settings.socket):
                await local.open_unix(settings.socket)
        if settings.agent_listen != addresses.OFF:
            with _named("ARBITER_AGENT_LISTEN", settings.agent_listen):
                agents.append(await _agent(settings, hall, told))
        _announce(settings, local, public, agents)
        yield [local, public]
    finally:
        for server in agents:
            server.close()
        await local.close()
        await public.close()


def _local(settings: Settings, hall: Hall, told: Observers) -> Listener:
    routes = http.routes(
        hall.inbox.offer, state=lambda: hall.standing.state, snapshot=hall.snapshot, mode=settings.mode
    )
    return Listener(
        "local",
        routes,
        on_refusal=told.metrics.refused,
        on_failure=partial(told.failed, "door"),
        guard=http.refuse_browsers,
        max_connections=LOCAL_CONNECTIONS,
    )


def _public(settings: Settings, hall: Hall, told: Observers) -> Listener:
    routes = health.routes(
        hall.snapshot,
        down_status=settings.down_status,
        stale_after_s=3 * settings.check_interval * (1 + settings.check_jitter) + 5,
        on_poll=told.metrics.polled,
        on_failure=partial(told.failed, "door"),
        metrics=told.metrics.page,
    )
    return Listener(
        "public",
        routes,
        on_refusal=told.metrics.refused,
        on_failure=partial(told.failed, "door"),
        max_connections=PUBLIC_CONNECTIONS,
    )


async def _agent(settings: Settings, hall: Hall, told: Observers) -> asyncio.Server:
    return await open_agent(
        *addresses.split(settings.agent_listen),
        standing=lambda: hall.standing,
        on_poll=told.metrics.polled,
        on_failure=partial(told.failed, "door"),
    )


@contextmanager
def _named(setting: str, address: str) -> Iterator[None]:
    try:
        yield
    except (OSError, UnicodeError) as error:
        raise CannotListenError(f"{setting}: cannot listen on {address}: {_cause(error).lower()}") from None


def _cause(error: OSError | UnicodeError) -> str:
    """The system's own words; asyncio's repeat the address."""
    if isinstance(error, UnicodeError):
        return "not a host name"
    # A name that does not resolve has a number of the resolver's, below zero; a path too long has none.
    number = error.errno or 0
    return os.strerror(number) if number > 0 else error.strerror or str(error)


def _announce(settings: Settings, local: Listener, public: Listener, agents: list[asyncio.Server]) -> None:
    fields = {
        "version": __version__,
        "mode": settings.mode,
        "errors_to": ", ".join(local.addresses),
        "health_at": ", ".join(public.addresses),
        "agent_at": ", ".join(printed(opened.getsockname()) for server in agents for opened in server.sockets),
        "bucket": addresses.masked(settings.redis_url) if settings.redis_url else "in this process",
        "state_dir": settings.state_dir or "none: a cull does not survive the sidecar",
    }
    logger.info("listening", extra={"fields": fields})
