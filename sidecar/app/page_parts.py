"""The status page at its doors. The page itself is imported and made when the first person asks for it."""

from __future__ import annotations

import time
from functools import cached_property, partial
from typing import TYPE_CHECKING, Final

from sidecar.app.admin_parts import late
from sidecar.config import addresses
from sidecar.controller.controller import Controller
from sidecar.controller.error_histogram import Minutes
from sidecar.controller.membership import Membership
from sidecar.inputs import report_api
from sidecar.net.listener import Listener, Routes
from sidecar.telemetry.observers import Observers

if TYPE_CHECKING:
    from sidecar.app.why_parts import Explaining
    from sidecar.config.settings import Settings
    from sidecar.controller.ledger import Ledger
    from sidecar.net import web
    from sidecar.net.tls import TlsDoors
    from sidecar.server.page.pages import Pages
    from sidecar.store.held_budget import HeldBudget

PATHS: Final = {
    "/": ("GET",),
    "/page": ("GET",),
    "/page.css": ("GET",),
    "/page.js": ("GET",),
    "/page/state": ("GET",),
    "/page/stream": ("GET",),
    "/page/hold": ("POST", "DELETE"),
}
CONNECTIONS: Final = 64


class Showing:
    """Shows the page at the local door, and to others who bring the token. ``desk``: the routes with the orders."""

    def __init__(
        self,
        settings: Settings,
        controller: Controller,
        told: Observers,
        *,
        held: HeldBudget,
        membership: Membership,
        ledger: Ledger,
        explaining: Explaining,
        desk: Routes,
    ) -> None:
        self.minutes = Minutes(lambda: sum(controller.measurements.errors.ever().values()), time.monotonic)
        self._settings = settings
        self._told = told
        self._held = held
        self._membership = membership
        self._ledger = ledger
        self._explaining = explaining
        self._desk = desk

    @property
    def local_routes(self) -> Routes:
        """Routes of the local door."""
        return late(self._local, PATHS)

    def listener(self, tls: TlsDoors | None = None, max_connections: int = CONNECTIONS) -> Listener | None:
        """The door for others, if there is to be one."""
        if self._settings.page_listen == addresses.OFF:
            return None
        return Listener(
            "page",
            late(self._remote, PATHS),
            on_refusal=self._told.metrics.refused,
            on_failure=partial(self._told.failed, "page"),
            max_connections=max_connections,
            tls=tls,
        )

    def _local(self) -> Routes:
        return self._pages.routes()

    def _remote(self) -> Routes:
        from sidecar.net.admission import Admission  # noqa: PLC0415 - few show it to others
        from sidecar.net.token_file import Token  # noqa: PLC0415 - as above

        return self._pages.routes(Admission(Token(self._settings.token_file).read).admits)

    @cached_property
    def _pages(self) -> Pages:
        from sidecar.app.page_state import Sources, pages  # noqa: PLC0415 - as the head says

        return pages(
            self._settings,
            Sources(self._explaining, self._held, self._membership, self.minutes, self._ledger.local),
            self._desk["/hold"],
            partial(self._told.failed, "page"),
        )


def guard_local(request: web.BaseRequest) -> None:
    """Raise ``Refusal`` for what a web page in a browser may not ask at the local door; ours looks after itself."""
    if request.path in PATHS:
        report_api.refuse_names(request)
    else:
        report_api.refuse_browsers(request)
