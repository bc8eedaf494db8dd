"""``/hold`` at the local listener and on the page: a person sets and ends holds."""

from __future__ import annotations

from collections.abc import Callable
from http import HTTPStatus
from typing import TYPE_CHECKING, Final

from sidecar.core.claims import Unknown
from sidecar.core.explain import reasons
from sidecar.core.fleet.members import hold_json
from sidecar.core.types import Entry
from sidecar.net import web
from sidecar.server import replies, request_check
from sidecar.server.orders import SERVICE, read_hold, read_release
from sidecar.server.replies import ALONE, within

if TYPE_CHECKING:
    from sidecar.store.budget import FleetBudget

NO_BODY: Final = (
    "body: DELETE takes none, scope and instance go into the query: /hold?scope=instance&instance=ID; "
    "without a query it releases the service"
)
"""Without this error a client that puts the scope into a body would release the whole service."""


class HoldOrders:
    """``/hold``: sets and ends holds by ``budget``.

    For each order ``log`` takes a sentence and ``record`` a ledger entry. An answer waits for the shared store, at most
    ``limit_s``. ``wall`` is Unix time.
    """

    def __init__(
        self,
        budget: FleetBudget,
        *,
        instance: str,
        limit_s: float,
        wall: Callable[[], float],
        log: Callable[[str], None],
        record: Callable[[Entry], None],
    ) -> None:
        self._budget = budget
        self._instance = instance
        self._limit_s = limit_s
        self._wall = wall
        self._log = log
        self._record = record

    def routes(self) -> web.Routes:
        """Routes of the local listener."""
        return {"/hold": {"POST": self.post_hold, "DELETE": self.delete_hold}}

    async def post_hold(self, request: web.BaseRequest) -> web.Response:
        """Set a hold; 200 also if it holds for this sidecar only."""
        order = read_hold(await web.read_body(request), self._instance)
        answer = await within(self._limit_s, self._budget.hold(*order))
        hold = self._budget.local_holds.of(order.instance) if isinstance(answer, Unknown) else answer
        if hold is None:
            return self._failed(answer, order.instance)
        entry = Entry(
            "hold",
            instance=hold.instance,
            reason=hold.reason,
            author=hold.author,
            seconds=max(0.0, hold.until - self._wall()),
            once=f"hold {hold.instance} {hold.until:.0f}",  # all sidecars see it, and the ledger has one entry
        )
        self._note(request, answer, reasons.hold(hold), entry)
        return web.json_response({"hold": hold_json(hold), "stored": hold is answer, **replies.unknown_fields(answer)})

    async def delete_hold(self, request: web.BaseRequest) -> web.Response:
        """End a hold; 200 also if only this sidecar's own could be ended."""
        if await web.read_body(request):
            raise web.HttpError(HTTPStatus.BAD_REQUEST, "body", NO_BODY)
        order = read_release(tuple(request.query.items()), self._instance)
        instance, local = order.instance, self._budget.local_holds
        was_held = local.of(instance) is not None
        answer = await within(self._limit_s, self._budget.release(instance))
        if isinstance(answer, Unknown) and not local.covers(instance):
            return self._failed(answer, instance)
        whom = f"instance {instance}" if instance else "the service"
        sentence = f"{order.author or 'a person'} releases {whom}"
        self._note(request, answer, sentence, Entry("release", instance=instance, author=order.author))
        scope = {"scope": "instance" if instance else SERVICE, "instance": instance}
        released = was_held if isinstance(answer, Unknown) else answer
        return web.json_response({"released": released, **scope, **replies.unknown_fields(answer)})

    def _note(self, request: web.BaseRequest, answer: object, sentence: str, entry: Entry) -> None:
        """Log and record an order, with its origin, and whether the store knows of it."""
        here_only = f", here only: {reasons.failure(answer.error)}" if isinstance(answer, Unknown) else ""
        how = f"{request_check.origin(request)}{here_only}"
        self._log(f"{sentence} ({how})")
        self._record(entry._replace(at=self._wall(), detail=f"ordered at {self._instance} {how}"))

    def _failed(self, answer: object, instance: str) -> web.Response:
        """The response to an order without any effect."""
        fields = replies.unknown_fields(answer)
        if fields["error"] == ALONE:
            sentence = f"instance: there is no shared store, and this is {self._instance}, not {instance}"
            raise web.HttpError(HTTPStatus.NOT_FOUND, "instance", sentence)
        return web.json_response(fields, replies.status_of(answer))
