"""The daemon as a process: what only a process has. ``test_serve`` has the rest, in a loop."""

from __future__ import annotations

import os
import signal
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from harness.waiting import wait_for

if TYPE_CHECKING:
    from harness.children import StartSidecar

pytestmark = pytest.mark.process


@pytest.mark.fresh
def test_process_that_serves_has_not_loaded_pydantic(sidecar: StartSidecar) -> None:
    maps = Path(f"/proc/{sidecar().pid}/maps").read_text()
    assert "aiohttp" in maps  # the maps do show what is loaded
    assert "pydantic" not in maps


def test_told_to_stop_it_leaves_the_balance_and_a_second_signal_ends_it_at_once(sidecar: StartSidecar) -> None:
    one = sidecar(stop_drain="10m")
    os.kill(one.pid, signal.SIGTERM)
    wait_for(lambda: one.verdict()["state"] == "stopping", timeout_s=60, what="it is stopping")
    assert one.agent_line() == "drain 0% #the sidecar is stopping\n"
    assert (one.health()[0], one.health("/livez")[0]) == (503, 200)
    os.kill(one.pid, signal.SIGINT)
    assert one.wait(60) > 0
