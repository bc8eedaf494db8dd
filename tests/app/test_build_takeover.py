"""What a run lock needs of the configuration, and when the state of the previous main is used."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

from sidecar.app import build_takeover
from sidecar.config.settings import load_config
from sidecar.controller.incarnation_ids import IncarnationIds
from sidecar.core.life.container import start
from sidecar.core.measure.measurements import Measurements
from sidecar.core.measure.weight import Weight
from sidecar.core.types import Policy
from sidecar.runlock.flock import FlockSlots
from sidecar.takeover.election import Takeover

EVERYTHING = {
    "redis_url": "redis://localhost",
    "statsd_listen": "127.0.0.1:8125",
    "scrape_url": "http://127.0.0.1:9000/metrics",
    "scrape_errors": "errors_total",
    "webhook_url": "http://a/hook",
}


@pytest.mark.parametrize(("settings", "count"), [({}, 2), (EVERYTHING, 5)], ids=["nothing", "everything"])
def test_standby_imports_the_modules_that_its_configuration_needs(settings: dict[str, str], count: int) -> None:
    modules = build_takeover._modules(load_config(settings, {}))
    assert len(modules) == count
    assert [name for name in modules if find_spec(name) is None] == []


def test_every_shared_socket_has_its_address() -> None:
    config = load_config({"run_lock": "/run/lock", "socket": "/run/app.sock", "service": "shop", "instance": "a"}, {})
    election = build_takeover.election(config)
    assert election._addresses["socket"] == "/run/app.sock"
    assert election._addresses["public_listen"] == config.server.public_listen
    assert election._app == "shop/a"


@pytest.mark.parametrize(("state", "failures"), [(None, 0), (({"format": 0}, 1.0), 1)], ids=["none", "unusable"])
def test_state_that_cannot_be_used_is_reported_and_left_out(state: Any, failures: int) -> None:
    reported: list[Exception] = []
    takeover = Takeover(Path("/run/lock"), FlockSlots(Path("/run/lock"), "main"), state=state)
    found = build_takeover.transferred_state(
        takeover,
        start("shop/a", 0.0, Policy()),
        IncarnationIds(),
        app="shop/a",
        policy=Policy(),
        measurements=Measurements(60, 0),
        weight=Weight(),
        on_failure=reported.append,
    )
    assert (found, len(reported)) == (None, failures)
