"""What a run lock needs of the configuration."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path

import pytest
from prometheus_client import CollectorRegistry

from sidecar.app import daemon
from sidecar.config.load import load

EVERYTHING = {
    "redis_url": "redis://localhost",
    "statsd_listen": "127.0.0.1:8125",
    "scrape_url": "http://127.0.0.1:9000/metrics",
    "scrape_errors": "errors_total",
    "webhook_url": "http://a/hook",
}


@pytest.mark.parametrize(("settings", "count"), [({}, 3), (EVERYTHING, 6)], ids=["nothing", "everything"])
def test_standby_imports_the_modules_that_its_configuration_needs(settings: dict[str, str], count: int) -> None:
    modules = daemon._imported_late(load(settings, {}))
    assert len(modules) == count
    assert ("sidecar.store.redis_client" in modules) is ("redis_url" in settings)
    assert [name for name in modules if find_spec(name) is None] == []
    assert all(name.startswith(("sidecar.", "encodings.", "importlib.")) for name in modules)


@pytest.mark.parametrize(("standby", "shown"), [("true", {"arbiter_standby_ready"}), ("false", set())])
def test_lock_of_the_settings_shows_its_standby_only_if_one_may_wait(
    tmp_path: Path, standby: str, shown: set[str]
) -> None:
    registry = CollectorRegistry()
    config = load({"run_lock": str(tmp_path), "standby": standby}, {})
    lock = daemon.run_lock(config, registry)
    assert {family.name for family in registry.collect()} == shown
    assert lock.acquire()
    assert (tmp_path / "main.1.lock").exists()
    second = daemon.run_lock(config._replace(run_lock=config.run_lock._replace(standby=False)), registry)
    assert not second.acquire()
    lock.release()
