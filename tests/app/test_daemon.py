"""The daemon as a process: what only a process has. ``test_serve`` has the rest, in a loop."""

from __future__ import annotations

import os
import signal
import stat
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from harness.waiting import wait_for

if TYPE_CHECKING:
    from collections.abc import Callable

    from harness.children import StartSidecar
    from harness.sidecar import Sidecar

pytestmark = pytest.mark.process
PATHS = ("/health", "/health/haproxy", "/health/nomad")


def _is(one: Sidecar, state: str) -> Callable[[], bool]:
    return lambda: bool(one.verdict()["state"] == state)


def _statuses(one: Sidecar) -> list[int]:
    return [one.health(path)[0] for path in PATHS]


def _lines(one: Sidecar, message: str) -> list[dict[str, Any]]:
    return [line for line in one.log_lines() if line.get("message") == message]


def _first_line(one: Sidecar) -> str:
    return one.health()[1].splitlines()[0]


def test_fresh_sidecar_is_up_at_every_listener_and_logs_their_addresses(sidecar: StartSidecar, run_dir: Path) -> None:
    one = sidecar(socket=run_dir / "app.sock")
    assert [one.health(path) for path in PATHS] == [(200, "up\n")] * 3
    assert [one.health(path)[0] for path in ("/livez", "/readyz", "/metrics")] == [200] * 3
    assert one.agent_line() == "up ready 100%\n"
    assert one.request("socket", "POST", "/errors").json() == {"state": "up"}
    assert stat.S_IMODE((run_dir / "app.sock").stat().st_mode) == 0o660
    (listening,) = wait_for(lambda: _lines(one, "listening"), timeout_s=60, what="the log says so")
    assert listening["health_at"] == one.settings["public_listen"]
    assert listening["errors_to"] == f"{one.settings['local_listen']}, {one.settings['socket']}"
    assert listening["agent_at"] == one.settings["agent_listen"]


@pytest.mark.fresh
def test_process_that_serves_has_not_loaded_pydantic(sidecar: StartSidecar) -> None:
    one = sidecar()
    maps = Path(f"/proc/{one.pid}/maps").read_text()
    assert "aiohttp" in maps  # the maps do show what is loaded
    assert "pydantic" not in maps


def test_told_to_stop_it_leaves_the_balance_and_a_second_signal_ends_it_at_once(sidecar: StartSidecar) -> None:
    one = sidecar(stop_drain="10m")
    os.kill(one.pid, signal.SIGTERM)
    wait_for(_is(one, "stopping"), timeout_s=60, what="it is stopping")
    assert _statuses(one) == [503, 503, 200]
    assert _first_line(one) == "stopping: the sidecar is stopping"
    assert one.agent_line() == "drain 0% #the sidecar is stopping\n"
    assert one.health("/livez")[0] == 200
    os.kill(one.pid, signal.SIGINT)
    assert one.wait(60) > 0
