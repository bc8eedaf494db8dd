"""What an engineer may order, hold and release, and the fleet as it is. For the local door alone.

An answer here may have to wait for the bucket, never for longer than ``limit_s``; no other door waits with it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import asdict
from http import HTTPStatus
from typing import Any, TypeVar

from sidecar.core.explain import reasons
from sidecar.core.fleet import about
from sidecar.core.types import Entry, Fleet, Hold, Roll, Unknown
from sidecar.inputs.reports import BadReportError
from sidecar.net import web
from sidecar.net.listener import Refusal, Routes, body, json_response
from sidecar.server import callers, unclear
from sidecar.server.callers import Admits
from sidecar.server.orders import NO_BODY, Release, read_hold, read_release
from sidecar.server.unclear import ALONE, within
from sidecar.store.held_budget import HeldBudget

T = TypeVar("T")


class Admin:
    """What a person may ask of the sidecar ``identity["instance"]``, the rest of which is shown with the fleet.

    ``fleet`` is the last that was heard of it, ``own`` what only this sidecar knows of its container. Of every order
    that was given ``told`` takes a sentence for the log and ``noted`` an entry for the ledger, with the second that
    ``wall`` gives. ``admits``: who may give one over TCP, None for all.
    """

    def __init__(
        self,
        held: HeldBudget,
        *,
        fleet: Callable[[], Fleet | None],
        identity: Mapping[str, object],
        own: Callable[[], Mapping[str, object]],
        limit_s: float,
        wall: Callable[[], float],
        told: Callable[[str], None],
        noted: Callable[[Entry], None],
        admits: Admits | None = None,
    ) -> None:
        self._held = held
        self._fleet = fleet
        self._identity = identity
        self._own_row = own
        self._limit_s = limit_s
        self._wall = wall
        self._told = told
        self._noted = noted
        self._admits = admits

    def routes(self) -> Routes:
        """Routes of the local door."""
        return {
            "/hold": {"POST": self.post_hold, "DELETE": self.delete_hold},
            "/fleet": {"GET": self.get_fleet},
        }

    async def post_hold(self, request: web.BaseRequest) -> web.Response:
        """Hold; 200 also if this sidecar alone is held."""
        await callers.check(request, self._admits)
        order = _read(read_hold, await body(request), self._own)
        answer = await within(self._limit_s, self._held.hold(*order))
        if isinstance(answer, Unknown):
            held = self._held.local_of(order.instance)
            if held is None:
                return self._no_answer(answer, order.instance)
            self._note_hold(held, f"{callers.origin(request)}, here only: {unclear.sentence(answer)}")
            return json_response({"hold": _hold(held), "stored": False, **unclear.told(answer)})
        self._note_hold(answer, callers.origin(request))
        return json_response({"hold": _hold(answer), "stored": True})

    async def delete_hold(self, request: web.BaseRequest) -> web.Response:
        """Release; 200 also if only a hold of this sidecar could be ended."""
        await callers.check(request, self._admits)
        if await body(request):
            raise Refusal(HTTPStatus.BAD_REQUEST, "body", NO_BODY)
        order = _read(read_release, tuple(request.query.items()), self._own)
        instance = order.instance
        ended = self._known_hold(instance)
        was_held = self._held.local_of(instance) is not None
        answer = await within(self._limit_s, self._held.release(instance))
        scope = {"scope": _scope(instance), "instance": instance}
        if isinstance(answer, Unknown):
            if not self._held.covers(instance):
                return self._no_answer(answer, instance)
            self._note_release(order, ended, f"{callers.origin(request)}, here only: {unclear.sentence(answer)}")
            return json_response({"released": was_held, **scope, **unclear.told(answer)})
        self._note_release(order, ended, callers.origin(request))
        return json_response({"released": answer, **scope})

    async def get_fleet(self, _request: web.BaseRequest) -> web.Response:
        """The fleet member by member; when the bucket gives no answer, what was last heard of it and a 502 or 504."""
        answer = await within(self._limit_s, self._held.roll())
        local = self._held.local
        known = {**self._identity, "own": dict(self._own_row()), "local_hold": _hold(local) if local else None}
        if isinstance(answer, Roll):
            return json_response({**known, **_roll(answer)})
        fleet = self._fleet()
        rest: dict[str, Any] = {
            "fleet": _known(fleet) if fleet else None,
            "used": None,
            **about.shown((), ()),
            "holds": [],
            "policies": [],
        }
        status = HTTPStatus.OK if answer.error == ALONE else _status(answer)
        return json_response({**known, **rest, **unclear.told(answer)}, status)

    @property
    def _own(self) -> str:
        return str(self._identity["instance"])

    def _known_hold(self, instance: str) -> Hold | None:
        """The hold that a release is about to end, if it has been heard of."""
        fleet = self._fleet()
        held = fleet.hold if fleet else None
        return self._held.local_of(instance) or (held if held and held.instance == instance else None)

    def _note_hold(self, hold: Hold, how: str) -> None:
        """Tell of an order, under the word under which all who hear of the hold write it: they make one line."""
        self._told(f"{reasons.hold(hold)} ({how})")
        now = self._wall()
        once = f"hold {hold.instance} {hold.until:.0f}"
        left_s, detail = max(0.0, hold.until - now), f"ordered at {self._own} {how}"
        self._noted(Entry("hold", now, hold.instance, "", hold.reason, hold.author, left_s, detail, once))

    def _note_release(self, order: Release, ended: Hold | None, how: str) -> None:
        self._told(f"{order.author or 'somebody'} releases {_named(order.instance)} ({how})")
        once = f"release {order.instance} {ended.until:.0f}" if ended else ""
        detail = f"ordered at {self._own} {how}"
        self._noted(Entry("release", self._wall(), order.instance, author=order.author, detail=detail, once=once))

    def _no_answer(self, unknown: Unknown, instance: str) -> web.Response:
        """Nothing came of it, here or elsewhere."""
        if unknown.error == ALONE:
            sentence = f"instance: there is no shared bucket, and this is {self._own}, not {instance}"
            raise Refusal(HTTPStatus.NOT_FOUND, "instance", sentence)
        return json_response(unclear.told(unknown), _status(unknown))


def _read(read: Callable[[T, str], Any], given: T, own: str) -> Any:
    try:
        return read(given, own)
    except BadReportError as error:
        raise Refusal(HTTPStatus.BAD_REQUEST, "body", str(error)) from None


def _status(unknown: Unknown) -> HTTPStatus:
    return HTTPStatus.GATEWAY_TIMEOUT if unknown.error == "timeout" else HTTPStatus.BAD_GATEWAY


def _scope(instance: str) -> str:
    return "instance" if instance else "service"


def _named(instance: str) -> str:
    return f"instance {instance}" if instance else "the service"


def _hold(hold: Hold) -> dict[str, Any]:
    return {"scope": _scope(hold.instance), **asdict(hold)}


def _known(fleet: Fleet) -> dict[str, Any]:
    return {**about.fleet(fleet), "hold": _hold(fleet.hold) if fleet.hold else None}


def _roll(roll: Roll) -> dict[str, Any]:
    return {
        **roll._asdict(),
        "fleet": _known(roll.fleet),
        **about.shown(roll.members, roll.departed),
        "holds": [_hold(hold) for hold in roll.holds],
    }
