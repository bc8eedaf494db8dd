"""The unit for two sidecars: that for one, but for what two need; and systemd takes it."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path
from typing import Final

import pytest

from deploy.env_file import EXAMPLE, given
from harness.binaries import find
from sidecar.config.settings import Settings, load
from sidecar.runlock import durations

SYSTEMD: Final = Path(__file__).parents[2] / "deploy" / "systemd"
ONE: Final = (SYSTEMD / "health-arbiter.service").read_text()
TWO: Final = (SYSTEMD / "health-arbiter@.service").read_text()
SHARED: Final = "/run/health-arbiter"

Directives = set[tuple[str, str]]


def read(text: str) -> Directives:
    lines = (line.partition("=") for line in text.splitlines() if not line.startswith("#"))
    return {(name, value) for name, equals, value in lines if equals}


def settings(text: str) -> Settings:
    own = dict(value.split("=", 1) for name, value in read(text) if name == "Environment")
    return load({}, own | given(EXAMPLE.read_text()))


def test_two_differ_from_one_only_in_what_two_need() -> None:
    ours, theirs = read(TWO), read(ONE)
    assert {name for name, _ in ours - theirs} == {
        "Conflicts",
        "Description",
        "Environment",
        "ExecStart",
        "RuntimeDirectoryPreserve",
        "User",
    }
    assert {name for name, _ in theirs - ours} == {"Description", "ExecStart", "RuntimeDirectoryPreserve"}


def test_both_meet_in_one_directory_that_neither_takes_away() -> None:
    found = settings(TWO)
    assert (found.run_lock, found.state_dir, found.standby) == (SHARED, SHARED, True)
    assert {("RuntimeDirectory", "health-arbiter"), ("RuntimeDirectoryPreserve", "yes")} <= read(TWO)
    assert ("User", "health-arbiter") in read(TWO), "two users could not enter each other's files"
    assert "%i" not in "".join(value for name, value in read(TWO) if name != "Description")


def test_who_ends_by_plan_comes_back_as_the_next_standby() -> None:
    assert ("Restart", "always") in read(TWO)
    assert settings(TWO).run_lifetime > settings(TWO).run_every


def test_a_stop_may_finish() -> None:
    (allowed,) = (value for name, value in read(TWO) if name == "TimeoutStopSec")
    assert durations.parse(allowed) > settings(TWO).stop_drain


def _complaints(text: str, directory: Path) -> list[str]:
    analyze = find("systemd-analyze")
    if analyze is None:
        pytest.skip("systemd-analyze is not installed")
    unit = directory / "health-arbiter@1.service"
    unit.write_text(re.sub(r"^ExecStart=.*$", "ExecStart=/bin/true", text, flags=re.MULTILINE))
    command = [analyze, "verify", "--man=no", "--recursive-errors=no", str(unit)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=30, check=False)
    return [line for line in done.stderr.splitlines() if unit.name in line]


def test_systemd_takes_the_unit(tmp_path: Path) -> None:
    assert _complaints(TWO, tmp_path) == []


def test_systemd_complains_of_a_spoilt_copy(tmp_path: Path) -> None:
    assert _complaints(TWO.replace("RuntimeDirectoryPreserve=yes", "RuntimeDirectoryPreserve=often"), tmp_path) != []
