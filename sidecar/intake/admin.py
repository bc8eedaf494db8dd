"""The engineer's hand on the brake: hold, release, and the fleet as it is. For the local door alone.

An answer here may have to wait for the bucket, never for longer than ``limit_s``; no other door waits with it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import asdict
from http import HTTPStatus
from typing import Any, Final, TypeVar

from aiohttp import web

from sidecar.budget.held import HeldBudget
from sidecar.core import sentences
from sidecar.core.words import Fleet, Hold, Roll, Unknown
from sidecar.intake.orders import NO_BODY, read_hold, read_release
from sidecar.intake.pings import BadReportError
from sidecar.listener import Refusal, Routes, body, json_response

T = TypeVar("T")

ALONE: Final = "alone"
"""The word for a bucket that is this process's own: nothing is missing then, there just is nobody else."""


class Admin:
    """What a person may ask of the sidecar ``identity["instance"]``, the rest of which is shown with the fleet.

    ``fleet`` is the last that was heard of it, ``told`` takes a sentence for the log on every order that was given.
    """

    def __init__(
        self,
        held: HeldBudget,
        *,
        fleet: Callable[[], Fleet | None],
        identity: dict[str, str],
        limit_s: float,
        told: Callable[[str], None],
    ) -> None:
        self._held = held
        self._fleet = fleet
        self._identity = identity
        self._limit_s = limit_s
        self._told = told

    def routes(self) -> Routes:
        """Routes of the local door."""
        return {
            "/hold": {"POST": self.post_hold, "DELETE": self.delete_hold},
            "/fleet": {"GET": self.get_fleet},
        }

    async def post_hold(self, request: web.BaseRequest) -> web.Response:
        """Hold; 200 also if this sidecar alone is held."""
        order = _read(read_hold, await body(request), self._own)
        answer = await self._ask(self._held.hold(*order))
        if isinstance(answer, Unknown):
            held = self._held.local_of(order.instance)
            if held is None:
                return self._no_answer(answer, order.instance)
            self._told(f"{sentences.hold(held)} (here only: {_sentence(answer)})")
            return json_response({"hold": _hold(held), "stored": False, **_error(answer)})
        self._told(sentences.hold(answer))
        return json_response({"hold": _hold(answer), "stored": True})

    async def delete_hold(self, request: web.BaseRequest) -> web.Response:
        """Release; 200 also if only a hold of this sidecar could be ended."""
        if await body(request):
            raise Refusal(HTTPStatus.BAD_REQUEST, "body", NO_BODY)
        instance = _read(read_release, tuple(request.query.items()), self._own)
        was_held = self._held.local_of(instance) is not None
        answer = await self._ask(self._held.release(instance))
        scope = {"scope": _scope(instance), "instance": instance}
        if isinstance(answer, Unknown):
            if not self._held.covers(instance):
                return self._no_answer(answer, instance)
            self._told(f"release of {_named(instance)} (here only: {_sentence(answer)})")
            return json_response({"released": was_held, **scope, **_error(answer)})
        self._told(f"release of {_named(instance)}")
        return json_response({"released": answer, **scope})

    async def get_fleet(self, _request: web.BaseRequest) -> web.Response:
        """The fleet member by member; when the bucket gives no answer, what was last heard of it and a 502 or 504."""
        answer = await self._ask(self._held.roll())
        local = self._held.local
        known = {**self._identity, "local_hold": _hold(local) if local else None}
        if isinstance(answer, Roll):
            return json_response({**known, **_roll(answer)})
        fleet = self._fleet()
        rest: dict[str, Any] = {
            "fleet": _known(fleet) if fleet else None,
            "used": None,
            "members": [],
            "holds": [],
            "policies": [],
        }
        status = HTTPStatus.OK if answer.error == ALONE else _status(answer)
        return json_response({**known, **rest, **_error(answer)}, status)

    @property
    def _own(self) -> str:
        return self._identity["instance"]

    async def _ask(self, call: Awaitable[T | Unknown]) -> T | Unknown:
        try:
            async with asyncio.timeout(self._limit_s):
                return await call
        except TimeoutError:
            return Unknown("timeout")

    def _no_answer(self, unknown: Unknown, instance: str) -> web.Response:
        """Nothing came of it, here or elsewhere."""
        if unknown.error == ALONE:
            sentence = f"instance: there is no shared bucket, and this is {self._own}, not {instance}"
            raise Refusal(HTTPStatus.NOT_FOUND, "instance", sentence)
        return json_response(_error(unknown), _status(unknown))


def _read(read: Callable[[T, str], Any], given: T, own: str) -> Any:
    try:
        return read(given, own)
    except BadReportError as error:
        raise Refusal(HTTPStatus.BAD_REQUEST, "body", str(error)) from None


def _status(unknown: Unknown) -> HTTPStatus:
    return HTTPStatus.GATEWAY_TIMEOUT if unknown.error == "timeout" else HTTPStatus.BAD_GATEWAY


def _error(unknown: Unknown) -> dict[str, str]:
    return {"error": unknown.error, "sentence": _sentence(unknown)}


def _sentence(unknown: Unknown) -> str:
    return sentences.UNKNOWN.get(unknown.error, unknown.error)


def _scope(instance: str) -> str:
    return "instance" if instance else "service"


def _named(instance: str) -> str:
    return f"instance {instance}" if instance else "the service"


def _hold(hold: Hold) -> dict[str, Any]:
    return {"scope": _scope(hold.instance), **asdict(hold)}


def _known(fleet: Fleet) -> dict[str, Any]:
    return {**asdict(fleet), "hold": _hold(fleet.hold) if fleet.hold else None}


def _roll(roll: Roll) -> dict[str, Any]:
    return {
        **roll._asdict(),
        "fleet": _known(roll.fleet),
        "members": [member._asdict() for member in roll.members],
        "holds": [_hold(hold) for hold in roll.holds],
    }
