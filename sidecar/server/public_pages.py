"""What the public listener answers by path: health, ``/metrics`` and ``/why``."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Final

from sidecar.net.http_error import HttpError
from sidecar.server.health import Health
from sidecar.server.public_answer import PublicAnswer
from sidecar.server.public_request import PublicRequest

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
