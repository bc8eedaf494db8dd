"""The daemon as a process: what only a process has. ``test_serve`` and ``test_lives`` have the rest, in a loop."""

from __future__ import annotations

import json
import os
import re
import signal
import stat
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from harness.sidecar import command
from harness.waiting import wait_for

if TYPE_CHECKING:
    from harness.children import StartSidecar
    from harness.sidecar import Sidecar

pytestmark = pytest.mark.process
FAST = {"settle": "0s", "drain": "0s", "check_interval": "500ms"}
PATHS = ("/health", "/health/haproxy", "/health/nomad")


def _is(one: Sidecar, state: str) -> Callable[[], bool]:
    return lambda: bool(one.verdict()["state"] == state)


def _statuses(one: Sidecar) -> list[int]:
    return [one.health(path)[0] for path in PATHS]


def _lines(one: Sidecar, message: str) -> list[dict[str, Any]]:
    return [line for line in one.log_lines() if line.get("message") == message]


def _first_line(one: Sidecar) -> str:
    return one.health()[1].splitlines()[0]


def _is_latched_on_disk(one: Sidecar) -> bool:
    """A file is there from the claim on, without the latch."""
    files = Path(str(one.settings["state_dir"])).glob("*.json")
    return any(json.loads(file.read_text())["latch"] for file in files)


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


@pytest.mark.site
def test_token_that_all_users_can_read_is_one_warning_everywhere_and_no_core_file_may_hold_it(
    sidecar: StartSidecar, run_dir: Path
) -> None:
    token = run_dir / "token"
    token.write_text("sesame-0123456789")
    token.chmod(0o644)
    said = f"ARBITER_TOKEN_FILE: all users can read {token} (mode 0644): "
    one = sidecar(token_file=token)
    (line,) = wait_for(
        lambda: [line for line in one.log_lines() if line["message"].startswith("ARBITER_TOKEN_FILE")],
        timeout_s=60,
        what="it is logged",
    )
    assert line["message"].startswith(said)
    checked, examined = command(one, "check-config"), command(one, "doctor")
    assert (checked.code, examined.code) == (0, 0)
    assert checked.err.startswith(f"health-arbiter: warning: {said}")
    assert said not in checked.out
    assert f"warn secrets: {said}" in examined.out
    limits = Path(f"/proc/{one.pid}/limits").read_text()
    assert re.search(r"^Max core file size +0 ", limits, re.MULTILINE)
    token.chmod(0o600)
    assert command(one, "check-config").err == ""
    assert "ok   secrets: " in command(one, "doctor").out


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


@pytest.mark.site
def test_told_to_stop_without_a_drain_it_ends_well(sidecar: StartSidecar, run_dir: Path) -> None:
    one = sidecar(stop_drain="0s", socket=run_dir / "app.sock")
    os.kill(one.pid, signal.SIGINT)
    assert one.wait(60) == 0
    assert one.log_lines()[-1]["message"] == "stopped"
    assert not (run_dir / "app.sock").exists()


def test_killed_when_down_it_comes_back_down_and_finds_its_socket(sidecar: StartSidecar, run_dir: Path) -> None:
    one = sidecar(**FAST, socket=run_dir / "app.sock")
    one.post_error(5, kind="redis")
    wait_for(_is(one, "down"), timeout_s=60, what="it is culled")
    why = _first_line(one)
    wait_for(lambda: _is_latched_on_disk(one), timeout_s=60, what="the latch is written down")
    one.kill()
    assert (run_dir / "app.sock").exists()  # as a killed process leaves it
    one.start()
    assert _statuses(one) == [503] * 3
    assert _first_line(one) == f"{why} (when judged)"  # the window of before is gone
    assert one.agent_line().startswith("fail #culled: 5 server errors")
    assert one.request("socket", "POST", "/errors").json() == {"state": "down"}
    one.post_error(count=0, app_start="life-2")
    wait_for(_is(one, "up"), timeout_s=60, what="the app is replaced")
