"""Opens the doors: which routes stand on which address, and a clear word when one cannot be opened."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from functools import partial
from types import MappingProxyType
from typing import TYPE_CHECKING, Final

from sidecar import __version__
from sidecar.app import input_parts
from sidecar.app.admin_parts import Desk
from sidecar.app.input_parts import Offer
from sidecar.app.page_parts import CONNECTIONS, Showing, guard_local
from sidecar.app.why_parts import Explaining
from sidecar.config import addresses, redis_urls
from sidecar.controller.controller import Controller
from sidecar.controller.error_histogram import Minutes
from sidecar.controller.ledger import Ledger
from sidecar.controller.membership import Membership
from sidecar.core.types import AppExited
from sidecar.inputs import report_api
from sidecar.net import descriptors
from sidecar.net.descriptors import share
from sidecar.net.listener import Listener, Routes
from sidecar.net.sockets import Inherited, named, printed
from sidecar.server import health
from sidecar.server.agent_check import AgentDoor, open_agent
from sidecar.server.ready_answers import ReadyAnswers
from sidecar.store.held_budget import HeldBudget
from sidecar.telemetry.log import logger
from sidecar.telemetry.observers import Observers

if TYPE_CHECKING:
    import socket

    from sidecar.config.settings import Settings
    from sidecar.core.explain.history import History
    from sidecar.inputs.datagram import Datagrams
    from sidecar.net.tls import TlsDoors

LOCAL_CONNECTIONS: Final = 128
PUBLIC_CONNECTIONS: Final = 128
ALL_CONNECTIONS: Final = LOCAL_CONNECTIONS + PUBLIC_CONNECTIONS + CONNECTIONS
NOTHING: Final[Inherited] = MappingProxyType({})


@dataclass
class Doors:
    """What is open. The sockets of each go by the name of their setting, the connections by that of their listener."""

    local: Listener
    public: Listener
    minutes: Minutes
    history: History
    page: Listener | None = None
    agents: list[AgentDoor] = field(default_factory=list)
    datagrams: Datagrams | None = None
    tls: TlsDoors | None = None
    are_left: bool = False

    @property
    def listeners(self) -> list[Listener]:
        """Those that speak HTTP."""
        return [self.local, self.public, *([self.page] if self.page else [])]

    def descriptors(self) -> list[tuple[int, str]]:
        """Every socket that somebody could listen on after us, with the name of its setting."""
        agents = [(opened.fileno(), "agent_listen") for server in self.agents for opened in server.sockets]
        fed = self.datagrams.descriptors if self.datagrams else []
        return [
            *((opened, "public_listen") for opened, _ in self.public.descriptors),
            *((opened, "page_listen") for opened, _ in (self.page.descriptors if self.page else ())),
            *((opened, "socket" if at.startswith("/") else "local_listen") for opened, at in self.local.descriptors),
            *((opened, "statsd_socket" if at.startswith("/") else "statsd_listen") for opened, at in fed),
            *agents,
        ]

    def accept_no_more(self) -> None:
        """Leave who waits to our successor, who has the same sockets; close none of them, nor their files."""
        self.are_left = True
        for listener in self.listeners:
            listener.accept_no_more()
        for agent in self.agents:
            agent.accept_no_more()
        if self.datagrams is not None:
            self.datagrams.let_go()

    def let_go(self) -> list[tuple[str, socket.socket]]:
        """Give away the connections that are between two requests, each with its listener's name."""
        return [(listener.name, connection) for listener in self.listeners for connection in listener.let_go()]

    @property
    def is_busy(self) -> bool:
        """Whether there is a connection that was not given away, but for those that are held."""
        return any(listener.is_busy for listener in self.listeners)

    async def adopt(self, name: str, connection: socket.socket) -> None:
        """Serve a connection that was given away under this name."""
        for listener in self.listeners:
            if listener.name == name:
                await listener.adopt_connection(connection)


@asynccontextmanager
async def opened(
    settings: Settings,
    controller: Controller,
    told: Observers,
    held: HeldBudget,
    membership: Membership,
    *,
    offer: Offer,
    ledger: Ledger,
    inherited: Inherited = NOTHING,
) -> AsyncIterator[Doors]:
    """Every door, open while the context lasts; ``CannotListenError`` names the one that cannot be opened.

    ``offer`` takes what is reported. What is ``inherited`` under the name of its setting is not opened again.
    """
    explaining = Explaining(settings, controller, told, held, membership)
    desk = Desk(settings, controller, told, held, membership, ledger=ledger).routes()
    showing = Showing(
        settings, controller, told, held=held, membership=membership, ledger=ledger, explaining=explaining, desk=desk
    )
    admin = {**desk, **explaining.local_routes, **showing.local_routes}
    tls = _tls(settings, told)
    limit = descriptors.allowed(ALL_CONNECTIONS + descriptors.RESERVED)
    local = _local(settings, controller, told, offer, admin, tls=tls and tls.at("local"), limit=limit)
    public = _public(settings, controller, told, explaining, tls=tls and tls.at("public"), limit=limit)
    page = showing.listener(tls and tls.at("page"), share(CONNECTIONS, ALL_CONNECTIONS, limit))
    doors = Doors(local, public, showing.minutes, explaining.history, page, tls=tls)
    try:
        await _listen(settings, doors, inherited)
        doors.agents += await _agents(settings, controller, told, inherited, tls=tls and tls.at("agent"))
        async with input_parts.datagrams(settings, offer, told, inherited) as doors.datagrams:
            _announce(settings, doors)
            yield doors
    finally:
        for server in doors.agents:
            server.close()
        for listener in doors.listeners:
            await listener.close(keep_paths=doors.are_left)


async def _listen(settings: Settings, doors: Doors, inherited: Inherited) -> None:
    listeners = {
        "public_listen": doors.public,
        "local_listen": doors.local,
        "socket": doors.local,
        "page_listen": doors.page,
    }
    for name, listener in listeners.items():
        at = getattr(settings, name)
        if at in ("", addresses.OFF) or listener is None:
            continue
        with named(f"ARBITER_{name.upper()}", at):
            for socket in inherited.get(name, ()):
                await listener.adopt(socket)
            if name not in inherited:
                await (listener.open_unix(at) if name == "socket" else listener.open_tcp(*addresses.split(at)))


def _local(
    settings: Settings,
    controller: Controller,
    told: Observers,
    offer: Offer,
    admin: Routes,
    *,
    tls: TlsDoors | None,
    limit: int,
) -> Listener:
    routes = report_api.routes(
        offer,
        gone=lambda: controller.inbox.put((AppExited(),)),
        state=lambda: controller.container.state,
        snapshot=controller.snapshot,
        mode=settings.mode,
    )
    return Listener(
        "local",
        {**routes, **admin},
        on_refusal=told.metrics.refused,
        on_failure=partial(told.failed, "door"),
        guard=guard_local,
        max_connections=share(LOCAL_CONNECTIONS, ALL_CONNECTIONS, limit),
        tls=tls,
    )


def _public(
    settings: Settings,
    controller: Controller,
    told: Observers,
    explaining: Explaining,
    *,
    tls: TlsDoors | None,
    limit: int,
) -> Listener:
    answers = health.Health(
        controller.snapshot,
        glance=lambda: (controller.container, controller.weight.percent),
        down_status=settings.down_status,
        stale_after_s=3 * settings.check_interval * (1 + settings.check_jitter) + 5,
        on_poll=told.metrics.polled,
        on_failure=partial(told.failed, "door"),
        explained=explaining.text,
    )
    return Listener(
        "public",
        health.routes(answers, metrics=told.metrics.page, get_why=explaining.get_public),
        on_refusal=told.metrics.refused,
        on_failure=partial(told.failed, "door"),
        max_connections=share(PUBLIC_CONNECTIONS, ALL_CONNECTIONS, limit),
        tls=tls,
        ready=ReadyAnswers({**answers.polls, **answers.probes}),
        is_first=True,
        takes_bodies=False,
    )


async def _agents(
    settings: Settings, controller: Controller, told: Observers, inherited: Inherited, *, tls: TlsDoors | None
) -> list[AgentDoor]:
    if settings.agent_listen == addresses.OFF:
        return []
    open_one = partial(
        open_agent,
        *addresses.split(settings.agent_listen),
        controller.snapshot,
        maxconn=settings.agent_maxconn,
        on_poll=told.metrics.polled,
        on_failure=partial(told.failed, "door"),
    )
    if tls is not None:
        over = partial(
            tls.over, refused=partial(told.metrics.refused, "agent"), on_failure=partial(told.failed, "door")
        )
        open_one = partial(open_one, over=over)
    with named("ARBITER_AGENT_LISTEN", settings.agent_listen):
        return [await open_one(opened=socket) for socket in inherited.get("agent_listen", (None,))]


def _tls(settings: Settings, told: Observers) -> TlsDoors | None:
    if not settings.tls_cert:
        return None
    from sidecar.net.tls import Pair, TlsDoors  # noqa: PLC0415 - most sidecars have no certificate

    pair = Pair(settings.tls_cert, settings.tls_key)
    return TlsDoors(
        pair, settings.tls_doors, on_loaded=told.metrics.certificate_expiry.set, on_failure=partial(told.failed, "tls")
    )


def _announce(settings: Settings, doors: Doors) -> None:
    fields = {
        "version": __version__,
        "mode": settings.mode,
        "enforce_percent": settings.enforce_percent,
        "errors_to": ", ".join(doors.local.addresses),
        "datagrams_to": ", ".join(doors.datagrams.addresses if doors.datagrams else ()),
        "health_at": ", ".join(doors.public.addresses),
        "page_at": ", ".join(doors.page.addresses if doors.page else ()),
        "agent_at": ", ".join(printed(opened.getsockname()) for server in doors.agents for opened in server.sockets),
        "bucket": redis_urls.shown(settings.redis_url),
        "state_dir": settings.state_dir or settings.run_lock or "none: a cull does not survive the sidecar",
    }
    logger.info("listening", extra={"fields": fields})
