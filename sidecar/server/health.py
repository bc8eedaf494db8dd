"""What the public listener answers by path: health for HAProxy, Nomad and people, ``/metrics`` and ``/why``.

The health answers are read-only, from memory, and without free text of the app. Their headers are for balancers that
read no agent-check, and for people: ``X-Arbiter-Weight`` (percent, 0 when out of balance), ``X-Arbiter-State``, and
``X-Arbiter-Reason`` when out of balance. ``x-envoy-degraded`` makes Envoy, which knows no weights here, prefer other
hosts: below ``DEGRADED_BELOW``, where a fifth of requests fails.

In shadow mode every answer is that of a container without errors: all of them are made from ``Snapshot.presented``.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable
from dataclasses import KW_ONLY, dataclass
from math import inf
from typing import Final

from sidecar.core.life.container import Container
from sidecar.core.life.snapshot import Snapshot
from sidecar.core.types import State
from sidecar.net.http_error import HttpError
from sidecar.server.public_http import PublicAnswer, PublicRequest

BODY_LIMIT: Final = 3 * 1024
"""Nomad keeps this much of a failing check's body."""

WEIGHT: Final = "X-Arbiter-Weight"
STATE: Final = "X-Arbiter-State"
REASON: Final = "X-Arbiter-Reason"
DEGRADED: Final = "x-envoy-degraded"
DEGRADED_BELOW: Final = 50
REASON_LIMIT: Final = 120
_UNSAFE: Final = re.compile(r"[^\x20-\x7e]")
"""Characters that would end a header early, or are not ASCII: a reason may come from a file on disk."""

TEXT_S: Final = 1.0
"""Maximum age of the reasons in the body of a "down"."""

OUR_FAILURE: Final = PublicAnswer(200, b"up\n")
ALIVE: Final = PublicAnswer(200, b"alive\n")
STALE: Final = PublicAnswer(503, b"the last check is too old\n")
READY: Final = PublicAnswer(200, b"ready\n")
NOT_READY: Final = PublicAnswer(503, b"not ready\n")


@dataclass(eq=False)
class Health:
    """The answers of the public listener, by path: ``polls`` about the container, ``probes`` about the sidecar."""

    snapshot: Callable[[], Snapshot]
    _: KW_ONLY
    stale_after_s: float  # without a check for this long the controller counts as stuck
    on_poll: Callable[[str, int], None]  # takes path and status of every poll
    on_failure: Callable[[Exception], None]
    explanation: Callable[[int], str]  # the body of a "down" in at most so many bytes
    clock: Callable[[], float] = time.monotonic  # that of the snapshot's times

    def __post_init__(self) -> None:
        restart = _Poll(self, "/health/nomad", lambda container: container.nomad_up)
        self.polls: dict[str, Callable[[], PublicAnswer]] = {
            "/health": _Poll(self, "/health", lambda container: container.haproxy_up),
            "/health/haproxy": _Poll(self, "/health/haproxy", lambda container: container.haproxy_up),
            "/health/nomad": restart,
            "/health/restart": restart,  # the same under a name for other schedulers; counted as the first
        }
        self.probes: dict[str, Callable[[], PublicAnswer]] = {"/livez": self._livez, "/readyz": self._readyz}

    def body_of_down(self, container: Container) -> bytes:
        """The whole explanation; if that fails, a short one from the container's state alone."""
        try:
            text = self.explanation(BODY_LIMIT)
        except Exception as error:  # noqa: BLE001 - no failure to explain it may put a culled container back
            self.on_failure(error)
            text = f"{container.state}: {printable_ascii(why_down(container))[:REASON_LIMIT]}\n"
        return text.encode(errors="replace")

    def _livez(self) -> PublicAnswer:
        checked_at = self.snapshot().checked_at
        return STALE if checked_at is None or self.clock() - checked_at > self.stale_after_s else ALIVE

    def _readyz(self) -> PublicAnswer:
        current = self.snapshot()
        is_stopping = current.presented.state is State.STOPPING
        return NOT_READY if current.checked_at is None or is_stopping else READY


class _Poll:
    """The answer at one path, kept until state or weight change."""

    def __init__(self, health: Health, path: str, is_up: Callable[[Container], bool]) -> None:
        self._health = health
        self._path = path
        self._is_up = is_up
        self._shown: tuple[Container | None, int] = (None, 0)
        self._until = inf
        self._answer = OUR_FAILURE

    def __call__(self) -> PublicAnswer:
        try:
            answer = self._current()
            self._health.on_poll(self._path, answer.status)
        except Exception as error:  # noqa: BLE001 - any failure of ours means that the app is up
            self._health.on_failure(error)
            return OUR_FAILURE
        return answer

    def _current(self) -> PublicAnswer:
        current = self._health.snapshot()
        container, share = current.presented, current.share
        if container is not self._shown[0] or share != self._shown[1] or self._health.clock() >= self._until:
            self._answer = self._make(container, share)
            self._shown = container, share
        return self._answer

    def _make(self, container: Container, share: int) -> PublicAnswer:
        headers = _headers(container, share)
        if self._is_up(container):
            self._until = inf
            return PublicAnswer(200, b"up\n", headers)
        self._until = self._health.clock() + TEXT_S
        return PublicAnswer(503, self._health.body_of_down(container), headers)


def _headers(container: Container, share: int) -> dict[str, str]:
    headers = {WEIGHT: str(share), STATE: container.state.value}
    if not container.haproxy_up:
        headers[REASON] = printable_ascii(why_down(container))[:REASON_LIMIT]
    elif share < DEGRADED_BELOW:
        headers[DEGRADED] = "true"
    return headers


def why_down(container: Container) -> str:
    """Why the container is out of balance, in one sentence; empty if it is not."""
    if container.latch is not None:
        return container.latch.reason
    return "the sidecar is stopping" if container.state is State.STOPPING else ""


def printable_ascii(text: str) -> str:
    """The text with ``?`` for all other characters, so that it stays on its line."""
    return _UNSAFE.sub("?", text)


SHARE: Final = 0.2
"""The part of the time that pages of metrics take at most, however often they are asked for."""

CREDIT_S: Final = 0.1
LONGEST_S: Final = 0.2
"""Counted at most for a page: one that took longer did so because the process was suspended."""

SERVED: Final = "there are /health, /why?format=text, /metrics, and the page at ARBITER_LOCAL_LISTEN on this machine"


def public_pages(
    health: Health, *, metrics: Callable[[], PublicAnswer], why: Callable[[str], PublicAnswer]
) -> Callable[[PublicRequest], PublicAnswer]:
    """The answer to each request by its path. It raises ``HttpError`` for other paths. ``why`` takes the query."""
    served = {**health.polls, **health.probes, "/metrics": metrics}

    def answer_to(request: PublicRequest) -> PublicAnswer:
        path = request.path
        if path not in served and path != "/why":
            raise HttpError(404, "path", f"path: {SERVED}; {path[:100]!r} is not served here")
        if request.method == "OPTIONS" and path not in health.polls:  # HAProxy's httpchk sends it by default
            raise HttpError(405, "method", f"method: {path} takes GET, HEAD", {"Allow": "GET, HEAD"})
        return why(request.query) if path == "/why" else served[path]()

    return answer_to


class MetricsPage:
    """The metrics of this moment, or in a flood the last page, which is then some milliseconds old.

    Pages take at most ``SHARE`` of the time, and may borrow ``CREDIT_S``, so that a scraper or a person that asks a few
    times gets what has just happened. ``write`` gives the page and its content type. ``clock``: seconds.
    """

    def __init__(self, write: Callable[[], tuple[bytes, str]], clock: Callable[[], float] = time.monotonic) -> None:
        self._write = write
        self._clock = clock
        self._credit_s = CREDIT_S
        self._since = clock()
        self._answer = PublicAnswer(503, b"")

    def __call__(self) -> PublicAnswer:
        """The page of this moment, or of the last one."""
        now = self._clock()
        self._credit_s = min(CREDIT_S, self._credit_s + SHARE * (now - self._since))
        self._since = now
        if self._credit_s > 0:
            content, content_type = self._write()
            self._answer = PublicAnswer(200, content, content_type=content_type)
            self._credit_s -= min(self._clock() - now, LONGEST_S)
        return self._answer
