"""Builds the local listener and the page for other machines: reports, holds, the fleet, the events, the status page."""

from __future__ import annotations

import time
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from sidecar import __version__
from sidecar.app import build_store
from sidecar.config import addresses, redis_urls
from sidecar.config.bound import bound
from sidecar.core.fleet.members import digest_of
from sidecar.core.types import AppExited
from sidecar.inputs import report_api
from sidecar.net.token_check import TokenCheck
from sidecar.net.token_file import Token
from sidecar.server.admin import AdminApi
from sidecar.server.ledger_api import LedgerApi
from sidecar.server.local_server import LocalServer
from sidecar.server.overrides import OverridesApi
from sidecar.server.page.page_state import PageSources, PageState
from sidecar.server.page.status_page import StatusPage
from sidecar.server.report_watch import ReportWatch
from sidecar.server.request_check import RequestCheck
from sidecar.telemetry.log import logger

if TYPE_CHECKING:
    from collections.abc import Callable

    from sidecar.app.build import Sidecar
    from sidecar.config.settings import Config
    from sidecar.net import web
    from sidecar.net.tls import ServerTls
    from sidecar.server.why import Why

STORE_WAIT_S: Final = 4.0
"""Time beyond that of Redis that an operator waits for the store: its connection may have to be made."""


def local_servers(
    sidecar: Sidecar,
    why: Why,
    tls: ServerTls | None,
    *,
    connection_limit: Callable[[str], int],
    between: Callable[[], None],
) -> tuple[LocalServer, LocalServer | None]:
    """Build the local listener, and the page listener if it is configured; neither is open.

    ``connection_limit``: the maximum number of connections by the name of the listener. ``between`` as in
    ``LocalServer``.
    """
    config, observers = sidecar.config, sidecar.observers
    authorize = TokenCheck(Token(config.server.token_file).read).allows if config.server.token_file else None
    local, remote = _routes(sidecar, why)

    def server(name: str, routes: web.Routes) -> LocalServer:
        return LocalServer(
            name,
            routes,
            RequestCheck(authorize, is_remote=name == "page"),
            on_refusal=sidecar.metrics.refused,
            on_failure=partial(observers.failed, "page" if name == "page" else "listener"),
            max_connections=connection_limit(name),
            between=between,
            tls=tls if config.tls.covers(name) else None,
        )

    has_page = config.server.page_listen != addresses.OFF
    return server("local", local), server("page", remote) if has_page else None


def _routes(sidecar: Sidecar, why: Why) -> tuple[web.Routes, web.Routes]:
    """The routes of the local listener, and those of the page listener: what a command may ask from another machine."""
    config = sidecar.config
    limit_s = config.redis.redis_timeout + STORE_WAIT_S
    admin = _admin(sidecar, limit_s).routes()
    overrides = OverridesApi(
        sidecar.controller.inbox.put, instance=config.identity.instance, limit_s=limit_s, log=logger.warning
    )
    sidecar.observers.steps.append(overrides.notice)
    ledger = LedgerApi(
        sidecar.budget.entries,
        sidecar.ledger.local,
        settled=sidecar.ledger.settled,
        identity=_identity(config, "enforce_percent"),
        wall=time.time,
        limit_s=limit_s,
    )
    remote = {
        **admin,
        **ledger.routes(),
        **_page(sidecar, why, limit_s, admin["/hold"]).routes(),
        "/watch": {"GET": ReportWatch(sidecar.report_tap).get},
        "/why": {"GET": why.get_local},
    }
    reports = report_api.routes(
        sidecar.offer,
        on_exit=lambda: sidecar.controller.inbox.put((AppExited(),)),
        state=lambda: sidecar.snapshot().container.state,
        snapshot=sidecar.snapshot,
        mode=config.identity.mode,
        tap=sidecar.report_tap,
    )
    return {**reports, **overrides.routes(), **remote}, remote


def _admin(sidecar: Sidecar, limit_s: float) -> AdminApi:
    config = sidecar.config
    return AdminApi(
        sidecar.budget,
        fleet=lambda: sidecar.membership.last_fleet,
        fleet_age_s=lambda: sidecar.membership.fleet_age_s,
        identity={
            **_identity(config, "namespace"),
            "budget": config.budget.budget,
            "bound": bound(config.budget),
            "budget_window": config.budget.budget_window,
            "beat_interval": config.budget.beat_interval,
            "store": redis_urls.shown(config.redis.redis_url),
        },
        own=lambda: _own(sidecar),
        limit_s=limit_s,
        wall=time.time,
        log=logger.warning,
        record=sidecar.ledger.add,
    )


def _own(sidecar: Sidecar) -> dict[str, object]:
    """What only this sidecar knows of its container, as in its beats; ``since`` and ``born`` in Unix seconds."""
    config, seen = sidecar.config, sidecar.snapshot()
    return {
        "state": seen.container.state,
        "since": round(seen.unix_of(seen.container.since), 3),
        "born": round(seen.unix_of(seen.container.born), 3),
        "incarnation": seen.container.life,
        "weight": seen.would_share,
        "errors": seen.evidence.errors,
        "limit": config.judging.error_limit,
        "version": __version__,
        "settings": digest_of(build_store.terms(config).dump()),
    }


def _page(sidecar: Sidecar, why: Why, limit_s: float, orders: Any) -> StatusPage:
    config = sidecar.config
    server = config.server
    sources = PageSources(
        why.local,
        lambda: {"instance": config.identity.instance, **_own(sidecar)},
        sidecar.history,
        sidecar.budget,
        fleet=lambda: sidecar.membership.last_fleet,
        fleet_age_s=lambda: sidecar.membership.fleet_age_s,
        error_counts=sidecar.error_minutes.counts,
        local_entries=sidecar.ledger.local,
        listeners={"public": server.public_listen, "local": server.local_listen, "agent": server.agent_listen},
        runbook_url=config.notify.runbook_url,
        store=redis_urls.shown(config.redis.redis_url),
    )
    state = PageState(
        config.judging, config.budget, sources, limit_s=limit_s, on_failure=partial(sidecar.observers.failed, "page")
    )
    return StatusPage(state, orders)


def _identity(config: Config, *names: str) -> dict[str, Any]:
    return {name: getattr(config.identity, name) for name in ("service", "instance", "mode", *names)}
