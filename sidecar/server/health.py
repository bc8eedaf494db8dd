"""The public door: what HAProxy, Nomad and people poll. Read-only, from memory, without free text of the app.

Every health answer has headers for balancers that read no agent-check, and for people: ``X-Arbiter-Weight`` (percent,
0 when out of balance), ``X-Arbiter-State``, and ``X-Arbiter-Reason`` of what is out of balance. ``x-envoy-degraded``
tells Envoy, which knows no weights here, to prefer others: below ``DEGRADED_BELOW``, where a fifth of requests fails.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Mapping
from functools import lru_cache, partial
from math import inf
from typing import Final, NamedTuple

from aiohttp import hdrs

from sidecar.core.explain import reasons
from sidecar.core.life.container import Container
from sidecar.core.life.snapshot import Snapshot
from sidecar.core.types import State
from sidecar.net import web
from sidecar.net.connections import Handler
from sidecar.net.listener import Routes
from sidecar.server.rationed import Rationed

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


class Said(NamedTuple):
    """What an answer says."""

    status: int
    headers: Mapping[str, str]
    body: bytes


TEXT_S: Final = 1.0
"""So old may the reasons in the body of a "down" be."""

_TEXT: Final[dict[str, str]] = {hdrs.CONTENT_TYPE: PLAIN}
OUR_FAILURE: Final = Said(200, _TEXT, b"up\n")
ALIVE: Final = Said(200, _TEXT, b"alive\n")
STALE: Final = Said(503, _TEXT, b"the last check is too old\n")
READY: Final = Said(200, _TEXT, b"ready\n")
NOT_READY: Final = Said(503, _TEXT, b"not ready\n")

Glance = Callable[[], tuple[Container, int]]
"""Standing and weight: what an answer depends on, at no cost."""


class Health:
    """What the public door says. The answer to a poll is made when the standing changes, not when it is asked for.

    ``stale_after_s``: without a check for this long the loop counts as stuck. ``on_poll(poller, path, status)`` is told
    of every health answer. ``explained(limit)`` is the body of a "down" in at most so many bytes, which may change each
    second; ``glance`` is what ``snapshot`` would tell of standing and weight.
    """

    def __init__(
        self,
        snapshot: Callable[[], Snapshot],
        *,
        down_status: int,
        stale_after_s: float,
        on_poll: Callable[[str, str, int], None],
        on_failure: Callable[[Exception], None],
        explained: Callable[[int], str] | None = None,
        glance: Glance | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        say = _explainer(explained, on_failure)
        look = glance or partial(_glance, snapshot)

        def polled(path: str, is_up: Callable[[Container], bool]) -> Callable[[str], Said]:
            saying = _Saying(is_up, look, say, down_status, clock)

            def answer(user_agent: str) -> Said:
                try:
                    said = saying.now()
                    on_poll(poller(user_agent, path), path, said.status)
                except Exception as error:  # noqa: BLE001 - any failure of ours means that the app is up
                    on_failure(error)
                    return OUR_FAILURE
                return said

            return answer

        self.polls = {
            "/health": polled("/health", lambda container: container.haproxy_up),
            "/health/haproxy": polled("/health/haproxy", lambda container: container.haproxy_up),
            "/health/nomad": polled("/health/nomad", lambda container: container.nomad_up),
        }
        self.probes = {
            "/livez": partial(_livez, snapshot, stale_after_s),
            "/readyz": partial(_readyz, snapshot),
        }


def routes(
    health: Health,
    *,
    metrics: Callable[[], tuple[bytes, str]],
    get_why: Handler | None = None,
    clock: Callable[[], float] = time.monotonic,
) -> Routes:
    """Routes of the public door.

    ``metrics()`` gives the page and its content type, in a time that is bounded by ``clock``. ``get_why`` answers
    ``/why``.
    """
    page_now = Rationed(metrics, clock)

    async def page(_request: web.BaseRequest) -> web.Response:
        content, content_type = await page_now.get()
        return web.Response(body=content, headers={hdrs.CONTENT_TYPE: content_type})

    more: Routes = {"/why": {"GET": get_why}} if get_why else {}
    polls = {path: _handler(answer) for path, answer in health.polls.items()}
    return {
        **more,
        # OPTIONS is what HAProxy's httpchk sends unless told otherwise.
        **{path: {"GET": handler, "OPTIONS": handler} for path, handler in polls.items()},
        **{path: {"GET": _handler(answer)} for path, answer in health.probes.items()},
        "/metrics": {"GET": page},
    }


def _handler(answer: Callable[[str], Said]) -> Handler:
    async def answered(request: web.BaseRequest) -> web.Response:
        status, headers, body = answer(request.headers.get(hdrs.USER_AGENT, ""))
        return web.Response(body=body, status=status, headers=headers)

    return answered


class _Saying:
    """The answer at one path, for as long as it stays the same."""

    def __init__(
        self,
        is_up: Callable[[Container], bool],
        glance: Glance,
        say: Callable[[Container], bytes],
        down_status: int,
        clock: Callable[[], float],
    ) -> None:
        self._is_up = is_up
        self._glance = glance
        self._say = say
        self._down_status = down_status
        self._clock = clock
        self._of: tuple[Container, int] | None = None
        self._until = inf
        self._said = OUR_FAILURE

    def now(self) -> Said:
        """What there is to say."""
        of, known = self._glance(), self._of
        is_same = known is not None and of[0] is known[0] and of[1] == known[1]
        if not is_same or self._clock() >= self._until:
            self._said = self._made(*of)
            self._of = of
        return self._said

    def _made(self, container: Container, weight: int) -> Said:
        if self._is_up(container):
            self._until = inf
            return Said(200, _headers(container, weight), b"up\n")
        self._until = self._clock() + TEXT_S
        return Said(self._down_status, _headers(container, weight), self._say(container))


def _glance(snapshot: Callable[[], Snapshot]) -> tuple[Container, int]:
    seen = snapshot()
    return seen.container, seen.weight


def _explainer(
    explained: Callable[[int], str] | None, on_failure: Callable[[Exception], None]
) -> Callable[[Container], bytes]:
    """What says why in the body of a "down": all that is known, and if that fails what every standing tells."""

    def say(container: Container) -> bytes:
        try:
            told = explained(BODY_LIMIT) if explained else explain(container)
        except Exception as error:  # noqa: BLE001 - no failure to explain it may put a culled container back
            on_failure(error)
            told = explain(container)
        return told.encode(errors="replace")

    return say


def _headers(container: Container, weight: int) -> dict[str, str]:
    share = weight if container.haproxy_up else 0
    headers = {hdrs.CONTENT_TYPE: PLAIN, WEIGHT: str(share), STATE: container.state.value}
    if not container.haproxy_up:
        headers[REASON] = harmless(why(container))[:REASON_LIMIT]
    elif share < DEGRADED_BELOW:
        headers[DEGRADED] = "true"
    return headers


def _livez(snapshot: Callable[[], Snapshot], stale_after_s: float, _user_agent: str) -> Said:
    seen = snapshot()
    return STALE if seen.checked_at is None or seen.now - seen.checked_at > stale_after_s else ALIVE


def _readyz(snapshot: Callable[[], Snapshot], _user_agent: str) -> Said:
    seen = snapshot()
    return NOT_READY if seen.checked_at is None or seen.container.state is State.STOPPING else READY


@lru_cache(maxsize=64)
def poller(user_agent: str, path: str) -> str:
    """Who asks: by name if the user agent says it; HAProxy's plain check says nothing, but has a path of its own."""
    named = user_agent.lower()
    for beginning, name in POLLERS.items():
        if named.startswith(beginning):
            return name
    return "haproxy" if not named and path == "/health/haproxy" else "other"


def explain(container: Container) -> str:
    """The least that the body of a "down" says: state, evidence at the cull, what the budget said. At most 3 KiB."""
    lines = [f"{container.state}: {why(container)}"]
    if container.latch and container.answer:
        lines.append(reasons.answer(container.answer))
    text = "\n".join(lines).encode(errors="replace")[: BODY_LIMIT - 1]
    return text.decode(errors="ignore") + "\n"


def why(container: Container) -> str:
    """Why the container is out of balance, in one sentence."""
    if container.latch is not None:
        return container.latch.reason
    if container.state is State.STOPPING:
        return "the sidecar is stopping"
    return ""


def harmless(text: str) -> str:
    """The text as printable ASCII, which can neither end a line nor begin another."""
    return _UNSAFE.sub("?", text)
