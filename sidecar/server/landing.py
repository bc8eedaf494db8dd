"""``GET /`` of the public listener: what this is, and where to look."""

from __future__ import annotations

from typing import Final

from sidecar.net import web

_TEXT: Final = """\
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


def landing(service: str, instance: str) -> web.Handler:
    """A handler that lists the public paths as text."""
    text = _TEXT.format(service=service, instance=instance)

    async def get(_request: web.BaseRequest) -> web.Response:
        return web.Response(text=text)

    return get
