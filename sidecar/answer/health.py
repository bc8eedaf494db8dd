"""The public door: what HAProxy, Nomad and people poll. Read-only, from memory, without free text of the app.

Every health answer has headers for balancers that read no agent-check, and for people: ``X-Arbiter-Weight`` (percent,
0 when out of balance), ``X-Arbiter-State``, and ``X-Arbiter-Reason`` of what is out of balance. ``x-envoy-degraded``
tells Envoy, which knows no weights here, to prefer others: below ``DEGRADED_BELOW``, where a fifth of requests fails.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable
from typing import Final

from aiohttp import hdrs

from sidecar.answer.rationed import Rationed
from sidecar.core import sentences
from sidecar.core.records import Snapshot
from sidecar.core.standing import Standing
from sidecar.core.words import State
from sidecar.listening import web
from sidecar.listening.connections import Handler
from sidecar.listening.listener import Routes

BODY_LIMIT: Final = 3 * 1024
"""Nomad keeps this much of a failing check's body."""

PLAIN: Final = "text/plain; charset=utf-8"
WEIGHT: Final = "X-Arbiter-Weight"
STATE: Final = "X-Arbiter-State"
REASON: Final = "X-Arbiter-Reason"
DEGRADED: Final = "x-envoy-degraded"
DEGRADED_BELOW: Final = 50
REASON_LIMIT: Final = 120
_UNSAFE: Final = re.compile(r"[^\x20-\x7e]")
"""What would end a line early, or is not ASCII: a reason may come from a file on disk."""

POLLERS: Final = {"nomad/": "nomad", "consul health check": "consul", "haproxy": "haproxy"}
"""By how the user agent begins: ``Nomad/1.8.0 (+https://www.nomadproject.io/; go1.22.4)``, ``Consul Health Check``,
and what people set for HAProxy, which says nothing by itself."""


def routes(
    snapshot: Callable[[], Snapshot],
    *,
    down_status: int,
    stale_after_s: float,
    on_poll: Callable[[str, str, int], None],
    on_failure: Callable[[Exception], None],
    metrics: Callable[[], tuple[bytes, str]],
    explained: Callable[[int], str] | None = None,
    get_why: Handler | None = None,
    clock: Callable[[], float] = time.monotonic,
) -> Routes:
    """Routes of the public door.

    ``stale_after_s``: without a check for this long the loop counts as stuck. ``on_poll(poller, path, status)`` is told
    of every health answer. ``metrics()`` gives the page and its content type, in a time that is bounded by ``clock``.
    ``explained(limit)`` is the body of a "down" in at most so many bytes, ``get_why`` answers ``/why``.
    """
    say = _explainer(explained, on_failure)
    written = Rationed(metrics, clock)

    def polled(path: str, is_up: Callable[[Standing], bool]) -> dict[str, Handler]:
        handler = _health(path, is_up, snapshot, say, down_status=down_status, on_poll=on_poll, on_failure=on_failure)
        return {"GET": handler, "OPTIONS": handler}  # OPTIONS is what HAProxy's httpchk sends unless told otherwise

    async def page(_request: web.BaseRequest) -> web.Response:
        content, content_type = await written.get()
        return web.Response(body=content, headers={hdrs.CONTENT_TYPE: content_type})

    more: Routes = {"/why": {"GET": get_why}} if get_why else {}
    return {
        **more,
        "/health": polled("/health", lambda standing: standing.haproxy_up),
        "/health/haproxy": polled("/health/haproxy", lambda standing: standing.haproxy_up),
        "/health/nomad": polled("/health/nomad", lambda standing: standing.nomad_up),
        "/livez": {"GET": _livez(snapshot, stale_after_s)},
        "/readyz": {"GET": _readyz(snapshot)},
        "/metrics": {"GET": page},
    }


def _health(
    path: str,
    is_up: Callable[[Standing], bool],
    snapshot: Callable[[], Snapshot],
    say: Callable[[Standing], bytes],
    *,
    down_status: int,
    on_poll: Callable[[str, str, int], None],
    on_failure: Callable[[Exception], None],
) -> Handler:
    def judged(request: web.BaseRequest) -> web.Response:
        seen = snapshot()
        up = is_up(seen.standing)
        status = 200 if up else down_status
        on_poll(poller(request.headers.get(hdrs.USER_AGENT, ""), path), path, status)
        content = b"up\n" if up else say(seen.standing)
        return web.Response(body=content, status=status, headers=_headers(seen))

    async def answer(request: web.BaseRequest) -> web.Response:
        try:
            return judged(request)
        except Exception as error:  # noqa: BLE001 - any failure of ours means that the app is up
            on_failure(error)
            return _text("up\n")

    return answer


def _explainer(
    explained: Callable[[int], str] | None, on_failure: Callable[[Exception], None]
) -> Callable[[Standing], bytes]:
    """What says why in the body of a "down": all that is known, and if that fails what every standing tells."""

    def say(standing: Standing) -> bytes:
        try:
            told = explained(BODY_LIMIT) if explained else explain(standing)
        except Exception as error:  # noqa: BLE001 - no failure to explain it may put a culled container back
            on_failure(error)
            told = explain(standing)
        return told.encode(errors="replace")

    return say


def _headers(seen: Snapshot) -> dict[str, str]:
    standing, share = seen.standing, seen.share
    headers = {hdrs.CONTENT_TYPE: PLAIN, WEIGHT: str(share), STATE: standing.state.value}
    if not standing.haproxy_up:
        headers[REASON] = harmless(why(standing))[:REASON_LIMIT]
    elif share < DEGRADED_BELOW:
        headers[DEGRADED] = "true"
    return headers


def _livez(snapshot: Callable[[], Snapshot], stale_after_s: float) -> Handler:
    async def livez(_request: web.BaseRequest) -> web.Response:
        seen = snapshot()
        if seen.checked_at is None or seen.now - seen.checked_at > stale_after_s:
            return _text("the last check is too old\n", 503)
        return _text("alive\n")

    return livez


def _readyz(snapshot: Callable[[], Snapshot]) -> Handler:
    async def readyz(_request: web.BaseRequest) -> web.Response:
        seen = snapshot()
        if seen.checked_at is None or seen.standing.state is State.STOPPING:
            return _text("not ready\n", 503)
        return _text("ready\n")

    return readyz


def poller(user_agent: str, path: str) -> str:
    """Who asks: by name if the user agent says it; HAProxy's plain check says nothing, but has a path of its own."""
    named = user_agent.lower()
    for beginning, name in POLLERS.items():
        if named.startswith(beginning):
            return name
    return "haproxy" if not named and path == "/health/haproxy" else "other"


def explain(standing: Standing) -> str:
    """The least that the body of a "down" says: state, evidence at the cull, what the budget said. At most 3 KiB."""
    lines = [f"{standing.state}: {why(standing)}"]
    if standing.latch and standing.answer:
        lines.append(sentences.answer(standing.answer))
    text = "\n".join(lines).encode(errors="replace")[: BODY_LIMIT - 1]
    return text.decode(errors="ignore") + "\n"


def why(standing: Standing) -> str:
    """Why the container is out of balance, in one sentence."""
    if standing.latch is not None:
        return standing.latch.reason
    if standing.state is State.STOPPING:
        return "the sidecar is stopping"
    return ""


def harmless(text: str) -> str:
    """The text as printable ASCII, which can neither end a line nor begin another."""
    return _UNSAFE.sub("?", text)


def _text(content: str, status: int = 200) -> web.Response:
    return web.Response(text=content, status=status)
