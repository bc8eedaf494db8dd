"""A main that is killed leaves its past to the next one: real processes, looked at as an engineer does."""

from __future__ import annotations

import json
import signal
from typing import TYPE_CHECKING, Any, Final

import pytest

from harness.succession import Succession
from harness.waiting import wait_for

if TYPE_CHECKING:
    from pathlib import Path

    from harness.sidecar import Setting, Sidecar
    from harness.starting import StartSidecar

SLOW: Final[dict[str, Setting]] = {
    "error_window": "10m",  # who is suspect stays so, however long it takes to start the next ones
    "settle": "5m",
    "drain": "0s",
    "check_interval": "500ms",
    "error_limit": 5,
}
LATE_S: Final = 10.0
"""What is told as an age is later by as long as it took to be heard, on a machine that has other things to do."""


def _hook(directory: Path) -> Path:
    path = directory / "hook"
    path.write_text("#!/bin/sh\necho all 16 threads wait for redis\n")
    path.chmod(0o700)
    return path


def _why(one: Sidecar) -> dict[str, Any]:
    value: dict[str, Any] = one.request("local", "GET", "/why").json()
    return value


def _minutes(one: Sidecar) -> list[int]:
    value: list[int] = one.request("local", "GET", "/page/state").json()["errors"]["minutes"]
    return value


def _cull(one: Sidecar) -> None:
    headers = {"Content-Type": "application/json"}
    reply = one.request("local", "POST", "/cull", json.dumps({"author": "ann", "reason": "it hangs"}), headers)
    assert reply.status < 300, reply
    wait_for(lambda: one.health()[0] == 503, timeout_s=20, what="it is culled")


def _without_instants(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _without_instants(each) for name, each in value.items() if name not in ("at", "first", "last")}
    return [_without_instants(each) for each in value] if isinstance(value, list) else value


def _instants(value: Any) -> list[float]:
    if isinstance(value, dict):
        own = [each for name, each in value.items() if name in ("at", "first", "last")]
        return own + [at for each in value.values() for at in _instants(each)]
    return [at for each in value for at in _instants(each)] if isinstance(value, list) else []


def test_who_takes_over_tells_the_same_past_whatever_ended_the_main(sidecar: StartSidecar, run_dir: Path) -> None:
    one = Succession(sidecar.unstarted, run_dir, cull_hook=_hook(run_dir), **SLOW).start()
    one.main.post_error(2, app_start="boot-1", kind="redis", message="no route to host")
    _cull(one.main)
    one.main.post_error(5, app_start="boot-2", kind="disk", message="disk is full", fingerprint="disk-1")
    wait_for(lambda: one.main.verdict()["state"] == "suspect", timeout_s=20, what="it is suspect")
    shown = ("history", "samples", "capture", "last_cull")
    before = {name: _why(one.main)[name] for name in shown}
    assert before["history"][0]["what"] == "suspect"
    assert [each["message"] for each in before["samples"]] == ["disk is full"]
    assert [each["message"] for each in before["last_cull"]["samples"]] == ["no route to host"]
    assert "16 threads" in before["capture"]
    assert sum(_minutes(one.main)) == 7

    one.end_main(signal.SIGKILL)
    after = {name: _why(one.main)[name] for name in shown}
    assert _without_instants(after) == _without_instants(before)
    shifts = [later - at for at, later in zip(_instants(before), _instants(after), strict=True)]
    assert shifts == pytest.approx([shifts[0]] * len(shifts), abs=0.05)
    assert -0.05 < shifts[0] < LATE_S
    assert sum(_minutes(one.main)) == 7

    one.await_standby()
    one.main.post_error(1, kind="disk", message="disk is still full", fingerprint="disk-1")
    one.end_main(signal.SIGTERM)  # at once: what was not due yet is told at the end
    assert [(each["count"], each["message"]) for each in _why(one.main)["samples"]] == [(6, "disk is still full")]
    assert sum(_minutes(one.main)) == 8

    one.await_standby()
    one.main.post_error(1, count=0, app_start="boot-3")
    wait_for(lambda: one.main.verdict()["app_start"] == "boot-3", timeout_s=20, what="another life has begun")
    one.end_main(signal.SIGKILL)
    last = _why(one.main)
    assert last["samples"] == [], "they are of a life that has ended"
    assert _without_instants(last["last_cull"]) == _without_instants(before["last_cull"])
    assert sum(_minutes(one.main)) == 8
    assert not any("handover" in str(line.get("where", "")) for line in one.main.log_lines())
