"""What an app imports to talk to its sidecar: ``report``, ``ArbiterHandler``, ``ArbiterMiddleware`` and more.

It uses only the standard library, and is a distribution of its own, ``health-arbiter-client``, with the import name
``health_arbiter_client``. An import loads only what is used. ``Cascade`` chooses among the app's replicas.

It posts to the local listener of the sidecar, by the sidecar's settings in the environment of the app: to
``ARBITER_SOCKET``, else to ``ARBITER_LOCAL_LISTEN``, by default 127.0.0.1:9180 (``off``: not at all). While no sidecar
answers, reports wait for 30 seconds; then they are dropped, which ``stats()`` counts. One line of the logger
``health_arbiter_client`` says so. A program of several processes sets ``ARBITER_APP_START`` once, before its first
process starts: if each process set its own, the app would seem to restart all the time.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from .aiohttp_server import arbiter_aiohttp_middleware as arbiter_aiohttp_middleware
    from .asgi import ArbiterMiddleware
    from .cascade import BusyError, Cascade, ExhaustedError
    from .celery_worker import arbiter_celery as arbiter_celery
    from .django_middleware import ArbiterDjangoMiddleware as ArbiterDjangoMiddleware
    from .exchange import report_exception
    from .log_handler import ArbiterHandler
    from .redaction import redacted
    from .reporting import configure, heartbeat, report, results, stats
    from .wsgi import ArbiterWSGIMiddleware
    from .wsgi import arbiter_flask as arbiter_flask

__all__ = [
    "ArbiterHandler",
    "ArbiterMiddleware",
    "ArbiterWSGIMiddleware",
    "BusyError",
    "Cascade",
    "ExhaustedError",
    "configure",
    "heartbeat",
    "redacted",
    "report",
    "report_exception",
    "results",
    "stats",
]

_MODULES: Final = {
    "ArbiterDjangoMiddleware": "django_middleware",
    "ArbiterHandler": "log_handler",
    "ArbiterMiddleware": "asgi",
    "ArbiterWSGIMiddleware": "wsgi",
    "arbiter_aiohttp_middleware": "aiohttp_server",
    "arbiter_celery": "celery_worker",
    "arbiter_flask": "wsgi",
    "redacted": "redaction",
    "report_exception": "exchange",
    **dict.fromkeys(("BusyError", "Cascade", "ExhaustedError"), "cascade"),
    **dict.fromkeys(("configure", "heartbeat", "report", "results", "stats"), "reporting"),
}
"""Modules by name, imported at first use: logging and aiohttp take long, and the sidecar itself needs two modules."""


def __getattr__(name: str) -> Any:
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(f"{__name__}.{_MODULES[name]}"), name)
