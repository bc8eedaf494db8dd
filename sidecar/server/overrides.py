"""``POST /cull`` and ``POST /revive`` at the local listener: a person culls this container, or puts it back.

An order goes through the inbox like any message, and all gates of the fleet apply to it. The response is its outcome,
or 202 if that takes longer than ``limit_s``; no other listener waits with it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from http import HTTPStatus
from typing import Any, Final, NamedTuple

from sidecar.core.explain import reasons
from sidecar.core.life.container import Container
from sidecar.core.life.events import Culled, OrderIgnored, OrderTaken, Restarted, Revived, WouldCull
from sidecar.core.life.snapshot import Record
from sidecar.core.life.triggers import CullOrdered, ReviveOrdered
from sidecar.core.types import Denied, Granted, State, Unknown
from sidecar.inputs.report_bodies import BadReportError
from sidecar.net import web
from sidecar.server import request_check
from sidecar.server.orders import OverrideOrder, read_order

OUT_OF_BALANCE: Final = (State.DRAINING, State.DOWN)
PENDING: Final = "there is no answer yet: GET /why shows the outcome"

Ordered = CullOrdered | ReviveOrdered


class OrderOutcome(NamedTuple):
    """The outcome of an order: words for programs, and a sentence. ``retry_after_s`` if it was denied."""

    word: str
    sentence: str
    status: HTTPStatus = HTTPStatus.OK
    reason: str = ""
    retry_after_s: float | None = None


class OverridesApi:
    """Passes orders for ``instance`` to ``put``; ``notice`` must observe every step of the controller.

    ``log`` takes a sentence for each order.
    """

    def __init__(
        self,
        put: Callable[[Ordered], None],
        *,
        instance: str,
        limit_s: float,
        log: Callable[[str], None],
    ) -> None:
        self._put = put
        self._instance = instance
        self._limit_s = limit_s
        self._log = log
        self._waiting: list[_Waiting] = []

    def routes(self) -> web.Routes:
        """Routes of the local listener."""
        return {"/cull": {"POST": self.post_cull}, "/revive": {"POST": self.post_revive}}

    async def post_cull(self, request: web.BaseRequest) -> web.Response:
        """Claim a token for this container, whatever its errors."""
        order = await self._order(request, "orders the cull of")
        return self._answer(order, await self._outcome(CullOrdered(*order)))

    async def post_revive(self, request: web.BaseRequest) -> web.Response:
        """Put the container back in balance, as a new incarnation."""
        order = await self._order(request, "revives")
        return self._answer(order, await self._outcome(ReviveOrdered(*order)))

    def notice(self, record: Record) -> None:
        """Set the outcome of each order that this step decides."""
        for waiting in self._waiting:
            if not waiting.outcome.done() and (outcome := waiting.seen(record)) is not None:
                waiting.outcome.set_result(outcome)

    async def _order(self, request: web.BaseRequest, does: str) -> OverrideOrder:
        try:
            order = read_order(await web.read_body(request))
        except BadReportError as error:
            raise web.HttpError(HTTPStatus.BAD_REQUEST, "body", str(error)) from None
        origin = request_check.origin(request)
        self._log(f"{order.author} {does} instance {self._instance}: {order.reason} ({origin})")
        return OverrideOrder(order.author, f"{order.reason} ({origin})")

    async def _outcome(self, event: Ordered) -> OrderOutcome:
        waiting = _Waiting(event, asyncio.get_running_loop().create_future())
        self._waiting.append(waiting)
        try:
            self._put(event)
            async with asyncio.timeout(self._limit_s):
                return await waiting.outcome
        except TimeoutError:
            return OrderOutcome("pending", PENDING, HTTPStatus.ACCEPTED)
        finally:
            self._waiting.remove(waiting)

    def _answer(self, order: OverrideOrder, outcome: OrderOutcome) -> web.Response:
        fields: dict[str, Any] = {
            "outcome": outcome.word,
            "reason": outcome.reason,
            "sentence": outcome.sentence,
            "retry_after_s": outcome.retry_after_s,
            "instance": self._instance,
            "order": order._asdict(),
        }
        return web.json_response(fields, outcome.status)


@dataclass(eq=False)
class _Waiting:
    """A request that waits for the outcome of its order; ``has_begun`` once the controller has taken the order."""

    event: Ordered
    outcome: asyncio.Future[OrderOutcome]
    has_begun: bool = False

    def seen(self, record: Record) -> OrderOutcome | None:
        """The order's outcome, if this step decides it."""
        if self.has_begun:
            return cull_outcome(record)
        for event in record.events:
            if isinstance(event, Revived) and _is_same(event.order, self.event):
                return OrderOutcome("revived", "it is up again, with an empty window")
            if isinstance(event, OrderIgnored) and _is_same(event.order, self.event):
                return ignored(event.order, record.container)
            if isinstance(event, OrderTaken) and event.order is self.event:
                self.has_begun = True
        return None


def _is_same(taken: Ordered | None, order: Ordered) -> bool:
    """Whether the controller took this order: it adds the new incarnation id to a revival."""
    if isinstance(taken, ReviveOrdered) and isinstance(order, ReviveOrdered):
        return (taken.author, taken.reason) == (order.author, order.reason)
    return taken is order


def ignored(order: Ordered, container: Container) -> OrderOutcome:
    """The outcome of an order that changes nothing."""
    if container.state is State.STOPPING:
        return _STOPPING
    if isinstance(order, ReviveOrdered):
        return OrderOutcome("not_down", f"it is {container.state}: there is nothing to revive", HTTPStatus.CONFLICT)
    if container.state in OUT_OF_BALANCE:
        return OrderOutcome(
            "already", f"it is {container.state} already: {container.latch.reason if container.latch else ''}"
        )
    if container.order is not None:
        return OrderOutcome("already", f"{container.order.author} ordered it already, and there is no answer yet")
    return OrderOutcome("already", "in shadow mode it would be down already")


def cull_outcome(record: Record) -> OrderOutcome | None:
    """The outcome of a cull that the controller has taken; None while there is no answer."""
    container = record.container
    if container.state is State.STOPPING:
        return _STOPPING
    kinds = {type(event) for event in record.events}
    if Culled in kinds and isinstance(container.answer, Granted):
        return OrderOutcome("granted", reasons.answer(container.answer), reason=reasons.reason_word(container.answer))
    if Restarted in kinds:
        sentence = "the app has restarted, and the order was for its previous incarnation"
        return OrderOutcome("restarted", sentence, HTTPStatus.CONFLICT)
    if WouldCull in kinds:
        return OrderOutcome("would_cull", "granted, but shadow mode leaves the container up")
    return None if container.order is not None else _refused(container)


def _refused(container: Container) -> OrderOutcome:
    answer = container.answer
    if isinstance(answer, Denied):
        sentence, word = reasons.answer(answer), reasons.reason_word(answer)
        return OrderOutcome("denied", sentence, HTTPStatus.CONFLICT, word, round(answer.retry_after_s, 3))
    word = answer.error if isinstance(answer, Unknown) else "internal"
    status = HTTPStatus.GATEWAY_TIMEOUT if word == "timeout" else HTTPStatus.BAD_GATEWAY
    return OrderOutcome("unknown", reasons.answer(Unknown(word)), status, word)


_STOPPING: Final = OrderOutcome("stopping", "the sidecar is stopping", HTTPStatus.CONFLICT)
