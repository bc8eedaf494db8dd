"""Holds and the fleet, for an engineer at the local listener: ``/hold`` and ``/fleet``.

An answer may wait for the shared store, at most ``limit_s``; no other listener waits with it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from http import HTTPStatus
from typing import Any, Final

from sidecar.core.claims import Fleet, Unknown
from sidecar.core.explain import reasons
from sidecar.core.fleet import common_trait
from sidecar.core.fleet.members import MemberList, fleet_json, hold_json, members_json
from sidecar.core.types import Entry
from sidecar.net import web
from sidecar.server import long_answer, request_check, unknown_replies
from sidecar.server.orders import NO_BODY, read_hold, read_release
from sidecar.server.unknown_replies import ALONE, within
from sidecar.store.budget import FleetBudget

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
        self._instance = str(identity["instance"])
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

    # -- holds ----------------------------------------------------------------------------------------------------

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
        return web.json_response({"hold": hold_json(held), "stored": held is answer, **unknown_replies.fields(answer)})

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
        return web.json_response({"released": released, **scope, **unknown_replies.fields(answer)})

    def _how(self, request: web.BaseRequest, answer: object) -> str:
        """The origin of an order, and whether the store knows of it."""
        here_only = f", here only: {reasons.failure(answer.error)}" if isinstance(answer, Unknown) else ""
        return f"{request_check.origin(request)}{here_only}"

    def _failed(self, unknown: Unknown, instance: str) -> web.Response:
        """The response to an order without any effect."""
        if unknown.error == ALONE:
            sentence = f"instance: there is no shared store, and this is {self._instance}, not {instance}"
            raise web.HttpError(HTTPStatus.NOT_FOUND, "instance", sentence)
        return web.json_response(unknown_replies.fields(unknown), unknown_replies.status(unknown))

    # -- the fleet ------------------------------------------------------------------------------------------------

    async def get_fleet(self, request: web.BaseRequest) -> web.StreamResponse:
        """The fleet member by member; without an answer of the store the last known summary, and a 502 or 504."""
        async with self._fleet_turns:
            answer = await within(self._limit_s, self._budget.member_list())
            status, seen = self._known(answer) if isinstance(answer, Unknown) else (HTTPStatus.OK, _listed(answer))
            local = hold_json(self._budget.local_holds.in_force)
            fields = {**self._identity, "own": dict(self._own_row()), "local_hold": local, **seen}
            return await long_answer.respond(request, await long_answer.written(fields), status)

    def _known(self, unknown: Unknown) -> tuple[HTTPStatus, dict[str, Any]]:
        """What the last beat said."""
        fleet = self._fleet()
        known: dict[str, Any] = {
            "fleet": fleet_json(fleet) if fleet else None,
            "fleet_age_s": round(self._fleet_age_s(), 3) if fleet else None,
            "used": None,
            **members_json((), ()),
            "holds": [],
            "settings": [],
            **unknown_replies.fields(unknown),
        }
        return HTTPStatus.OK if unknown.error == ALONE else unknown_replies.status(unknown), known


def _listed(listed: MemberList) -> dict[str, Any]:
    return {
        **listed._asdict(),
        "fleet": fleet_json(listed.fleet),
        "common": common_trait.as_json(common_trait.of_members(listed.members)),
        **members_json(listed.members, listed.departed),
        "holds": [hold_json(hold) for hold in listed.holds],
    }
