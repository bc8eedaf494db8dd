"""The local door: the app on this machine reports its errors and reads how it stands.

Only loopback and the unix socket lead here, and a web page in a browser on this machine is kept out: it cannot help
sending ``Origin`` or ``Sec-Fetch-Site``, and a rebound name shows in ``Host``.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import asdict
from http import HTTPStatus
from typing import Any, Final, TypeVar

from aiohttp import hdrs

from sidecar.core.explain import reasons
from sidecar.core.life.snapshot import Snapshot
from sidecar.core.types import Denied, Heartbeat, Report, State, Unknown
from sidecar.inputs.prepared_answer import Prepared
from sidecar.inputs.reports import BadReportError, read_pings, read_results
from sidecar.net import web
from sidecar.net.connections import Held
from sidecar.net.listener import Refusal, Routes, body, json_response

T = TypeVar("T")

LOOPBACK: Final = re.compile(r"(localhost|127(\.[0-9]{1,3}){3}|\[::1\])(:[0-9]*)?", re.IGNORECASE)
LIVES: Final = 128
ACCEPTED: Final = {state: Prepared(HTTPStatus.ACCEPTED, f'{{"state":"{state}"}}\n'.encode()) for state in State}


def routes(
    offer: Callable[[Sequence[Report]], bool],
    gone: Callable[[], None],
    state: Callable[[], State],
    snapshot: Callable[[], Snapshot],
    mode: str,
) -> Routes:
    """Routes of the local door.

    ``offer`` takes reports to the controller, or says that it has too many already. ``gone`` is called when
    the app has exited.
    """
    life = _Life(gone)

    def accepted(request: web.BaseRequest, reports: Sequence[Report]) -> web.StreamResponse:
        if not offer(reports):
            raise Refusal(503, "full", "too many reports are waiting, this one was not counted")
        return ACCEPTED[state()].to(request)

    async def post_errors(request: web.BaseRequest) -> web.StreamResponse:
        return accepted(request, _read(read_pings, await body(request)))

    async def post_results(request: web.BaseRequest) -> web.StreamResponse:
        return accepted(request, (_read(read_results, await body(request)),))

    async def post_heartbeat(request: web.BaseRequest) -> web.StreamResponse:
        return accepted(request, (Heartbeat(),))

    async def post_life(request: web.BaseRequest) -> web.StreamResponse:
        if _is_tcp(request):
            raise Refusal(403, "socket_only", "/life: only over the unix socket")
        await body(request)  # unread it would hide the end of the connection
        return life.held()

    async def get_verdict(_request: web.BaseRequest) -> web.Response:
        return json_response({"mode": mode, **verdict(snapshot())})

    return {
        "/errors": {"POST": post_errors},
        "/results": {"POST": post_results},
        "/heartbeat": {"POST": post_heartbeat},
        "/life": {"POST": post_life},
        "/verdict": {"GET": get_verdict},
    }


class _Life:
    """The connections that the app holds open as long as it lives; it has gone when the last of them is closed.

    An app of several processes may hold several. Only over the unix socket, where nobody else can close them.
    """

    def __init__(self, gone: Callable[[], None]) -> None:
        self._gone = gone
        self._connections = 0

    def held(self) -> Held:
        """One more of them; ``Refusal`` when there are too many."""
        if self._connections >= LIVES:
            raise Refusal(503, "full", f"/life: {LIVES} connections are held already")
        self._connections += 1
        return Held(self._closed)

    def _closed(self) -> None:
        self._connections -= 1
        if not self._connections:
            self._gone()


def _read(read: Callable[[bytes], T], content: bytes) -> T:
    try:
        return read(content)
    except BadReportError as error:
        raise Refusal(400, "body", str(error)) from None


def refuse_browsers(request: web.BaseRequest) -> None:
    """Raise ``Refusal`` for a request that a web page in a browser made."""
    headers = request.headers
    if hdrs.ORIGIN in headers or headers.get("Sec-Fetch-Site", "none") != "none":
        raise Refusal(403, "cross_origin", "Origin: web pages may not send here")
    refuse_names(request)


def refuse_names(request: web.BaseRequest) -> None:
    """Raise ``Refusal`` for a request that came over TCP by a name that is not of this machine: a rebound one."""
    host = request.headers.get(hdrs.HOST)
    if host and not LOOPBACK.fullmatch(host) and _is_tcp(request):
        raise Refusal(403, "host", f"Host: takes a name of this machine's loopback, not {host[:100]!r}")


def _is_tcp(request: web.BaseRequest) -> bool:
    return isinstance(request.protocol.peername, tuple)


def verdict(snapshot: Snapshot) -> dict[str, Any]:
    """How the app stands, as JSON values. Durations are seconds."""
    container, evidence = snapshot.container, snapshot.evidence
    judged = container.verdict
    return {
        "state": container.state,
        "for_s": round(snapshot.now - container.since, 3),
        "verdict": judged.judgement if judged else None,
        "reasons": [asdict(reason) for reason in judged.reasons] if judged else [],
        "evidence": asdict(evidence),
        "claim": _claim(snapshot),
        "latched": container.latch is not None,
        "would_be_down": container.would_down,
        "weight": snapshot.share,
        "success_rate": None if snapshot.success_rate is None else round(snapshot.success_rate, 4),
        "app_start": container.app_start,
        "age_s": round(snapshot.now - container.born, 3),
        "retire_in_s": None if snapshot.retire_at is None else round(snapshot.retire_at - snapshot.now, 3),
        "load": snapshot.load.value if snapshot.load else None,
    }


def _claim(snapshot: Snapshot) -> dict[str, Any] | None:
    container, answer = snapshot.container, snapshot.container.answer
    if answer is None:
        return {"outstanding": True} if container.asking else None
    return {
        "outstanding": container.asking,
        "outcome": reasons.outcome(answer),
        "reason": reasons.reason_word(answer),
        "sentence": reasons.answer(answer),
        "used": None if isinstance(answer, Unknown) else answer.used,
        "capacity": None if isinstance(answer, Unknown) else answer.capacity,
        "retry_after_s": answer.retry_after_s if isinstance(answer, Denied) else None,
    }
