"""Builds what operators use: holds, culls, the fleet, the events and the status page."""

from __future__ import annotations

import time
from functools import partial
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from sidecar import __version__
from sidecar.app import build_store
from sidecar.config import redis_urls
from sidecar.config.bound import bound
from sidecar.core.fleet.members import digest_of
from sidecar.net import web
from sidecar.net.token_check import TokenCheck
from sidecar.net.token_file import Token
from sidecar.server import callers
from sidecar.server.admin import AdminApi
from sidecar.server.ledger_api import LedgerApi
from sidecar.server.overrides import OverridesApi
from sidecar.server.page.change_stream import ChangeStream
from sidecar.server.page.page_state import PageSources, PageState
from sidecar.server.page.status_page import StatusPage
from sidecar.server.report_stream import ReportStream
from sidecar.telemetry.log import logger

if TYPE_CHECKING:
    from sidecar.app.build import Sidecar
    from sidecar.config.settings import Config
    from sidecar.server.callers import Authorize
    from sidecar.server.why import Why

STORE_WAIT_S: Final = 4.0
"""Time beyond that of Redis that an operator waits for the store: its client may have to be imported."""


class OperatorRoutes(NamedTuple):
    """The routes of the local listener, and of the page listener for others with the token."""

    local: web.Routes
    page: web.Routes


def operator_routes(sidecar: Sidecar, why: Why) -> OperatorRoutes:
    """Build the routes; the observers of orders are registered with ``sidecar``."""
    config = sidecar.config
    limit_s = config.redis.redis_timeout + STORE_WAIT_S
    authorize = TokenCheck(Token(config.server.token_file).read).allows if config.server.token_file else None
    admin = _admin(sidecar, limit_s, authorize).routes()
    overrides = OverridesApi(
        sidecar.controller.inbox.put,
        instance=config.identity.instance,
        limit_s=limit_s,
        log=logger.warning,
        authorize=authorize,
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
    page = _page(sidecar, why, limit_s, admin["/hold"])
    shared = {**admin, **ledger.routes()}
    watch = ReportStream(sidecar.report_tap, time.time)
    local = {**shared, **overrides.routes(), **page.routes(), "/watch": {"GET": watch.get}}
    if authorize is None:
        return OperatorRoutes(local, {})
    watch = ReportStream(sidecar.report_tap, time.time, authorize)
    remote = _with_token({**shared, "/why": {"GET": why.get_local}}, authorize)
    return OperatorRoutes(local, {**remote, **page.routes(authorize), "/watch": {"GET": watch.get}})


def _with_token(routes: web.Routes, authorize: Authorize) -> web.Routes:
    """The routes for commands on other machines: each request needs the token."""

    def guarded(handler: web.Handler) -> web.Handler:
        async def handle(request: web.BaseRequest) -> web.StreamResponse:
            await callers.check(request, authorize)
            return await handler(request)

        return handle

    return {path: {method: guarded(each) for method, each in methods.items()} for path, methods in routes.items()}


def _admin(sidecar: Sidecar, limit_s: float, authorize: Authorize | None) -> AdminApi:
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
        authorize=authorize,
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
    state = PageState(sidecar.config.judging, sidecar.config.budget, sources, limit_s=limit_s)
    changes = ChangeStream(
        state.quick,
        state.slow,
        wall=time.time,
        clock=time.monotonic,
        on_failure=partial(sidecar.observers.failed, "page"),
    )
    return StatusPage(changes, orders, csrf=state.csrf)


def _identity(config: Config, *names: str) -> dict[str, Any]:
    return {name: getattr(config.identity, name) for name in ("service", "instance", "mode", *names)}
