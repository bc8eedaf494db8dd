"""What the public listener answers by path: health, ``/metrics``, ``/why``, and a page that lists them."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from typing import Final

from sidecar.net.http_error import HttpError
from sidecar.server.health import Health
from sidecar.server.public_answer import PublicAnswer
from sidecar.server.public_request import PublicRequest

PAUSE_FACTOR: Final = 4
"""With this factor the metrics take at most a fifth of the time, however often they are asked for."""

MAX_PAUSE_S: Final = 1.0
"""Bound for a page that took long because the process was suspended."""

_LANDING: Final = """\
health-arbiter: the sidecar of {service}/{instance}

/why?format=text  why the container is in its state; without the format as JSON
/health           the container's health: 200 up, 503 down
/health/haproxy   the same for the balancer: down from the drain on
/health/nomad     the same for the scheduler: down after the drain
/livez, /readyz   the sidecar's own health
/metrics          metrics for Prometheus

The status page and orders are at other listeners: at ARBITER_LOCAL_LISTEN on this machine, and at
ARBITER_PAGE_LISTEN for those who have the token.
"""

Page = Callable[[PublicRequest], PublicAnswer]


def landing(service: str, instance: str) -> Page:
    """The list of the public paths as text."""
    answer = PublicAnswer(200, _LANDING.format(service=service, instance=instance).encode())
    return lambda _: answer


def public_pages(health: Health, pages: Mapping[str, Page]) -> Page:
    """The answer to each request by its path: of ``health``, or of ``pages``. Raises ``HttpError`` for others."""
    polls = {path: _of_user_agent(answer_to) for path, answer_to in health.polls.items()}
    probes = {path: _of_user_agent(answer_to) for path, answer_to in health.probes.items()}
    served = {**polls, **probes, **pages}

    def answer_to(request: PublicRequest) -> PublicAnswer:
        page = served.get(request.path)
        if page is None:
            raise HttpError(404, "path", f"path: {request.path[:100]!r} is not served here")
        if request.method == "OPTIONS" and request.path not in polls:  # HAProxy's httpchk sends it by default
            raise HttpError(405, "method", f"method: {request.path} takes GET, HEAD", {"Allow": "GET, HEAD"})
        return page(request)

    return answer_to


def _of_user_agent(answer_to: Callable[[str], PublicAnswer]) -> Page:
    return lambda request: answer_to(request.user_agent)


class MetricsPage:
    """The metrics in a bounded share of the time: a page is as old as the pause after it, some milliseconds, at most.

    ``write`` gives the page and its content type. ``clock``: seconds.
    """

    def __init__(self, write: Callable[[], tuple[bytes, str]], clock: Callable[[], float] = time.monotonic) -> None:
        self._write = write
        self._clock = clock
        self._paused_until = float("-inf")
        self._answer = PublicAnswer(503, b"")

    def __call__(self, _request: PublicRequest) -> PublicAnswer:
        """The page of this moment, or of the last one."""
        begun_at = self._clock()
        if begun_at >= self._paused_until:
            content, content_type = self._write()
            self._answer = PublicAnswer(200, content, content_type=content_type)
            ended_at = self._clock()
            self._paused_until = ended_at + min(PAUSE_FACTOR * (ended_at - begun_at), MAX_PAUSE_S)
        return self._answer
