"""Builds the run lock of the configuration, with the gauge of its standby."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from prometheus_client import CollectorRegistry, Gauge

from sidecar.app.run_lock import RunLock

if TYPE_CHECKING:
    from sidecar.config.settings import Config


def run_lock(config: Config, registry: CollectorRegistry) -> RunLock:
    """Return the lock. With a standby a gauge shows whether one is there."""
    own = config.run_lock
    lock = RunLock(Path(own.run_lock), waits=own.standby, modules=_modules(config))
    if own.standby:
        ready = Gauge("arbiter_standby_ready", "1 if a standby waits to take over.", registry=registry)
        ready.set_function(lambda: lock.has_standby)
    return lock


def _modules(config: Config) -> list[str]:
    """Return the modules that the sidecar would otherwise import at their first use."""
    return [
        "encodings.idna",  # for the address of a listener
        "importlib.readers",  # for the files of the page
        *(["sidecar.store.redis", "sidecar.store.redis_client"] if config.redis.redis_url else ["sidecar.store.alone"]),
        *(["sidecar.app.build_datagrams"] if config.statsd.has_sockets else []),
        *(["sidecar.app.build_scraper"] if config.scrape.scrape_url else []),
        *(["sidecar.app.build_notify"] if config.notify.has_webhook else []),
        *(["sidecar.actions.hook"] if config.hook.cull_hook else []),
    ]
