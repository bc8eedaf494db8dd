"""Holds and the fleet, for an engineer at the local listener: ``/hold`` and ``/fleet``.

An answer may wait for the shared store, at most ``limit_s``; no other listener waits with it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from http import HTTPStatus
from typing import Any, Final, TypeVar

from sidecar.core.explain import reasons
from sidecar.core.fleet import common_trait
from sidecar.core.fleet import members as fleet_members
from sidecar.core.fleet.members import MemberList
from sidecar.core.types import Entry, Fleet, Hold, Unknown
from sidecar.inputs.report_bodies import BadReportError
from sidecar.net import web
from sidecar.server import long_answer, request_check, unknown_replies
from sidecar.server.orders import NO_BODY, ReleaseOrder, read_hold, read_release
from sidecar.server.unknown_replies import ALONE, within
from sidecar.store.budget import FleetBudget

T = TypeVar("T")

FLEETS_AT_ONCE: Final = 4
"""Answers to ``/fleet`` that are made and sent at the same time: each takes 3 MiB at 2,000 containers."""


class AdminApi:
    """Holds and releases by ``budget``, and shows the fleet.

    ``fleet``: the fleet as of the last beat, however old; ``fleet_age_s``: the seconds since then. ``identity`` (with
    ``instance``) is shown beside it, and ``own``: what only this sidecar knows of its container. For each order ``log``
    takes a sentence and ``record`` a ledger entry; ``wall`` is Unix time.
    """

    def __init__(
        self,
        budget: FleetBudget,
        *,
        fleet: Callable[[], Fleet | None],
        fleet_age_s: Callable[[], float] = lambda: 0.0,
        identity: Mapping[str, object],
        own: Callable[[], Mapping[str, object]],
        limit_s: float,
        wall: Callable[[], float],
        log: Callable[[str], None],
        record: Callable[[Entry], None],
    ) -> None:
        self._budget = budget
        self._fleet = fleet
        self._fleet_age_s = fleet_age_s
        self._identity = identity
        self._own_row = own
        self._limit_s = limit_s
        self._wall = wall
        self._log = log
        self._record = record
        self._fleet_turns = asyncio.Semaphore(FLEETS_AT_ONCE)

    def routes(self) -> web.Routes:
        """Routes of the local listener."""
        return {
            "/hold": {"POST": self.post_hold, "DELETE": self.delete_hold},
            "/fleet": {"GET": self.get_fleet},
        }

    async def post_hold(self, request: web.BaseRequest) -> web.Response:
        """Set a hold; 200 also if it holds for this sidecar only."""
        order = _read(read_hold, await web.read_body(request), self._own)
        answer = await within(self._limit_s, self._budget.hold(*order))
        if isinstance(answer, Unknown):
            held = self._budget.local_holds.of(order.instance)
            if held is None:
                return self._failed(answer, order.instance)
            self._note_hold(held, f"{request_check.origin(request)}, here only: {reasons.failure(answer.error)}")
            return web.json_response(
                {"hold": fleet_members.hold_json(held), "stored": False, **unknown_replies.fields(answer)}
            )
        self._note_hold(answer, request_check.origin(request))
        return web.json_response({"hold": fleet_members.hold_json(answer), "stored": True})

    async def delete_hold(self, request: web.BaseRequest) -> web.Response:
        """End a hold; 200 also if only this sidecar's own could be ended."""
        if await web.read_body(request):
            raise web.HttpError(HTTPStatus.BAD_REQUEST, "body", NO_BODY)
        order = _read(read_release, tuple(request.query.items()), self._own)
        instance = order.instance
        ended = self._known_hold(instance)
        was_held = self._budget.local_holds.of(instance) is not None
        answer = await within(self._limit_s, self._budget.release(instance))
        scope = {"scope": _scope(instance), "instance": instance}
        if isinstance(answer, Unknown):
            if not self._budget.local_holds.covers(instance):
                return self._failed(answer, instance)
            self._note_release(
                order, ended, f"{request_check.origin(request)}, here only: {reasons.failure(answer.error)}"
            )
            return web.json_response({"released": was_held, **scope, **unknown_replies.fields(answer)})
        self._note_release(order, ended, request_check.origin(request))
        return web.json_response({"released": answer, **scope})

    async def get_fleet(self, request: web.BaseRequest) -> web.StreamResponse:
        """The fleet member by member; without an answer of the store the last known summary, and a 502 or 504."""
        async with self._fleet_turns:
            status, fields = await self._fleet_now()
            return await long_answer.respond(request, await long_answer.written(fields), status)

    async def _fleet_now(self) -> tuple[HTTPStatus, dict[str, Any]]:
        answer = await within(self._limit_s, self._budget.member_list())
        local = self._budget.local_holds.in_force
        known = {**self._identity, "own": dict(self._own_row()), "local_hold": fleet_members.hold_json(local)}
        if isinstance(answer, MemberList):
            return HTTPStatus.OK, {**known, **_member_list(answer)}
        fleet = self._fleet()
        rest: dict[str, Any] = {
            "fleet": fleet_members.fleet_json(fleet) if fleet else None,
            "fleet_age_s": round(self._fleet_age_s(), 3) if fleet else None,
            "used": None,
            **fleet_members.members_json((), ()),
            "holds": [],
            "policies": [],
        }
        status = HTTPStatus.OK if answer.error == ALONE else _status(answer)
        return status, {**known, **rest, **unknown_replies.fields(answer)}

    @property
    def _own(self) -> str:
        return str(self._identity["instance"])

    def _known_hold(self, instance: str) -> Hold | None:
        """The hold that a release will end, if this sidecar knows it."""
        fleet = self._fleet()
        held = fleet.hold if fleet else None
        return self._budget.local_holds.of(instance) or (held if held and held.instance == instance else None)

    def _note_hold(self, hold: Hold, how: str) -> None:
        """Log and record a hold. All sidecars that see it record the same ``once``, so the ledger has one entry."""
        self._log(f"{reasons.hold(hold)} ({how})")
        now = self._wall()
        once = f"hold {hold.instance} {hold.until:.0f}"
        left_s, detail = max(0.0, hold.until - now), f"ordered at {self._own} {how}"
        self._record(Entry("hold", now, hold.instance, "", hold.reason, hold.author, left_s, detail, once))

    def _note_release(self, order: ReleaseOrder, ended: Hold | None, how: str) -> None:
        self._log(f"{order.author or 'a person'} releases {_target(order.instance)} ({how})")
        once = f"release {order.instance} {ended.until:.0f}" if ended else ""
        detail = f"ordered at {self._own} {how}"
        self._record(Entry("release", self._wall(), order.instance, author=order.author, detail=detail, once=once))

    def _failed(self, unknown: Unknown, instance: str) -> web.Response:
        """The response to an order without any effect."""
        if unknown.error == ALONE:
            sentence = f"instance: there is no shared store, and this is {self._own}, not {instance}"
            raise web.HttpError(HTTPStatus.NOT_FOUND, "instance", sentence)
        return web.json_response(unknown_replies.fields(unknown), _status(unknown))


def _read(read: Callable[[T, str], Any], content: T, own: str) -> Any:
    try:
        return read(content, own)
    except BadReportError as error:
        raise web.HttpError(HTTPStatus.BAD_REQUEST, "body", str(error)) from None


def _status(unknown: Unknown) -> HTTPStatus:
    return HTTPStatus.GATEWAY_TIMEOUT if unknown.error == "timeout" else HTTPStatus.BAD_GATEWAY


def _scope(instance: str) -> str:
    return "instance" if instance else "service"


def _target(instance: str) -> str:
    return f"instance {instance}" if instance else "the service"


def _member_list(member_list: MemberList) -> dict[str, Any]:
    return {
        **member_list._asdict(),
        "fleet": fleet_members.fleet_json(member_list.fleet),
        "common": common_trait.as_json(common_trait.of_members(member_list.members)),
        **fleet_members.members_json(member_list.members, member_list.departed),
        "holds": [fleet_members.hold_json(hold) for hold in member_list.holds],
    }
