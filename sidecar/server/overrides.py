"""A person culls this container, or has it up again: ``POST /cull`` and ``POST /revive``, for the local door alone.

An order goes through the inbox like any message, and all gates of the fleet apply to it. The answer is what came of
it, or 202 when that takes longer than ``limit_s``; no other door waits with it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from http import HTTPStatus
from typing import Any, Final, NamedTuple

from sidecar.core.explain import reasons
from sidecar.core.life.container import Container
from sidecar.core.life.events import CullOrdered, Event, Revived
from sidecar.core.life.snapshot import Record
from sidecar.core.types import Denied, Granted, State, Unknown
from sidecar.inputs.reports import BadReportError
from sidecar.net import web
from sidecar.net.listener import Refusal, Routes, body, json_response
from sidecar.server import callers
from sidecar.server.callers import Admits
from sidecar.server.orders import Order, read_order

OUT_OF_BALANCE: Final = (State.DRAINING, State.DOWN)
PENDING: Final = "there is no answer yet: GET /why tells what comes of it"

Ordered = CullOrdered | Revived


class Outcome(NamedTuple):
    """What came of an order: the machine's words, and a sentence; ``retry_after_s`` of who was denied."""

    word: str
    sentence: str
    status: HTTPStatus = HTTPStatus.OK
    reason: str = ""
    retry_after_s: float | None = None


class Overrides:
    """Takes orders for ``instance`` and hands them to ``put``; ``notice`` has to hear of every step of the controller.

    ``told`` takes a sentence for the log on every order. ``admits``: who may give one over TCP, None for all.
    """

    def __init__(
        self,
        put: Callable[[Ordered], None],
        *,
        instance: str,
        limit_s: float,
        told: Callable[[str], None],
        admits: Admits | None = None,
    ) -> None:
        self._put = put
        self._instance = instance
        self._limit_s = limit_s
        self._told = told
        self._admits = admits
        self._waiting: list[_Waiting] = []

    def routes(self) -> Routes:
        """Routes of the local door."""
        return {"/cull": {"POST": self.post_cull}, "/revive": {"POST": self.post_revive}}

    async def post_cull(self, request: web.BaseRequest) -> web.Response:
        """Claim a token for this container, whatever its window holds."""
        order = await self._order(request, "orders the cull of")
        return self._answer(order, await self._outcome(CullOrdered(*order)))

    async def post_revive(self, request: web.BaseRequest) -> web.Response:
        """Be up again, as another life."""
        order = await self._order(request, "revives")
        return self._answer(order, await self._outcome(Revived(*order)))

    def notice(self, record: Record) -> None:
        """Tell those who wait what a step means to their orders."""
        for waiting in self._waiting:
            if not waiting.outcome.done() and (outcome := waiting.seen(record)) is not None:
                waiting.outcome.set_result(outcome)

    async def _order(self, request: web.BaseRequest, does: str) -> Order:
        await callers.check(request, self._admits)
        try:
            order = read_order(await body(request))
        except BadReportError as error:
            raise Refusal(HTTPStatus.BAD_REQUEST, "body", str(error)) from None
        origin = callers.origin(request)
        self._told(f"{order.author} {does} instance {self._instance}: {order.reason} ({origin})")
        return Order(order.author, f"{order.reason} ({origin})")

    async def _outcome(self, event: Ordered) -> Outcome:
        waiting = _Waiting(event, asyncio.get_running_loop().create_future())
        self._waiting.append(waiting)
        try:
            self._put(event)
            async with asyncio.timeout(self._limit_s):
                return await waiting.outcome
        except TimeoutError:
            return Outcome("pending", PENDING, HTTPStatus.ACCEPTED)
        finally:
            self._waiting.remove(waiting)

    def _answer(self, order: Order, outcome: Outcome) -> web.Response:
        told: dict[str, Any] = {
            "outcome": outcome.word,
            "reason": outcome.reason,
            "sentence": outcome.sentence,
            "retry_after_s": outcome.retry_after_s,
            "instance": self._instance,
            "order": order._asdict(),
        }
        return json_response(told, outcome.status)


@dataclass(eq=False)
class _Waiting:
    """One who waits for what comes of an order; ``has_begun`` once the order was taken."""

    event: Ordered
    outcome: asyncio.Future[Outcome]
    has_begun: bool = False

    def seen(self, record: Record) -> Outcome | None:
        """What the step means to this order, if it decides it."""
        if self.has_begun:
            return cull_outcome(record)
        if not _is_of(record.event, self.event):
            return None
        if isinstance(self.event, Revived):
            return revive_outcome(record)
        self.has_begun = record.before.order is None is not record.after.order
        return None if self.has_begun else not_taken(record.before)


def _is_of(event: Event, order: Ordered) -> bool:
    """Whether it is this order: the controller adds to a revival what the next life is to be called."""
    if isinstance(event, CullOrdered):
        return event is order
    if isinstance(event, Revived) and isinstance(order, Revived):
        return (event.author, event.reason) == (order.author, order.reason)
    return False


def not_taken(container: Container) -> Outcome:
    """Why an order to cull changes nothing."""
    if container.state is State.STOPPING:
        return _STOPPING
    if container.state in OUT_OF_BALANCE:
        return Outcome(
            "already", f"it is {container.state} already: {container.latch.reason if container.latch else ''}"
        )
    if container.order is not None:
        return Outcome("already", f"{container.order.author} ordered it already, and there is no answer yet")
    return Outcome("already", "in shadow mode it would be down already")


def cull_outcome(record: Record) -> Outcome | None:
    """What a step means to an order that was taken; None while there is no answer."""
    after = record.after
    if after.state is State.STOPPING:
        return _STOPPING
    if record.culled and isinstance(after.answer, Granted):
        return Outcome("granted", reasons.answer(after.answer), reason=reasons.reason_word(after.answer))
    if after.order is not None:
        return None
    if record.restarted:
        return Outcome("restarted", "the app has begun another life, which nobody ordered to end", HTTPStatus.CONFLICT)
    if after.would_culls > record.before.would_culls:
        return Outcome("would_cull", "granted, but shadow mode leaves it up")
    return _refused(after)


def _refused(container: Container) -> Outcome:
    answer = container.answer
    if isinstance(answer, Denied):
        sentence, word = reasons.answer(answer), reasons.reason_word(answer)
        return Outcome("denied", sentence, HTTPStatus.CONFLICT, word, round(answer.retry_after_s, 3))
    word = answer.error if isinstance(answer, Unknown) else "internal"
    status = HTTPStatus.GATEWAY_TIMEOUT if word == "timeout" else HTTPStatus.BAD_GATEWAY
    return Outcome("unknown", reasons.answer(Unknown(word)), status, word)


def revive_outcome(record: Record) -> Outcome:
    """What the step means that took an order to revive."""
    if record.before.state in OUT_OF_BALANCE:
        return Outcome("revived", "it is up again, with an empty window")
    if record.before.state is State.STOPPING:
        return _STOPPING
    return Outcome("not_down", f"it is {record.before.state}: there is nothing to revive", HTTPStatus.CONFLICT)


_STOPPING: Final = Outcome("stopping", "the sidecar was told to stop", HTTPStatus.CONFLICT)
