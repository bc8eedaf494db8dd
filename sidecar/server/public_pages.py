"""What the public listener answers by path: health, ``/metrics``, ``/why``, and a page that lists them."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
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

    def __call__(self, _request: PublicRequest) -> PublicAnswer:
        """The page of this moment, or of the last one."""
        now = self._clock()
        self._credit_s = min(CREDIT_S, self._credit_s + SHARE * (now - self._since))
        self._since = now
        if self._credit_s > 0:
            content, content_type = self._write()
            self._answer = PublicAnswer(200, content, content_type=content_type)
            self._credit_s -= min(self._clock() - now, LONGEST_S)
        return self._answer
