"""What a run lock needs of the configuration, and when the state of the previous main is used."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

from harness.composition import composed, on_any_port
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
    assert ("sidecar.store.redis_client" in modules) is ("redis_url" in settings)
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


async def test_sidecar_with_a_run_lock_has_the_duties_of_the_main(tmp_path: Path) -> None:
    flags = {"run_lock": str(tmp_path), "standby": "true", "run_lifetime": "1h", "instance": "a"}
    takeover = Takeover(tmp_path, FlockSlots(tmp_path, "main"))
    async with composed(on_any_port(flags), takeover) as one:
        main = one.sidecar.main_process
        assert main is not None
        assert one.facts()["MainProcess.lifetime_s"] == {"3600.0"}
        assert one.facts()["MainProcess.on_failure()"] == {"handover"}
        assert (main._takeover, main._controller) == (takeover, one.sidecar.controller)
        assert main.notice in one.sidecar.observers.steps
        assert one.sidecar.offer == main.offer
        assert one.metrics()["/metrics arbiter_standby_ready"] == {"0.0"}
