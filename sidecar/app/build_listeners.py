"""Builds and opens the listeners: which routes each of them has, and at which address it listens."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial
from typing import TYPE_CHECKING, Final

from sidecar import __version__
from sidecar.app.build_local import local_servers
from sidecar.config import addresses, redis_urls
from sidecar.core.life.delays import CHECK_JITTER
from sidecar.net.address_gate import AddressGate, parse_networks
from sidecar.net.client_tls import KeyPair
from sidecar.net.sockets import (
    RESERVED_DESCRIPTORS,
    connection_limit,
    naming_setting,
    raise_descriptor_limit,
)
from sidecar.net.tls import ServerTls
from sidecar.server import health
from sidecar.server.agent_check import AgentCheck
from sidecar.server.listeners import Listeners
from sidecar.server.local_server import LocalServer
from sidecar.server.public import MOST, PublicServer
from sidecar.server.public_pages import MetricsPage, landing, public_pages
from sidecar.server.why import Why, WhyIdentity, WhySources
from sidecar.telemetry.log import logger

if TYPE_CHECKING:
    from sidecar.app.build import Sidecar
    from sidecar.config.settings import Config

CONNECTIONS: Final = {"local": 256, "public": MOST, "page": 64}
"""Connections per listener, as far as the process may open files."""


@asynccontextmanager
async def listening(sidecar: Sidecar) -> AsyncIterator[Listeners]:
    """Every listener, open while the context lasts. Raises ``CannotListenError``, which names the setting.

    Those that answer about health open last: a container that is up takes errors, too.
    """
    config, observers = sidecar.config, sidecar.observers
    why, tls = _why(sidecar), _tls(sidecar)
    of_all = sum(CONNECTIONS.values())
    descriptors = raise_descriptor_limit(of_all + RESERVED_DESCRIPTORS)

    def most(name: str) -> int:
        return connection_limit(CONNECTIONS[name], of_all, descriptors)

    public = PublicServer(
        public_pages(
            _health(sidecar, why),
            {
                "/": landing(config.identity.service, config.identity.instance),
                "/metrics": MetricsPage(sidecar.metrics.page),
                "/why": why.get_public,
            },
        ),
        on_refusal=sidecar.metrics.refused,
        on_failure=partial(observers.failed, "listener"),
        gate=_gate(sidecar, "public"),
        tls=tls if config.tls.covers("public") else None,
        most=most("public"),
    )
    local, page = local_servers(sidecar, why, tls, connection_limit=most, between=public.turn_between)
    listeners = Listeners(local, public, page, tls=tls)
    try:
        await _listen(config, local_listen=listeners.local, socket=listeners.local, page_listen=listeners.page)
        if config.statsd.has_sockets:
            from sidecar.app.build_datagrams import open_datagrams  # noqa: PLC0415 - few have datagrams

            listeners.datagrams = await open_datagrams(
                config.statsd,
                sidecar.report_tap.tapped("statsd", sidecar.offer),
                registry=sidecar.metrics.registry,
                on_failure=partial(observers.failed, "listener"),
            )
        listeners.agent = _agent(sidecar)
        await _listen(config, agent_listen=listeners.agent, public_listen=listeners.public)
        _log_addresses(config, listeners)
        yield listeners
    finally:
        await listeners.close()


async def _listen(config: Config, **listeners: LocalServer | PublicServer | AgentCheck | None) -> None:
    """Open each listener at the address of the setting that it goes by."""
    for name, listener in listeners.items():
        at = getattr(config.server, name)
        if at in ("", addresses.OFF) or listener is None:
            continue
        with naming_setting(f"ARBITER_{name.upper()}", at):
            if name == "socket" and isinstance(listener, LocalServer):
                await listener.open_unix(at)
            else:
                await listener.open_tcp(*addresses.split(at))


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
        down_status=sidecar.config.server.down_status,
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
            fleet=lambda: membership.fleet,
            heard_s=lambda: membership.fleet_age_s,
            local_hold=lambda: sidecar.budget.local_holds.in_force,
            leaving=controller.assessment.measurements.errors.leaving,
            samples=controller.assessment.samples.newest,
            wall=time.time,
            action=lambda: sidecar.actuator.last if sidecar.actuator else None,
            warnings=sidecar.warnings,
        ),
        sidecar.history,
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
        "agent_at": ", ".join(listeners.agent.addresses if listeners.agent else ()),
        "store": redis_urls.shown(config.redis.redis_url),
        "state_dir": config.state_directory or "none: a cull does not survive the sidecar",
    }
    logger.info("listening", extra={"fields": fields})
    if config.alone:
        logger.warning(config.alone)
