"""The systemd units: systemd accepts them, the latch survives a restart, and a culled app is restarted."""

from __future__ import annotations

import json
import os
import re
import shlex
import subprocess
from pathlib import Path
from typing import Final

import pytest

from deploy.env_file import EXAMPLE, given
from harness.binaries import find
from sidecar.actions.actuator import TIMEOUT_S
from sidecar.config.load import load
from sidecar.runlock import durations

SYSTEMD: Final = Path(__file__).parents[2] / "deploy" / "systemd"
TEXT: Final = (SYSTEMD / "health-arbiter.service").read_text()
PAIR: Final = (SYSTEMD / "health-arbiter@.service").read_text()
POLKIT: Final = (SYSTEMD / "60-health-arbiter.rules").read_text()
SHARED: Final = "/run/health-arbiter"
APP: Final = "app.service"
SYSTEMCTL: Final = "systemctl --no-ask-password restart"
USER: Final = "health-arbiter"

Directives = dict[str, list[str]]
"""Directive -> its values in order; a directive may occur several times."""

HARDENING: Final = {
    "DynamicUser": "yes",
    "NoNewPrivileges": "yes",
    "ProtectSystem": "strict",
    "ProtectHome": "yes",
    "PrivateTmp": "yes",
    "PrivateDevices": "yes",
    "ProtectKernelTunables": "yes",
    "ProtectControlGroups": "yes",
    "RestrictSUIDSGID": "yes",
    "LockPersonality": "yes",
    "MemoryDenyWriteExecute": "yes",
    "CapabilityBoundingSet": "",
    "LimitCORE": "0",
}


def _read(text: str) -> Directives:
    directives: Directives = {}
    for line in text.splitlines():
        name, equals, value = line.partition("=")
        if equals and not line.startswith(("#", ";")):
            directives.setdefault(name, []).append(value)
    return directives


def _environ(unit: Directives) -> dict[str, str]:
    """The environment of the service: the file wins over the unit."""
    own = dict(word.split("=", 1) for line in unit.get("Environment", []) for word in shlex.split(line))
    return own | given(EXAMPLE.read_text())


UNIT: Final = _read(TEXT)


def _has(directives: dict[str, str], unit: Directives = UNIT) -> None:
    assert {name: unit.get(name) for name in directives} == {name: [value] for name, value in directives.items()}


def test_latch_survives_a_restart_and_not_a_stop() -> None:
    _has({"RuntimeDirectoryPreserve": "restart"})
    assert load({}, _environ(UNIT)).state.state_dir == f"/run/{UNIT['RuntimeDirectory'][0]}"


def test_sidecar_always_comes_back_and_a_stopping_one_may_finish() -> None:
    _has({"Restart": "always", "StartLimitIntervalSec": "0"})
    assert durations.parse(UNIT["TimeoutStopSec"][0]) > load({}, _environ(UNIT)).server.stop_drain


@pytest.mark.parametrize("text", [TEXT, PAIR], ids=["single", "pair"])
def test_service_can_do_little_harm(text: str) -> None:
    _has(HARDENING, _read(text))
    assert "MemoryMax" in _read(text)


def test_culled_app_is_restarted_and_noticed() -> None:
    settings, app = load({}, _environ(UNIT)), _read((SYSTEMD / APP).read_text())
    assert settings.action.action == "command"
    assert settings.action.action_command == f"{SYSTEMCTL} {APP}", "the polkit rule allows nothing else"
    assert durations.parse(app["TimeoutStopSec"][0]) < TIMEOUT_S
    assert app["ExecStart"][0].endswith(f"--port {settings.app.app_port}")
    _has({"User": USER, "DynamicUser": "yes"})


@pytest.fixture(autouse=True)
def _systemctl(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The settings want a program that is there; not every machine has systemd."""
    program = tmp_path / "bin" / "systemctl"
    program.parent.mkdir()
    program.touch(0o700)
    monkeypatch.setenv("PATH", f"{os.environ['PATH']}{os.pathsep}{program.parent}")


# -- the unit for a main and its standby -----------------------------------------------------------------------------


def _lines(text: str) -> set[tuple[str, str]]:
    return {(name, value) for name, values in _read(text).items() for value in values}


def test_pair_shares_one_directory_that_neither_removes() -> None:
    settings = load({}, _environ(_read(PAIR)))
    assert (settings.run_lock.run_lock, settings.state.state_dir, settings.run_lock.standby) == (SHARED, SHARED, True)
    assert {("RuntimeDirectory", "health-arbiter"), ("RuntimeDirectoryPreserve", "yes")} <= _lines(PAIR)
    assert ("User", "health-arbiter") in _lines(PAIR), "with two users neither could read the files of the other"
    assert "%i" not in "".join(value for name, value in _lines(PAIR) if name != "Description")


# -- polkit ------------------------------------------------------------------------------------------------------------

MANAGE: Final = "org.freedesktop.systemd1.manage-units"
STAND_IN_OF_POLKIT: Final = """
const rules = [], polkit = { Result: { YES: "yes" }, addRule: (rule) => rules.push(rule) };
const [text, asked] = process.argv.slice(1);
eval(text);
const answers = JSON.parse(asked).map(([id, user, unit, verb]) =>
    rules.map((rule) => rule({ id, lookup: (key) => ({ unit, verb })[key] }, { user })).find(Boolean) || null);
console.log(JSON.stringify(answers));
"""


def test_polkit_lets_the_sidecar_restart_the_app_and_nothing_else() -> None:
    node = find("node")
    if node is None:
        pytest.skip("node is not installed")
    allowed = [MANAGE, USER, APP, "restart"]
    others = ["org.freedesktop.systemd1.manage-unit-files", "nobody", "ssh.service", "stop"]
    asked = [allowed, *([*allowed[:place], other, *allowed[place + 1 :]] for place, other in enumerate(others))]
    command = [node, "-e", STAND_IN_OF_POLKIT, "--", POLKIT, json.dumps(asked)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=True)
    assert json.loads(done.stdout) == ["yes", None, None, None, None]


# -- systemd-analyze ---------------------------------------------------------------------------------------------------


def _complaints(text: str, directory: Path) -> list[str]:
    """The complaints of systemd-analyze about a unit, with a program that every machine has."""
    analyze = find("systemd-analyze")
    if analyze is None:
        pytest.skip("systemd-analyze is not installed")
    names = {PAIR[:40]: "health-arbiter@1.service", TEXT[:40]: "health-arbiter.service"}
    unit = directory / names.get(text[:40], APP)
    unit.write_text(re.sub(r"^ExecStart=.*$", "ExecStart=/bin/true", text, flags=re.MULTILINE))
    command = [analyze, "verify", "--man=no", "--recursive-errors=no", str(unit)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    # It loads other units too, and may complain about them.
    complaints = [line for line in done.stderr.splitlines() if unit.name in line]
    return complaints + ([f"exit code {done.returncode}"] if done.returncode and not complaints else [])


@pytest.mark.parametrize("text", [TEXT, PAIR, (SYSTEMD / APP).read_text()], ids=["single", "pair", "app"])
def test_systemd_accepts_the_unit(text: str, tmp_path: Path) -> None:
    assert _complaints(text, tmp_path) == []
