"""The orders of a person: what their bodies and queries may say, and ``/hold``, which sets and ends holds.

An error names the field. ``POST /cull`` and ``POST /revive`` are in ``overrides``.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from http import HTTPStatus
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from sidecar.core.claims import Unknown
from sidecar.core.explain import reasons
from sidecar.core.fleet.members import hold_json
from sidecar.core.types import Entry
from sidecar.inputs.report_bodies import BadReportError, Readers, read_object, read_pairs
from sidecar.net import web
from sidecar.runlock import durations
from sidecar.server import replies, request_check
from sidecar.server.replies import ALONE, within

if TYPE_CHECKING:
    from sidecar.store.budget import FleetBudget

SHORTEST_S: Final = 1.0
LONGEST_S: Final = 7 * 24 * 3600.0
REASON_LIMIT: Final = 200
AUTHOR_LIMIT: Final = 100
INSTANCE: Final = re.compile(r"[A-Za-z0-9_.:-]{1,128}")
NO_REASON: Final = "no reason given"
SERVICE: Final = "service"
SCOPES: Final = (SERVICE, "instance")
NO_BODY: Final = (
    "body: DELETE takes none, scope and instance go into the query: /hold?scope=instance&instance=ID; "
    "without a query it releases the service"
)
"""Without this error a client that puts the scope into a body would release the whole service."""


class Order(NamedTuple):
    """An order of a person."""

    instance: str  # whom it is about; ``""``: the whole service, or this container if it is to be culled or revived
    author: str = ""  # ``""`` if a release names none
    reason: str = NO_REASON
    for_s: float = 0.0  # how long a hold lasts


def read_hold(body: bytes, own: str) -> Order:
    """Read an order to hold culls; scope ``instance`` without a name means ``own``."""
    return _order(read_object(body, READERS), own, needs=("for", "reason", "author"))


def read_release(query: Sequence[tuple[str, str]], own: str) -> Order:
    """Read an order to end a hold, from the pairs of a query string."""
    return _order(read_pairs(query, _OF_RELEASE), own)


def read_cull_or_revive(body: bytes) -> Order:
    """Read an order about this container; the reason is optional, the author is not."""
    return _order(read_object(body, _OF_CULL_OR_REVIVE), "", needs=("author",))


def _order(fields: dict[str, Any], own: str, needs: Sequence[str] = ()) -> Order:
    for name in needs:
        if READERS[name][0] not in fields:
            raise BadReportError(f"{name}: is missing")
    scope, instance = fields.pop("scope", SERVICE), fields.pop("instance", "")
    if scope == SERVICE and instance:
        raise BadReportError("instance: goes with scope instance only")
    return Order("" if scope == SERVICE else instance or own, **fields)


def _scope(value: object) -> str:
    if not isinstance(value, str) or value not in SCOPES:
        raise ValueError(f"takes one of {', '.join(SCOPES)}")
    return value


def _instance(value: object) -> str:
    if not isinstance(value, str) or not INSTANCE.fullmatch(value):
        raise ValueError("takes 1 to 128 of A-Z a-z 0-9 _ . : -")
    return value


def _for(value: object) -> float:
    seconds = durations.parse(value)
    if not SHORTEST_S <= seconds <= LONGEST_S:
        raise ValueError("takes 1s to 168h (a week)")
    return seconds


def _text(value: object, limit: int) -> str:
    """One line of text for a terminal or a log, without control characters."""
    text = value.strip() if isinstance(value, str) else ""
    if not text or len(text) > limit or not text.isprintable():
        raise ValueError(f"takes a line of 1 to {limit} printable characters")
    return text


READERS: Final[Readers] = {
    "for": ("for_s", _for),
    "reason": ("reason", lambda value: _text(value, REASON_LIMIT)),
    "author": ("author", lambda value: _text(value, AUTHOR_LIMIT)),
    "scope": ("scope", _scope),
    "instance": ("instance", _instance),
}

_OF_RELEASE: Final[Readers] = {name: READERS[name] for name in ("scope", "instance", "author")}
_OF_CULL_OR_REVIVE: Final[Readers] = {name: READERS[name] for name in ("author", "reason")}


class HoldsApi:
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
