"""Opens the doors: which routes stand on which address, and a clear word when one cannot be opened."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import cache, partial
from typing import TYPE_CHECKING, Final

from sidecar import __version__, addresses, feeds, redis_urls
from sidecar.answer import health
from sidecar.answer.agent import open_agent
from sidecar.answer.log import logger
from sidecar.budget.held import HeldBudget
from sidecar.connections import Handler
from sidecar.core.words import Gone
from sidecar.intake import http
from sidecar.listener import Listener, Routes
from sidecar.loop import Hall
from sidecar.observers import Observers
from sidecar.pulse import Pulse
from sidecar.sockets import named, printed

if TYPE_CHECKING:
    from aiohttp import web

    from sidecar.settings import Settings

LOCAL_CONNECTIONS: Final = 128
PUBLIC_CONNECTIONS: Final = 128
ADMIN_SLACK_S: Final = 4.0
"""What a person waits for the bucket beyond its time-out: its client may have to be imported, or its turn awaited."""


@asynccontextmanager
async def opened(
    settings: Settings, hall: Hall, told: Observers, held: HeldBudget, pulse: Pulse
) -> AsyncIterator[list[Listener]]:
    """Every door, open while the context lasts; ``CannotListenError`` names the one that cannot be opened."""
    local, public = _local(settings, hall, told, _admin(settings, held, pulse)), _public(settings, hall, told)
    agents: list[asyncio.Server] = []
    try:
        with named("ARBITER_PUBLIC_LISTEN", settings.public_listen):
            await public.open_tcp(*addresses.split(settings.public_listen))
        if settings.local_listen != addresses.OFF:
            with named("ARBITER_LOCAL_LISTEN", settings.local_listen):
                await local.open_tcp(*addresses.split(settings.local_listen))
        if settings.socket:
            with named("ARBITER_SOCKET", settings.socket):
                await local.open_unix(settings.socket)
        if settings.agent_listen != addresses.OFF:
            with named("ARBITER_AGENT_LISTEN", settings.agent_listen):
                agents.append(await _agent(settings, hall, told))
        async with feeds.datagrams(settings, hall, told) as fed_at:
            _announce(settings, local, public, agents, fed_at)
            yield [local, public]
    finally:
        for server in agents:
            server.close()
        await local.close()
        await public.close()


def _admin(settings: Settings, held: HeldBudget, pulse: Pulse) -> Routes:
    """What a person asks for: made when the first one comes, for most sidecars never see any."""

    @cache
    def routes() -> Routes:
        from sidecar.intake.admin import Admin  # noqa: PLC0415 - as above

        admin = Admin(
            held,
            fleet=lambda: pulse.fleet,
            identity={
                **{name: getattr(settings, name) for name in ("service", "instance", "mode", "budget")},
                "bucket": redis_urls.shown(settings.redis_url),
            },
            limit_s=settings.redis_timeout + ADMIN_SLACK_S,
            told=logger.warning,
        )
        return admin.routes()

    def late(path: str, method: str) -> Handler:
        async def handler(request: web.BaseRequest) -> web.StreamResponse:
            return await routes()[path][method](request)

        return handler

    paths = {"/hold": ("POST", "DELETE"), "/fleet": ("GET",)}
    return {path: {method: late(path, method) for method in methods} for path, methods in paths.items()}


def _local(settings: Settings, hall: Hall, told: Observers, admin: Routes) -> Listener:
    routes = http.routes(
        hall.inbox.offer,
        gone=lambda: hall.inbox.put((Gone(),)),
        state=lambda: hall.standing.state,
        snapshot=hall.snapshot,
        mode=settings.mode,
    )
    return Listener(
        "local",
        {**routes, **admin},
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
        hall.snapshot,
        maxconn=settings.agent_maxconn,
        on_poll=told.metrics.polled,
        on_failure=partial(told.failed, "door"),
    )


def _announce(
    settings: Settings, local: Listener, public: Listener, agents: list[asyncio.Server], fed_at: list[str]
) -> None:
    fields = {
        "version": __version__,
        "mode": settings.mode,
        "errors_to": ", ".join(local.addresses),
        "datagrams_to": ", ".join(fed_at),
        "health_at": ", ".join(public.addresses),
        "agent_at": ", ".join(printed(opened.getsockname()) for server in agents for opened in server.sockets),
        "bucket": redis_urls.shown(settings.redis_url),
        "state_dir": settings.state_dir or "none: a cull does not survive the sidecar",
    }
    logger.info("listening", extra={"fields": fields})
