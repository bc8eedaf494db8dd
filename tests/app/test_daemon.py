"""The whole daemon as a process: how it starts, what it refuses to start with, how it ends, and what survives it."""

from __future__ import annotations

import json
import os
import re
import signal
import socket
import stat
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from harness.ports import free_port
from harness.sidecar import command
from harness.waiting import wait_for
from sidecar.app import build
from sidecar.config.rollout import ALONE
from sidecar.config.settings import load_config
from sidecar.core.types import Policy
from sidecar.net.sockets import CannotListenError, naming_setting

if TYPE_CHECKING:
    from collections.abc import Callable

    from harness.children import StartSidecar
    from harness.sidecar import Sidecar

FAST = {"settle": "0s", "drain": "0s", "check_interval": "500ms"}
PATHS = ("/health", "/health/haproxy", "/health/nomad")
TERM, INT = signal.SIGTERM, signal.SIGINT


def _is(one: Sidecar, state: str) -> Callable[[], bool]:
    return lambda: bool(one.verdict()["state"] == state)


def _statuses(one: Sidecar) -> list[int]:
    return [one.health(path)[0] for path in PATHS]


def _lines(one: Sidecar, message: str) -> list[dict[str, Any]]:
    return [line for line in one.log_lines() if line.get("message") == message]


def _refusal(one: Sidecar) -> str:
    """What it wrote before it ended with exit code 2; one line."""
    one.launch()
    assert one.wait(30) == 2
    (line,) = one.output().splitlines()
    return line


# -- settings -----------------------------------------------------------------------------------------------


def test_defaults_of_settings_and_policy_are_the_same() -> None:
    assert build.policy(load_config({"alone": "true"}, {})) == Policy()


# -- starting -----------------------------------------------------------------------------------------------


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


def test_redis_that_cannot_be_reached_is_no_reason_not_to_start(sidecar: StartSidecar) -> None:
    patient = {**FAST, "check_interval": "10s", "redis_timeout": "5s"}
    one = sidecar(**patient, redis_url=f"redis://127.0.0.1:{free_port()}")
    assert _statuses(one) == [200] * 3
    one.post_error(5)
    wait_for(lambda: one.metrics()["arbiter_budget_reachable"] == 0, timeout_s=60, what="the first beat has failed")
    assert one.verdict()["state"] == "suspect"
    assert one.verdict()["claim"] is None
    assert _statuses(one) == [200] * 3


@pytest.mark.fresh
def test_process_that_serves_has_not_loaded_pydantic(sidecar: StartSidecar) -> None:
    one = sidecar()
    maps = Path(f"/proc/{one.pid}/maps").read_text()
    assert "aiohttp" in maps  # the maps do show what is loaded
    assert "pydantic" not in maps


@pytest.mark.parametrize("listener", ["public", "local", "agent"])
def test_port_in_use_is_one_line_that_names_the_setting_and_exit_2(sidecar: StartSidecar, listener: str) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        one = sidecar.unstarted(**{f"{listener}_listen": address})
        said = _refusal(one)
    name = f"ARBITER_{listener.upper()}_LISTEN"
    assert said == f"health-arbiter: {name}: cannot listen on {address}: address already in use"


@pytest.mark.parametrize(
    ("path", "complaint"),
    [
        pytest.param("none/app.sock", "cannot listen on {path}: no such file or directory", id="missing directory"),
        pytest.param("directory", "cannot listen on {path}: address already in use", id="directory"),
        pytest.param("x" * 100, "'{path}' from env must be at most 107 bytes", id="too long"),
    ],
)
def test_bad_socket_path_is_one_line_and_exit_2(
    sidecar: StartSidecar, run_dir: Path, path: str, complaint: str
) -> None:
    (run_dir / "directory").mkdir()
    one = sidecar.unstarted(socket=run_dir / path)
    assert _refusal(one) == f"health-arbiter: ARBITER_SOCKET: {complaint.format(path=run_dir / path)}"


def test_host_that_can_be_none_is_one_line_and_exit_2(sidecar: StartSidecar) -> None:
    said = _refusal(sidecar.unstarted(public_listen="a..b:9181"))
    assert said == "health-arbiter: ARBITER_PUBLIC_LISTEN: cannot listen on a..b:9181: not a host name"


def test_host_that_the_resolver_does_not_know_is_told_in_its_words() -> None:
    with pytest.raises(CannotListenError) as caught, naming_setting("X", "a:1"):
        raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")
    assert str(caught.value) == "X: cannot listen on a:1: name or service not known"


def test_second_sidecar_does_not_take_the_socket_from_the_first(sidecar: StartSidecar, run_dir: Path) -> None:
    path = run_dir / "app.sock"
    first = sidecar("first", socket=path)
    said = _refusal(sidecar.unstarted("second", socket=path))
    assert said == f"health-arbiter: ARBITER_SOCKET: cannot listen on {path}: address already in use"
    assert first.request("socket", "POST", "/errors").status == 202


# -- ending -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("number", [TERM, INT], ids=lambda number: number.name)
def test_told_to_stop_it_leaves_the_balance_first_and_then_ends_well(
    sidecar: StartSidecar, run_dir: Path, number: signal.Signals
) -> None:
    one = sidecar(stop_drain="9s", socket=run_dir / "app.sock")
    begun = time.monotonic()
    os.kill(one.pid, number)
    wait_for(_is(one, "stopping"), timeout_s=60, what="it is stopping")
    assert _statuses(one) == [503, 503, 200]
    assert _first_line(one) == "stopping: the sidecar is stopping"
    assert one.agent_line() == "drain 0% #the sidecar is stopping\n"
    assert one.health("/readyz")[0] == 503
    assert one.health("/livez")[0] == 200
    assert one.post_error() == {"state": "stopping"}
    assert one.wait(30) == 0
    assert time.monotonic() - begun >= 9.0
    assert one.log_lines()[-1]["message"] == "stopped"
    assert not (run_dir / "app.sock").exists()


def test_connections_that_are_kept_do_not_hold_up_the_end(sidecar: StartSidecar) -> None:
    # To wait for them would take a second for each of the two listeners. A busy machine is not busy five times.
    assert any(_overtime_s(sidecar, str(number)) < 1.5 for number in range(5))


def _overtime_s(sidecar: StartSidecar, number: str) -> float:
    """How much later one ends whose clients keep their connections than another that has none."""
    one, other = sidecar(f"one{number}"), sidecar(f"other{number}")
    kept = [one._connection("public"), one._connection("local")]
    for connection in kept:
        connection.request("GET", "/none")
        connection.getresponse().read()
    other.terminate()
    one.terminate()
    assert other.wait() == 0
    begun = time.monotonic()
    assert one.wait() == 0
    for connection in kept:
        connection.close()
    return time.monotonic() - begun


@pytest.mark.parametrize(("first", "second"), [(TERM, TERM), (INT, INT), (TERM, INT)], ids=lambda number: number.name)
def test_second_signal_ends_it_at_once(sidecar: StartSidecar, first: signal.Signals, second: signal.Signals) -> None:
    one = sidecar(stop_drain="60s")
    os.kill(one.pid, first)
    wait_for(_is(one, "stopping"), timeout_s=60, what="it is stopping")
    os.kill(one.pid, second)
    assert one.wait(20) > 0


def test_draining_container_stays_down_for_balancers_while_the_sidecar_stops(sidecar: StartSidecar) -> None:
    one = sidecar(**{**FAST, "drain": "5m"}, stop_drain="60s")
    one.post_error(5)
    wait_for(_is(one, "draining"), timeout_s=60, what="it is culled")
    one.terminate()
    wait_for(_is(one, "stopping"), timeout_s=60, what="it is stopping")
    assert _statuses(one) == [503, 503, 200]


def test_sidecar_of_a_container_that_is_down_leaves_at_once(sidecar: StartSidecar) -> None:
    one = sidecar(**FAST, stop_drain="1h")
    one.post_error(5)
    wait_for(_is(one, "down"), timeout_s=60, what="it is culled")
    one.terminate()
    assert one.wait() == 0


# -- living -------------------------------------------------------------------------------------------------


def test_during_grace_errors_do_not_cull(sidecar: StartSidecar) -> None:
    one = sidecar(**FAST, grace="60s")
    one.post_error(50)
    checks = 'arbiter_checks_total{verdict="excessive"}'
    wait_for(lambda: one.metrics().get(checks, 0) >= 2, timeout_s=60, what="it was judged and found excessive")
    assert one.verdict()["state"] == "starting"
    assert _statuses(one) == [200] * 3
    assert one.metrics()["arbiter_culls_total"] == 0


def test_app_announces_its_lives_and_a_new_one_comes_back_up(sidecar: StartSidecar) -> None:
    one = sidecar(**FAST, budget=1)
    assert one.post_error(count=0, app_start="life-1") == {"state": "up"}
    wait_for(lambda: one.verdict()["app_start"] == "life-1", timeout_s=60, what="its name is known")
    assert one.verdict()["evidence"]["errors"] == 0
    one.post_error(5, app_start="life-1")
    wait_for(_is(one, "down"), timeout_s=60, what="it is culled")
    assert _statuses(one) == [503] * 3

    one.post_error(count=0, app_start="life-2")
    wait_for(_is(one, "up"), timeout_s=60, what="the new life is up")
    assert _statuses(one) == [200] * 3
    assert one.verdict()["evidence"]["errors"] == 0
    assert one.verdict()["latched"] is False

    one.post_error(5, app_start="life-1")  # a late report of the old life
    wait_for(lambda: one.metrics()["arbiter_stale_reports_total"] == 5, timeout_s=60, what="they are counted apart")
    assert one.verdict()["state"] == "up"


def test_sidecar_alone_runs_in_shadow_never_goes_down_and_says_what_it_would_do(sidecar: StartSidecar) -> None:
    one = sidecar(**FAST, alone=False)
    one.post_error(5)
    wait_for(lambda: one.metrics()["arbiter_would_culls_total"] == 1, timeout_s=60, what="it would be culled")
    assert one.verdict()["would_be_down"] is True
    assert _statuses(one) == [200] * 3
    assert one.agent_line() == "up ready 100%\n"
    assert one.metrics()["arbiter_culls_total"] == 0
    said = {"would be culled (shadow mode)", ALONE["shadow"]}
    wait_for(lambda: said <= {line["message"] for line in one.log_lines()}, timeout_s=60, what="its log says so")
    why = one.request("public", "GET", "/why").json()
    assert (why["mode"], why["alone"]) == ("shadow", ALONE["shadow"])
    assert f"\nalone: {ALONE['shadow']}\n" in one.request("local", "GET", "/why?format=text").body


def test_preset_reports_down_with_400(sidecar: StartSidecar) -> None:
    one = sidecar(preset="classdojo", check_interval="500ms", drain="0s")
    one.post_error(5)
    wait_for(_is(one, "down"), timeout_s=60, what="it is culled at the next check")
    assert _statuses(one) == [400] * 3
    assert one.health("/livez")[0] == 200


# -- surviving ----------------------------------------------------------------------------------------------


def _first_line(one: Sidecar) -> str:
    return one.health()[1].splitlines()[0]


def _is_latched_on_disk(one: Sidecar) -> bool:
    """A file is there from the claim on, without the latch."""
    files = Path(str(one.settings["state_dir"])).glob("*.json")
    return any(json.loads(file.read_text())["latch"] for file in files)


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


def test_state_that_cannot_be_read_costs_persistence_and_not_health(sidecar: StartSidecar) -> None:
    one = sidecar.unstarted()
    state = Path(str(one.settings["state_dir"])) / "health-arbiter-app_a.json"
    state.write_bytes(b"\x00garbage")
    one.start()
    assert _statuses(one) == [200] * 3
    assert one.metrics()['arbiter_failures_total{where="journal"}'] == 1
