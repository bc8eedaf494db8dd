"""Connects what explains a container: its history, its inquest, and the answers at ``/why``."""

from __future__ import annotations

import time
from functools import cached_property, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sidecar.controller.controller import Controller
from sidecar.controller.evidence_capture import Hook, Inquest
from sidecar.controller.membership import Membership
from sidecar.core.explain.history import History
from sidecar.net.listener import Routes
from sidecar.telemetry.observers import Observers

if TYPE_CHECKING:
    from sidecar.config.settings import Settings
    from sidecar.net import web
    from sidecar.server.why import Why
    from sidecar.store.held_budget import HeldBudget


class Explaining:
    """Says why: at both doors, and in the body of every "down". The history begins with it."""

    def __init__(
        self, settings: Settings, controller: Controller, told: Observers, held: HeldBudget, membership: Membership
    ) -> None:
        self.history = History(time.time)
        self._settings = settings
        self._controller = controller
        self._held = held
        self._membership = membership
        told.also(self.history.notice)

    @property
    def local_routes(self) -> Routes:
        """Routes of the local door."""
        return {"/why": {"GET": self.get_local}}

    async def get_local(self, request: web.BaseRequest) -> web.StreamResponse:
        """``GET /why`` of the local door."""
        return await self._why.get_local(request)

    async def get_public(self, request: web.BaseRequest) -> web.StreamResponse:
        """``GET /why`` of the public door."""
        return await self._why.get_public(request)

    def local(self) -> dict[str, Any]:
        """What ``GET /why`` of the local door tells, as JSON values."""
        return self._why.local()

    def text(self, limit: int) -> str:
        """The body of a "down", in at most ``limit`` bytes."""
        return self._why.text(limit)

    @cached_property
    def _why(self) -> Why:
        from sidecar.server.why import Identity, Sources, Why  # noqa: PLC0415 - a quarter of a MiB for the few who ask

        own, controller = self._settings, self._controller
        return Why(
            Identity(own.service, own.instance, own.mode, own.error_limit, own.runbook_url),
            Sources(
                controller.snapshot,
                fleet=lambda: self._membership.fleet,
                heard_s=lambda: self._membership.heard_s,
                local_hold=lambda: self._held.local,
                leaving=controller.measurements.errors.leaving,
                samples=controller.inquest.samples.newest,
                kept=lambda: controller.inquest.kept,
                wall=time.time,
            ),
            self.history,
        )


def inquest(settings: Settings, told: Observers) -> Inquest:
    """What is kept of a cull, with the hook if there is one."""
    return Inquest(time.monotonic, time.time, partial(told.failed, "hook"), _hook(settings, told))


def _hook(settings: Settings, told: Observers) -> Hook | None:
    if not settings.cull_hook:
        return None
    from sidecar.actions.hook import Hook as Program  # noqa: PLC0415 - most sidecars have none

    path = str(Path(settings.cull_hook).absolute())  # it runs in another directory
    return Program(path, settings.cull_hook_timeout, settings.service, partial(told.failed, "hook"))
