"""The orders of a person: what their bodies and queries may say, and ``/hold``, which sets and ends holds.

An error names the field. ``POST /cull`` and ``POST /revive`` are in ``overrides``.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from http import HTTPStatus
from typing import TYPE_CHECKING, Final, NamedTuple

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


class HoldOrder(NamedTuple):
    """An order to hold culls; ``instance`` is ``""`` for the whole service."""

    instance: str
    author: str
    reason: str
    for_s: float


def read_hold(body: bytes, own: str) -> HoldOrder:
    """Read one object; scope ``instance`` without a name means ``own``."""
    fields = read_object(body, READERS)
    for name in ("for", "reason", "author"):
        if READERS[name][0] not in fields:
            raise BadReportError(f"{name}: is missing")
    instance = _instance_of(fields.pop("scope", SERVICE), fields.pop("instance", None), own)
    return HoldOrder(instance, **fields)


class OverrideOrder(NamedTuple):
    """An order to cull this container, or to revive it."""

    author: str
    reason: str = NO_REASON


def read_order(body: bytes) -> OverrideOrder:
    """Read one object; the reason is optional, the author is not."""
    fields = read_object(body, ORDER_READERS)
    if "author" not in fields:
        raise BadReportError("author: is missing")
    return OverrideOrder(**fields)


class ReleaseOrder(NamedTuple):
    """An order to end the hold of ``instance``, ``""`` for the service's; ``author`` is ``""`` if not given."""

    instance: str
    author: str = ""


def read_release(query: Sequence[tuple[str, str]], own: str) -> ReleaseOrder:
    """Read the pairs of a query string."""
    fields = read_pairs(query, _QUERY)
    instance = _instance_of(fields.get("scope", SERVICE), fields.get("instance"), own)
    return ReleaseOrder(instance, fields.get("author", ""))


def _instance_of(scope: str, instance: str | None, own: str) -> str:
    if scope != SERVICE:
        return instance or own
    if instance is not None:
        raise BadReportError("instance: goes with scope instance only")
    return ""


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

ORDER_READERS: Final[Readers] = {name: READERS[name] for name in OverrideOrder._fields}

_QUERY: Final[Readers] = {name: READERS[name] for name in ("scope", "instance", "author")}


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
        if isinstance(answer, Unknown):
            held = self._budget.local_holds.of(order.instance)
            if held is None:
                return self._failed(answer, order.instance)
        else:
            held = answer
        how, now = self._how(request, answer), self._wall()
        self._log(f"{reasons.hold(held)} ({how})")
        # All sidecars that see it record the same ``once``, so the ledger has one entry.
        once = f"hold {held.instance} {held.until:.0f}"
        about = (held.instance, "", held.reason, held.author, max(0.0, held.until - now))
        self._record(Entry("hold", now, *about, detail=f"ordered at {self._instance} {how}", once=once))
        return web.json_response({"hold": hold_json(held), "stored": held is answer, **replies.unknown_fields(answer)})

    async def delete_hold(self, request: web.BaseRequest) -> web.Response:
        """End a hold; 200 also if only this sidecar's own could be ended."""
        if await web.read_body(request):
            raise web.HttpError(HTTPStatus.BAD_REQUEST, "body", NO_BODY)
        instance, author = read_release(tuple(request.query.items()), self._instance)
        was_held = self._budget.local_holds.of(instance) is not None
        answer = await within(self._limit_s, self._budget.release(instance))
        if isinstance(answer, Unknown) and not self._budget.local_holds.covers(instance):
            return self._failed(answer, instance)
        how = self._how(request, answer)
        self._log(f"{author or 'a person'} releases {f'instance {instance}' if instance else 'the service'} ({how})")
        detail = f"ordered at {self._instance} {how}"
        self._record(Entry("release", self._wall(), instance, author=author, detail=detail))
        released = was_held if isinstance(answer, Unknown) else answer
        scope = {"scope": "instance" if instance else "service", "instance": instance}
        return web.json_response({"released": released, **scope, **replies.unknown_fields(answer)})

    def _how(self, request: web.BaseRequest, answer: object) -> str:
        """The origin of an order, and whether the store knows of it."""
        here_only = f", here only: {reasons.failure(answer.error)}" if isinstance(answer, Unknown) else ""
        return f"{request_check.origin(request)}{here_only}"

    def _failed(self, unknown: Unknown, instance: str) -> web.Response:
        """The response to an order without any effect."""
        if unknown.error == ALONE:
            sentence = f"instance: there is no shared store, and this is {self._instance}, not {instance}"
            raise web.HttpError(HTTPStatus.NOT_FOUND, "instance", sentence)
        return web.json_response(replies.unknown_fields(unknown), replies.status_of(unknown))
