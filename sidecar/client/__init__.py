"""What an app imports to talk to its sidecar: ``from sidecar.client import report, ArbiterHandler, ArbiterMiddleware``.

Standard library only, and nothing of the sidecar itself: an app pays for what it uses. Where to send is told by the
sidecar's own settings in the app's environment: ``ARBITER_STATSD_SOCKET`` (unix datagrams), else
``ARBITER_STATSD_LISTEN`` (UDP); without either everything is dropped, and counted in ``stats()``. Programs of several
processes that all serve one life of the app set ``ARBITER_APP_START`` once, before the first of them starts: each
process making up its own would look like an app that restarts all the time.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any, Final

from sidecar.client.reporting import configure, heartbeat, report, results, stats

if TYPE_CHECKING:
    from sidecar.client.aiohttp_server import arbiter_aiohttp_middleware as arbiter_aiohttp_middleware
    from sidecar.client.asgi import ArbiterMiddleware
    from sidecar.client.exchange import report_exception
    from sidecar.client.life_connection import report_life
    from sidecar.client.log_handler import ArbiterHandler
    from sidecar.client.redaction import redacted
    from sidecar.client.wsgi import ArbiterWSGIMiddleware

__all__ = [
    "ArbiterHandler",
    "ArbiterMiddleware",
    "ArbiterWSGIMiddleware",
    "configure",
    "heartbeat",
    "redacted",
    "report",
    "report_exception",
    "report_life",
    "results",
    "stats",
]

_LATE: Final = {
    "ArbiterHandler": "log_handler",
    "ArbiterMiddleware": "asgi",
    "ArbiterWSGIMiddleware": "wsgi",
    "arbiter_aiohttp_middleware": "aiohttp_server",
    "redacted": "redaction",
    "report_exception": "exchange",
    "report_life": "life_connection",
}
"""Imported when somebody asks: logging and aiohttp take longer than all the rest."""


def __getattr__(name: str) -> Any:
    if name not in _LATE:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(f"{__name__}.{_LATE[name]}"), name)
