"""``POST /cull`` and ``POST /revive`` at the local listener: a person culls this container, or puts it back.

An order goes through the inbox like any message, and all gates of the fleet apply to it. The response is its outcome,
or 202 if that takes longer than ``limit_s``; no other listener waits with it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import KW_ONLY, dataclass, field
from http import HTTPStatus
from typing import Any, Final, NamedTuple

from sidecar.core.claims import Answer, Denied, Granted
from sidecar.core.explain import reasons
from sidecar.core.life.container import Container
from sidecar.core.life.events import (
    CullOrder,
    CullOrdered,
    Event,
    Moved,
    OrderIgnored,
    OrderTaken,
    Restarted,
    Revived,
    ReviveOrdered,
    TokenAnswered,
    WouldCull,
)
from sidecar.core.life.snapshot import Record
from sidecar.core.types import State
from sidecar.net import web
from sidecar.server import replies, request_check
from sidecar.server.orders import read_cull_or_revive

Ordered = CullOrdered | ReviveOrdered


class OrderOutcome(NamedTuple):
    """The outcome of an order: words for programs, and a sentence. ``retry_after_s`` if it was denied."""

    word: str
    sentence: str
    status: HTTPStatus = HTTPStatus.OK
    reason: str = ""
    retry_after_s: float | None = None


PENDING: Final = OrderOutcome("pending", "there is no answer yet: GET /why shows the outcome", HTTPStatus.ACCEPTED)
STOPPING: Final = OrderOutcome("stopping", "the sidecar is stopping", HTTPStatus.CONFLICT)


@dataclass(eq=False)
class ContainerOrders:
    """Passes orders to the controller; ``notice`` must observe each of its steps."""

    put: Callable[[Ordered], None]
    _: KW_ONLY
    instance: str
    limit_s: float  # how long a response waits for the outcome
    log: Callable[[str], None]  # takes a sentence for each order
    _waiting: list[_Waiting] = field(default_factory=list, init=False)

    def routes(self) -> web.Routes:
        """Routes of the local listener."""
        return {"/cull": {"POST": self.post_cull}, "/revive": {"POST": self.post_revive}}

    async def post_cull(self, request: web.BaseRequest) -> web.Response:
        """Claim a token for this container, whatever its errors."""
        return await self._carry_out(request, CullOrdered, "orders the cull of")

    async def post_revive(self, request: web.BaseRequest) -> web.Response:
        """Put the container back in balance, as a new incarnation."""
        return await self._carry_out(request, ReviveOrdered, "orders the revival of")

    def notice(self, record: Record) -> None:
        """Set the outcome of each order that this step decides; its last event says more than the first."""
        for event in reversed(record.events):
            for waiting in self._waiting:
                if not waiting.outcome.done() and (outcome := waiting.decided_by(event, record.container)):
                    waiting.outcome.set_result(outcome)

    async def _carry_out(self, request: web.BaseRequest, kind: type[Ordered], does: str) -> web.Response:
        order = read_cull_or_revive(await web.read_body(request))
        author, reason = order.author, f"{order.reason} ({request_check.origin(request)})"
        self.log(f"{author} {does} instance {self.instance}: {reason}")
        outcome = await self._outcome(kind(author, reason))
        fields: dict[str, Any] = {
            "outcome": outcome.word,
            "reason": outcome.reason,
            "sentence": outcome.sentence,
            "retry_after_s": outcome.retry_after_s,
            "instance": self.instance,
            "order": {"author": author, "reason": reason},
        }
        return web.json_response(fields, outcome.status)

    async def _outcome(self, order: Ordered) -> OrderOutcome:
        waiting = _Waiting(order, asyncio.get_running_loop().create_future())
        self._waiting.append(waiting)
        try:
            self.put(order)
            async with asyncio.timeout(self.limit_s):
                return await waiting.outcome
        except TimeoutError:
            return PENDING
        finally:
            self._waiting.remove(waiting)


@dataclass(eq=False)
class _Waiting:
    """A request that waits for the outcome of its order; ``is_taken`` once the controller claims a token for it."""

    order: Ordered
    outcome: asyncio.Future[OrderOutcome]
    is_taken: bool = False

    def decided_by(self, event: Event, container: Container) -> OrderOutcome | None:
        """The order's outcome, if this event decides it."""
        if _key(getattr(event, "order", None)) == _key(self.order):
            self.is_taken = self.is_taken or isinstance(event, OrderTaken)
            return _outcome(event, container)
        if self.is_taken and isinstance(event, Restarted):
            sentence = "the app has restarted, and the order was for its previous incarnation"
            return OrderOutcome("restarted", sentence, HTTPStatus.CONFLICT)
        return STOPPING if self.is_taken and isinstance(event, Moved) and event.state is State.STOPPING else None


def _key(order: Ordered | CullOrder | None) -> tuple[object, ...]:
    """What an order keeps when the controller takes it."""
    return () if order is None else (isinstance(order, ReviveOrdered), order.author, order.reason)


def _outcome(event: Event, container: Container) -> OrderOutcome | None:
    """The outcome of the order that this event is about; None if it decides nothing yet."""
    match event:
        case OrderIgnored():
            return _ignored(event.order, container)
        case TokenAnswered():
            return _answered(event.answer)
        case WouldCull():
            return OrderOutcome("would_cull", "granted, but shadow mode leaves the container up")
        case Revived():
            return OrderOutcome("revived", "it is up again, with an empty window")
    return None


def _ignored(order: Ordered, container: Container) -> OrderOutcome:
    if container.state is State.STOPPING:
        return STOPPING
    if isinstance(order, ReviveOrdered):
        return OrderOutcome("not_down", f"it is {container.state}: there is nothing to revive", HTTPStatus.CONFLICT)
    if container.latch is not None:
        return OrderOutcome("already", f"it is {container.state} already: {container.latch.reason}")
    if container.order is not None:
        return OrderOutcome("already", f"{container.order.author} ordered it already, and there is no answer yet")
    return OrderOutcome("already", "in shadow mode it would be down already")


def _answered(answer: Answer) -> OrderOutcome:
    sentence, word = reasons.answer(answer), reasons.reason_word(answer)
    if isinstance(answer, Granted):
        return OrderOutcome("granted", sentence, reason=word)
    if isinstance(answer, Denied):
        return OrderOutcome("denied", sentence, HTTPStatus.CONFLICT, word, round(answer.retry_after_s, 3))
    return OrderOutcome("unknown", sentence, replies.status_of(answer), word)
