"""What a person asks for at the local door: holds, culls, the fleet, events.

Each room is imported and made when its first request comes, for most sidecars never see any.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import cache, cached_property
from typing import TYPE_CHECKING, Any, Final

from sidecar import __version__
from sidecar.config import redis_urls
from sidecar.net.connections import Handler
from sidecar.net.listener import Routes
from sidecar.telemetry.log import logger

if TYPE_CHECKING:
    from sidecar.config.settings import Settings
    from sidecar.controller.controller import Controller
    from sidecar.controller.ledger import Ledger
    from sidecar.controller.membership import Membership
    from sidecar.net import web
    from sidecar.server.callers import Admits
    from sidecar.store.held_budget import HeldBudget
    from sidecar.telemetry.observers import Observers

SLACK_S: Final = 4.0
"""What a person waits for the bucket beyond its time-out: its client may have to be imported, or its turn awaited."""


class Desk:
    """Answers people, each from the room that knows."""

    def __init__(
        self,
        settings: Settings,
        controller: Controller,
        told: Observers,
        held: HeldBudget,
        membership: Membership,
        *,
        ledger: Ledger,
    ) -> None:
        self._settings = settings
        self._controller = controller
        self._observers = told
        self._held = held
        self._membership = membership
        self._ledger = ledger

    def routes(self) -> Routes:
        """Routes of the local door."""
        return {
            **late(self._admin, {"/hold": ("POST", "DELETE"), "/fleet": ("GET",)}),
            **late(self._overrides, {"/cull": ("POST",), "/revive": ("POST",)}),
            **late(self._events, {"/events": ("GET",)}),
        }

    @property
    def _limit_s(self) -> float:
        return self._settings.redis_timeout + SLACK_S

    def _identity(self, *names: str) -> dict[str, Any]:
        return {name: getattr(self._settings, name) for name in ("service", "instance", "mode", *names)}

    def _admin(self) -> Routes:
        from sidecar.server.admin import Admin  # noqa: PLC0415 - as the head says

        identity = {
            **self._identity("namespace", "budget", "budget_window", "beat_interval"),
            "bucket": redis_urls.shown(self._settings.redis_url),
        }
        return Admin(
            self._held,
            fleet=lambda: self._membership.fleet,
            identity=identity,
            own=self._own,
            limit_s=self._limit_s,
            wall=time.time,
            told=logger.warning,
            noted=self._ledger.add,
            admits=self._admits,
        ).routes()

    def _own(self) -> dict[str, object]:
        """What only this sidecar knows of its container; ``since`` and ``born`` in Unix seconds."""
        seen = self._controller.snapshot()
        unix = time.time() - seen.now
        return {
            "state": seen.container.state,
            "since": round(seen.container.since + unix, 3),
            "born": round(seen.container.born + unix, 3),
            "incarnation": seen.container.life,
            "weight": seen.share,
            "errors": seen.evidence.errors,
            "limit": self._settings.error_limit,
            "version": __version__,
        }

    def _overrides(self) -> Routes:
        from sidecar.server.overrides import Overrides  # noqa: PLC0415 - as the head says

        overrides = Overrides(
            self._controller.inbox.put,
            instance=self._settings.instance,
            limit_s=self._limit_s,
            told=logger.warning,
            admits=self._admits,
        )
        self._observers.also(overrides.notice)
        return overrides.routes()

    @cached_property
    def _admits(self) -> Admits | None:
        if not self._settings.token_file:
            return None
        from sidecar.net.admission import Admission  # noqa: PLC0415 - most have no token
        from sidecar.net.token_file import Token  # noqa: PLC0415 - as above

        return Admission(Token(self._settings.token_file).read).admits

    def _events(self) -> Routes:
        from sidecar.server.ledger_api import Events  # noqa: PLC0415 - as the head says

        return Events(
            self._held.entries,
            self._ledger.local,
            identity=self._identity("enforce_percent"),
            wall=time.time,
            limit_s=self._limit_s,
        ).routes()


def late(make: Callable[[], Routes], paths: dict[str, tuple[str, ...]]) -> Routes:
    """Routes for ``paths`` with their methods, of a room that is made by the first request to any of them."""
    made = cache(make)

    def handler(path: str, method: str) -> Handler:
        async def handle(request: web.BaseRequest) -> web.StreamResponse:
            return await made()[path][method](request)

        return handle

    return {path: {method: handler(path, method) for method in methods} for path, methods in paths.items()}
