"""``/hold`` at the local listener and on the page: a person sets and ends holds."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import KW_ONLY, dataclass
from http import HTTPStatus
from typing import TYPE_CHECKING, Final

from sidecar.core.claims import ALONE, Unknown
from sidecar.core.explain import reasons
from sidecar.core.fleet.members import hold_json
from sidecar.core.types import Entry
from sidecar.net import web
from sidecar.server import replies, request_check
from sidecar.server.orders import SERVICE, read_hold, read_release
from sidecar.server.replies import within

if TYPE_CHECKING:
    from sidecar.store.budget import FleetBudget

NO_BODY: Final = (
    "body: DELETE takes none, scope and instance go into the query: /hold?scope=instance&instance=ID; "
    "without a query it releases the service"
)
"""Without this error a client that puts the scope into a body would release the whole service."""


@dataclass(eq=False)
class HoldOrders:
    """Sets and ends holds."""

    budget: FleetBudget
    _: KW_ONLY
    instance: str
    limit_s: float  # how long an answer waits for the shared store
    wall: Callable[[], float]  # Unix time
    log: Callable[[str], None]  # takes a sentence for each order
    record: Callable[[Entry], None]  # takes its entry of the ledger

    def routes(self) -> web.Routes:
        """Routes of the local listener."""
        return {"/hold": {"POST": self.post_hold, "DELETE": self.delete_hold}}

    async def post_hold(self, request: web.BaseRequest) -> web.Response:
        """Set a hold; 200 also if it holds for this sidecar only."""
        order = read_hold(await web.read_body(request), self.instance)
        answer = await within(self.limit_s, self.budget.hold(*order))
        hold = self.budget.local_holds.of(order.instance) if isinstance(answer, Unknown) else answer
        if hold is None:
            return self._failed(answer, order.instance)
        entry = Entry(
            "hold",
            instance=hold.instance,
            reason=hold.reason,
            author=hold.author,
            seconds=max(0.0, hold.until - self.wall()),
            once=f"hold {hold.instance} {hold.until:.0f}",  # all sidecars see it, and the ledger has one entry
        )
        self._note(request, answer, reasons.hold(hold), entry)
        return web.json_response({"hold": hold_json(hold), "stored": hold is answer, **replies.unknown_fields(answer)})

    async def delete_hold(self, request: web.BaseRequest) -> web.Response:
        """End a hold; 200 also if only this sidecar's own could be ended."""
        if await web.read_body(request):
            raise web.HttpError(HTTPStatus.BAD_REQUEST, "body", NO_BODY)
        order = read_release(tuple(request.query.items()), self.instance)
        instance, local = order.instance, self.budget.local_holds
        was_held = local.of(instance) is not None
        answer = await within(self.limit_s, self.budget.release(instance))
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
        self.log(f"{sentence} ({how})")
        self.record(entry._replace(at=self.wall(), detail=f"ordered at {self.instance} {how}"))

    def _failed(self, answer: object, instance: str) -> web.Response:
        """The response to an order without any effect."""
        fields = replies.unknown_fields(answer)
        if fields["error"] == ALONE:
            sentence = f"instance: there is no shared store, and this is {self.instance}, not {instance}"
            raise web.HttpError(HTTPStatus.NOT_FOUND, "instance", sentence)
        return web.json_response(fields, replies.status_of(answer))
