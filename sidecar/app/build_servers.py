"""Builds and opens the listeners: which routes each of them has, what answers there, and where it listens.

The local listener and the page for other machines have the same routes, except that only the app reports.
"""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Coroutine, Iterator
from contextlib import asynccontextmanager
from functools import partial
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from sidecar import __version__
from sidecar.config import addresses, redis_urls
from sidecar.core.types import CHECK_JITTER
from sidecar.inputs import report_api
from sidecar.net.address_gate import AddressGate, parse_networks
from sidecar.net.credential_files import KeyPair, Token
from sidecar.net.listening import naming_setting
from sidecar.net.tls import ServerTls
from sidecar.server import health
from sidecar.server.agent_check import AgentCheck
from sidecar.server.container_orders import ContainerOrders
from sidecar.server.fleet_api import FleetApi
from sidecar.server.health import MetricsPage, public_pages
from sidecar.server.hold_orders import HoldOrders
from sidecar.server.ledger_api import get_events
from sidecar.server.local_server import LocalServer
from sidecar.server.page import status_page
from sidecar.server.public import PublicServer
from sidecar.server.request_check import RequestCheck, TokenCheck
from sidecar.server.why import Why, WhyIdentity, WhySources
from sidecar.telemetry.log import logger
from sidecar.telemetry.readings import of_datagrams

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from sidecar.app.build import Sidecar
    from sidecar.config.settings import Config, ServerConfig, StatsdConfig
    from sidecar.inputs.datagram import Datagrams
    from sidecar.net import web

CONNECTIONS: Final = {"local": 256, "page": 64}
"""With those of the public listener they are well below the 1,024 files that a process may open by default."""

STORE_WAIT_S: Final = 4.0
"""Time beyond that of Redis that an operator waits for the store: its connection may have to be made."""


class Listeners(NamedTuple):
    """All listeners of one sidecar."""

    local: LocalServer
    public: PublicServer
    agent: AgentCheck
    page: LocalServer | None
    datagrams: Datagrams | None
    tls: ServerTls | None

    @property
    def http(self) -> Iterator[LocalServer | PublicServer]:
        """The listeners that speak HTTP."""
        yield self.local
        if self.page is not None:
            yield self.page
        yield self.public

    def works(self) -> Iterator[Coroutine[None, None, None]]:
        """The coroutines that have to run while the listeners are open."""
        if self.tls is not None:
            yield self.tls.watch()

    def stop(self) -> None:
        """Close the listening sockets, so that another process can listen there. Connections stay open."""
        self.agent.stop()
        if self.datagrams is not None:
            self.datagrams.close()
        for listener in self.http:
            listener.stop()

    async def close(self) -> None:
        """Stop, and close the connections; responses under way have a second to leave."""
        self.stop()
        for listener in self.http:
            await listener.close()


@asynccontextmanager
async def listening(sidecar: Sidecar) -> AsyncIterator[Listeners]:
    """Every listener, open while the context lasts. Raises ``CannotListenError``, which names the setting.

    Those that answer about health open last: a container that is up takes errors, too.
    """
    config, observers = sidecar.config, sidecar.observers
    why, tls = _why(sidecar), _tls(sidecar)
    public = PublicServer(
        public_pages(_health(sidecar, why), metrics=MetricsPage(sidecar.metrics.page), why=why.get_public),
        on_refusal=sidecar.metrics.refused,
        on_failure=partial(observers.failed, "listener"),
        gate=_gate(sidecar, "public"),
        tls=tls if config.tls.covers("public") else None,
    )
    local, page = _local_servers(sidecar, why, tls, public.turn_between)
    agent, datagrams = _agent(sidecar), _datagrams(sidecar) if config.statsd.has_sockets else None
    listeners = Listeners(local, public, agent, page, datagrams, tls)
    try:
        await _open(config.server, local_listen=local.open_tcp, socket=local.open_unix)
        if page is not None:
            await _open(config.server, page_listen=page.open_tcp)
        if datagrams is not None:
            await _open(config.statsd, statsd_listen=datagrams.open_udp, statsd_socket=datagrams.open_unix)
        await _open(config.server, agent_listen=agent.open_tcp, public_listen=public.open_tcp)
        _log_addresses(config, listeners)
        yield listeners
    finally:
        await listeners.close()


async def _open(config: ServerConfig | StatsdConfig, **openings: Callable[..., Awaitable[None]]) -> None:
    """Open each listener at the address, or the path of a socket, of the setting that it goes by."""
    for setting, opening in openings.items():
        at = getattr(config, setting)
        if at not in ("", addresses.OFF):
            with naming_setting(f"ARBITER_{setting.upper()}", at):
                await (opening(at) if setting.endswith("socket") else opening(*addresses.split(at)))


def _datagrams(sidecar: Sidecar) -> Datagrams:
    from sidecar.inputs.datagram import Datagrams  # noqa: PLC0415 - 0.2 MiB that few sidecars need

    datagrams = Datagrams(
        sidecar.offer,
        on_failure=partial(sidecar.observers.failed, "listener"),
        on_advice=logger.warning,
        prefix=sidecar.config.statsd.statsd_prefix,
    )
    sidecar.metrics.read(lambda: of_datagrams(datagrams.counts))
    return datagrams


def _agent(sidecar: Sidecar) -> AgentCheck:
    return AgentCheck(
        sidecar.snapshot,
        on_poll=sidecar.metrics.polled,
        on_failure=partial(sidecar.observers.failed, "listener"),
        gate=_gate(sidecar, "agent"),
    )


def _gate(sidecar: Sidecar, listener: str) -> AddressGate | None:
    networks = parse_networks(sidecar.config.server.public_allow)
    return AddressGate(networks, partial(sidecar.metrics.refused, listener, "address")) if networks else None


def _health(sidecar: Sidecar, why: Why) -> health.Health:
    judging = sidecar.config.judging
    return health.Health(
        sidecar.snapshot,
        stale_after_s=3 * judging.check_interval * (1 + CHECK_JITTER) + 5,
        on_poll=sidecar.metrics.polled,
        on_failure=partial(sidecar.observers.failed, "listener"),
        explanation=why.text,
    )


def _why(sidecar: Sidecar) -> Why:
    own, controller, membership = sidecar.config.identity, sidecar.controller, sidecar.membership
    return Why(
        WhyIdentity(
            own.service,
            own.instance,
            own.mode,
            sidecar.config.judging.error_limit,
            sidecar.config.notify.runbook_url,
            sidecar.config.alone,
        ),
        WhySources(
            sidecar.snapshot,
            sidecar.ledger.local,
            sidecar.ledger.counts,
            fleet=lambda: membership.fleet,
            heard_s=lambda: membership.fleet_age_s,
            local_hold=lambda: sidecar.budget.local_holds.in_force,
            leaving=controller.assessment.measurements.errors.leaving,
            samples=controller.assessment.measurements.samples.newest,
            wall=time.time,
            action=lambda: sidecar.actuator.last if sidecar.actuator else None,
            warnings=sidecar.warnings,
        ),
    )


def _tls(sidecar: Sidecar) -> ServerTls | None:
    config = sidecar.config.tls
    if not config.tls_cert:
        return None
    return ServerTls(
        KeyPair(config.tls_cert, config.tls_key),
        config.tls_client_ca,
        on_loaded=sidecar.metrics.certificate_expiry.set,
        on_failure=partial(sidecar.observers.failed, "tls"),
    )


def _log_addresses(config: Config, listeners: Listeners) -> None:
    fields = {
        "version": __version__,
        "mode": config.identity.mode,
        "enforce_percent": config.identity.enforce_percent,
        "errors_to": ", ".join(listeners.local.addresses),
        "datagrams_to": ", ".join(listeners.datagrams.addresses if listeners.datagrams else ()),
        "health_at": ", ".join(listeners.public.addresses),
        "page_at": ", ".join(listeners.page.addresses if listeners.page else ()),
        "agent_at": ", ".join(listeners.agent.addresses),
        "store": redis_urls.shown(config.redis.redis_url),
        "state_dir": config.state_directory or "none: a cull does not survive the sidecar",
    }
    logger.info("listening", extra={"fields": fields})
    if config.alone:
        logger.warning(config.alone)


# -- the local listener and the page for other machines ----------------------------------------------------------------


def _local_servers(
    sidecar: Sidecar,
    why: Why,
    tls: ServerTls | None,
    between: Callable[[], None],
) -> tuple[LocalServer, LocalServer | None]:
    """Build the local listener, and the page listener if it is configured; neither is open.

    ``between`` as in ``LocalServer``.
    """
    config, observers = sidecar.config, sidecar.observers
    token = TokenCheck(Token(config.server.token_file).read) if config.server.token_file else None
    local, remote = _routes(sidecar, why)

    def server(name: str, routes: web.Routes) -> LocalServer:
        return LocalServer(
            name,
            routes,
            RequestCheck(token, is_remote=name == "page"),
            on_refusal=sidecar.metrics.refused,
            on_failure=partial(observers.failed, "page" if name == "page" else "listener"),
            max_connections=CONNECTIONS[name],
            between=between,
            tls=tls if config.tls.covers(name) else None,
        )

    has_page = config.server.page_listen != addresses.OFF
    return server("local", local), server("page", remote) if has_page else None


def _routes(sidecar: Sidecar, why: Why) -> tuple[web.Routes, web.Routes]:
    """The routes of the local listener, and those of the page listener: what a command may ask from another machine."""
    config = sidecar.config
    limit_s = config.redis.redis_timeout + STORE_WAIT_S
    holds = HoldOrders(
        sidecar.budget,
        instance=config.identity.instance,
        limit_s=limit_s,
        wall=time.time,
        log=logger.warning,
        record=sidecar.ledger.add,
    )
    container_orders = ContainerOrders(
        sidecar.controller.inbox.put, instance=config.identity.instance, limit_s=limit_s, log=logger.warning
    )
    sidecar.observers.steps.append(container_orders.notice)
    events = get_events(
        sidecar.budget.entries,
        sidecar.ledger.local,
        settled=sidecar.ledger.settled,
        identity=_identity(config, "enforce_percent"),
        wall=time.time,
        limit_s=limit_s,
    )
    remote = {
        **holds.routes(),
        **status_page.routes(),
        "/fleet": {"GET": _fleet(sidecar, limit_s).get},
        "/events": {"GET": events},
        "/why": {"GET": why.get_local},
    }
    reports = report_api.routes(
        sidecar.offer,
        snapshot=sidecar.snapshot,
        mode=config.identity.mode,
    )
    return {**reports, **container_orders.routes(), **remote}, remote


def _fleet(sidecar: Sidecar, limit_s: float) -> FleetApi:
    config, membership = sidecar.config, sidecar.membership
    return FleetApi(
        sidecar.budget,
        config.budget,
        identity={**_identity(config, "namespace"), "store": redis_urls.shown(config.redis.redis_url)},
        own=lambda: sidecar.describe(sidecar.snapshot()),
        fleet=lambda: membership.last_fleet,
        fleet_age_s=lambda: membership.fleet_age_s,
        local_entries=sidecar.ledger.local,
        limit_s=limit_s,
        wall=time.time,
        alone=config.alone,
        runbook_url=config.notify.runbook_url,
    )


def _identity(config: Config, *names: str) -> dict[str, Any]:
    return {name: getattr(config.identity, name) for name in ("service", "instance", "mode", *names)}
