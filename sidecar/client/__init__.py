"""What an app imports to talk to its sidecar: ``report``, ``ArbiterHandler``, ``ArbiterMiddleware`` and more.

It uses only the standard library, and is a distribution of its own, ``health-arbiter-client``, with the import name
``health_arbiter_client``. An import loads only what is used.

The address comes from the sidecar's settings in the environment of the app: ``ARBITER_STATSD_SOCKET`` (unix datagrams),
else ``ARBITER_STATSD_LISTEN`` (UDP). Without either every report is dropped, and counted in ``stats()``. A program of
several processes sets ``ARBITER_APP_START`` once, before its first process starts: if each process set its own, the app
would seem to restart all the time.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any, Final

from .reporting import configure, heartbeat, report, results, stats

if TYPE_CHECKING:
    from .aiohttp_server import arbiter_aiohttp_middleware as arbiter_aiohttp_middleware
    from .asgi import ArbiterMiddleware
    from .exchange import report_exception
    from .life_connection import report_life
    from .log_handler import ArbiterHandler
    from .redaction import redacted
    from .wsgi import ArbiterWSGIMiddleware

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
"""Modules by name, imported at first use, because logging and aiohttp take longer than all other imports."""


def __getattr__(name: str) -> Any:
    if name not in _LATE:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(f"{__name__}.{_LATE[name]}"), name)
