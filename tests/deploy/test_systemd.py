"""The systemd unit: systemd takes it, the latch survives what it should, and it fits the settings."""

from __future__ import annotations

import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Final

import pytest

from deploy.env_file import EXAMPLE, commented_out, given
from harness.binaries import find
from sidecar.config.settings import SettingsError, load
from sidecar.runlock import durations

UNIT: Final = Path(__file__).parents[2] / "deploy" / "systemd" / "health-arbiter.service"
TEXT: Final = UNIT.read_text()

Directives = dict[str, list[str]]
"""Directive -> its values in order; one may stand several times."""

Rule = Callable[[Directives], list[str]]

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
}


def _read(text: str) -> Directives:
    directives: Directives = {}
    for line in text.splitlines():
        name, equals, value = line.partition("=")
        if equals and not line.startswith(("#", ";")):
            directives.setdefault(name, []).append(value)
    return directives


def _environ(unit: Directives) -> dict[str, str]:
    """What the service finds: the file's lines win over the unit's."""
    own = dict(setting.split("=", 1) for setting in unit.get("Environment", []))
    return own | given(EXAMPLE.read_text())


def _expected(unit: Directives, wanted: dict[str, str]) -> list[str]:
    return [f"{name} is {unit.get(name)}" for name, value in wanted.items() if unit.get(name) != [value]]


# -- rules ----------------------------------------------------------------------------------------------------------


def settings_are_valid(unit: Directives) -> list[str]:
    try:
        load({}, _environ(unit))
    except SettingsError as error:
        return error.problems
    return []


def latch_survives_a_restart_and_not_a_stop(unit: Directives) -> list[str]:
    directory = "".join(unit.get("RuntimeDirectory", []))
    state_dir = _environ(unit).get("ARBITER_STATE_DIR")
    sentences = _expected(unit, {"RuntimeDirectoryPreserve": "restart"})
    return sentences + ([] if state_dir == f"/run/{directory}" else [f"state in {state_dir}, not in /run/{directory}"])


def example_file_agrees_about_the_state(unit: Directives) -> list[str]:
    shown = commented_out(EXAMPLE.read_text())["ARBITER_STATE_DIR"]
    return [] if _environ(unit).get("ARBITER_STATE_DIR") == shown else [f"the example file says {shown}"]


def sidecar_always_comes_back(unit: Directives) -> list[str]:
    return _expected(unit, {"Restart": "always", "StartLimitIntervalSec": "0"})


def stopping_arbiter_may_finish(unit: Directives) -> list[str]:
    allowed = durations.parse("".join(unit.get("TimeoutStopSec", ["0"])))
    needed = load({}, _environ(unit)).stop_drain
    return [] if allowed > needed else [f"TimeoutStopSec {allowed:g} s, STOP_DRAIN {needed:g} s"]


def settings_come_from_the_file(unit: Directives) -> list[str]:
    return _expected(unit, {"EnvironmentFile": "/etc/health-arbiter/arbiter.env"})


def service_can_do_little_harm(unit: Directives) -> list[str]:
    return _expected(unit, HARDENING) + ([] if "MemoryMax" in unit else ["memory has no limit"])


RULES: Final[tuple[Rule, ...]] = (
    settings_are_valid,
    latch_survives_a_restart_and_not_a_stop,
    example_file_agrees_about_the_state,
    sidecar_always_comes_back,
    stopping_arbiter_may_finish,
    settings_come_from_the_file,
    service_can_do_little_harm,
)


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.__name__)
def test_unit_keeps_the_rule(rule: Rule) -> None:
    assert rule(_read(TEXT)) == []


MUTATIONS = [
    (settings_are_valid, "ARBITER_STATE_DIR=", "ARBITER_STATEDIR="),
    (latch_survives_a_restart_and_not_a_stop, "Preserve=restart", "Preserve=yes"),
    (latch_survives_a_restart_and_not_a_stop, "RuntimeDirectoryPreserve=restart\n", ""),
    (latch_survives_a_restart_and_not_a_stop, "RuntimeDirectory=health-arbiter", "RuntimeDirectory=arbiter"),
    (example_file_agrees_about_the_state, "STATE_DIR=/run/health-arbiter", "STATE_DIR=/var/lib/health-arbiter"),
    (sidecar_always_comes_back, "Restart=always", "Restart=on-failure"),
    (sidecar_always_comes_back, "StartLimitIntervalSec=0\n", ""),
    (stopping_arbiter_may_finish, "TimeoutStopSec=15s", "TimeoutStopSec=5s"),
    (stopping_arbiter_may_finish, "TimeoutStopSec=15s\n", ""),
    (settings_come_from_the_file, "EnvironmentFile=", "EnvironmentFile=-"),
    (service_can_do_little_harm, "NoNewPrivileges=yes\n", ""),
    (service_can_do_little_harm, "ProtectSystem=strict", "ProtectSystem=full"),
    (service_can_do_little_harm, "MemoryMax=128M\n", ""),
]


@pytest.mark.parametrize(
    ("rule", "old", "new"), MUTATIONS, ids=[f"{row[0].__name__}-{number}" for number, row in enumerate(MUTATIONS)]
)
def test_rule_bites(rule: Rule, old: str, new: str) -> None:
    assert TEXT.count(old) == 1, f"the unit has to have {old!r} once"
    assert rule(_read(TEXT.replace(old, new)))


def test_every_rule_has_a_row_that_shows_its_teeth() -> None:
    assert {rule for rule, *_ in MUTATIONS} == {*RULES}


# -- systemd's own opinion ------------------------------------------------------------------------------------------


def _complaints(text: str, directory: Path) -> list[str]:
    """What systemd-analyze says of a unit whose program is one that every machine has."""
    analyze = find("systemd-analyze")
    if analyze is None:
        pytest.skip("systemd-analyze is not installed")
    (start,) = _read(text)["ExecStart"]
    copy = directory / UNIT.name
    copy.write_text(text.replace(start, "/bin/true"))
    command = [analyze, "verify", "--man=no", "--recursive-errors=no", str(copy)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=30, check=False)
    # It loads the units around this one as well, and may find fault with them.
    said = [line for line in done.stderr.splitlines() if UNIT.name in line]
    return said + ([f"exit code {done.returncode}"] if done.returncode and not said else [])


def test_systemd_takes_the_unit(tmp_path: Path) -> None:
    assert _complaints(TEXT, tmp_path) == []


@pytest.mark.parametrize(
    ("old", "new"),
    [("NoNewPrivileges=yes", "NoNewPriviliges=yes"), ("Restart=always", "Restart=sometimes")],
    ids=["unknown directive", "unknown value"],
)
def test_systemd_complains_of_a_spoilt_copy(old: str, new: str, tmp_path: Path) -> None:
    assert _complaints(TEXT.replace(old, new), tmp_path) != []
