"""Files of a host: environment file, systemd units with the right of polkit, the crontab, and deploy/standby.md."""

from __future__ import annotations

import json
import os
import re
import shlex
import subprocess
from pathlib import Path
from typing import Final

import pytest

from harness.binaries import find
from sidecar.actions.actuator import TIMEOUT_S
from sidecar.cli import settings_commands
from sidecar.config.load import load
from sidecar.config.settings import Config
from sidecar.config.shown import ADVANCED, FIRST
from sidecar.config.sources import variable
from sidecar.runlock import durations, exec_options

DEPLOY: Final = Path(__file__).parents[2] / "deploy"
SYSTEMD: Final = DEPLOY / "systemd"
EXAMPLE: Final = (DEPLOY / "arbiter.env.example").read_text()
GIVEN: Final = dict(re.findall(r"^([A-Z_]+)=(.*)$", EXAMPLE, re.MULTILINE))
OPTIONAL: Final = dict(re.findall(r"^#([A-Z_]+)=(.*)$", EXAMPLE, re.MULTILINE))
SINGLE, PAIR, APP = "health-arbiter.service", "health-arbiter@.service", "app.service"
UNITS: Final = (SINGLE, PAIR, APP)


# -- the environment file ---------------------------------------------------------------------------------------------


def test_example_loads_as_it_is_shipped_and_with_everything_switched_on() -> None:
    config = load({}, GIVEN)
    assert (config.identity.mode, config.identity.service) == ("shadow", "shop")
    load({}, GIVEN | OPTIONAL)
    named = {*GIVEN, *OPTIONAL, *re.findall(r"\b[A-Z]+_WINDOW\b", EXAMPLE)}
    assert {variable(name) for name in FIRST} - named == {"ARBITER_INSTANCE", "ARBITER_BUDGET_WINDOW"}


def test_every_value_is_the_same_for_systemd_and_docker() -> None:
    """systemd strips quotes and Docker keeps them; both keep text after ``#``."""
    values = (GIVEN | OPTIONAL).values()
    assert [value for value in values if not re.fullmatch(r"[^\s'\"\\$#]+", value)] == []


def test_page_begins_with_the_ten_settings_that_matter_and_ends_with_the_advanced_ones() -> None:
    _, *sections = (DEPLOY / "settings.md").read_text().split("\n## ")
    names = [re.findall(r"^\| `(ARBITER_\w+)`", section, re.MULTILINE) for section in sections]
    assert names[0] == [variable(name) for name in FIRST]
    assert names[-1] == [variable(name) for name in ADVANCED]


# -- the units --------------------------------------------------------------------------------------------------------


@pytest.fixture(autouse=True)
def _systemctl(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The settings want a program that is there; not every machine has systemd."""
    program = tmp_path / "bin" / "systemctl"
    program.parent.mkdir()
    program.touch(0o700)
    monkeypatch.setenv("PATH", f"{os.environ['PATH']}{os.pathsep}{program.parent}")


def _directives(unit: str) -> dict[str, str]:
    """The directives of a unit, each with its last value."""
    return dict(re.findall(r"^(\w+)=(.*)$", (SYSTEMD / unit).read_text(), re.MULTILINE))


def _settings(unit: str) -> Config:
    lines = re.findall(r"^Environment=(.*)$", (SYSTEMD / unit).read_text(), re.MULTILINE)
    return load({}, dict(word.split("=", 1) for line in lines for word in shlex.split(line)) | GIVEN)


@pytest.mark.parametrize("unit", [SINGLE, PAIR])
def test_sidecar_always_comes_back_may_finish_restarts_the_app_and_can_do_little_harm(unit: str) -> None:
    directives, app, settings = _directives(unit), _directives(APP), _settings(unit)
    assert (directives["Restart"], directives["StartLimitIntervalSec"]) == ("always", "0")
    assert durations.parse(directives["TimeoutStopSec"]) > settings.server.stop_drain
    assert settings.action.action_command == "systemctl --no-ask-password restart app.service", "as polkit allows"
    assert durations.parse(app["TimeoutStopSec"]) < TIMEOUT_S
    assert app["ExecStart"].endswith(f"--port {settings.app.app_port}")
    kept = ("DynamicUser", "NoNewPrivileges", "ProtectHome", "PrivateTmp", "MemoryDenyWriteExecute")
    assert {directives[name] for name in kept} == {"yes"}
    assert (directives["CapabilityBoundingSet"], directives["User"]) == ("", "health-arbiter")
    assert "MemoryMax" in directives


@pytest.mark.parametrize(("unit", "preserve", "lock"), [(SINGLE, "restart", ""), (PAIR, "yes", "/run/health-arbiter")])
def test_latch_survives_a_restart_and_a_pair_shares_its_directory(unit: str, preserve: str, lock: str) -> None:
    directives, settings = _directives(unit), _settings(unit)
    assert directives["RuntimeDirectoryPreserve"] == preserve
    assert settings.process.state_dir == f"/run/{directives['RuntimeDirectory']}"
    assert (settings.process.run_lock, settings.process.standby) == (lock, bool(lock))
    assert "%i" not in "".join(value for name, value in directives.items() if name != "Description")


@pytest.mark.parametrize("name", UNITS)
def test_systemd_accepts_the_unit(name: str, tmp_path: Path) -> None:
    analyze = find("systemd-analyze")
    if analyze is None:
        pytest.skip("systemd-analyze is not installed")
    unit = tmp_path / name.replace("@", "@1")
    unit.write_text(re.sub(r"(?m)^ExecStart=.*$", "ExecStart=/bin/true", (SYSTEMD / name).read_text()))
    command = [analyze, "verify", "--man=no", "--recursive-errors=no", str(unit)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    # It loads other units too, and may complain about them.
    assert [line for line in done.stderr.splitlines() if unit.name in line] == []


# -- polkit ------------------------------------------------------------------------------------------------------------

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
    allowed = ["org.freedesktop.systemd1.manage-units", "health-arbiter", APP, "restart"]
    others = ["org.freedesktop.systemd1.manage-unit-files", "nobody", "ssh.service", "stop"]
    asked = [allowed, *([*allowed[:place], other, *allowed[place + 1 :]] for place, other in enumerate(others))]
    rules = (SYSTEMD / "60-health-arbiter.rules").read_text()
    command = [node, "-e", STAND_IN_OF_POLKIT, "--", rules, json.dumps(asked)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=True)
    assert json.loads(done.stdout) == ["yes", None, None, None, None]


# -- the crontab ------------------------------------------------------------------------------------------------------

CRONTAB: Final = (DEPLOY / "cron" / "health-arbiter").read_text()
STANDBY: Final = (DEPLOY / "standby.md").read_text()
JOBS: Final = re.findall(r"^(\S+ \S+ \S+ \S+ \S+) +(\S+) +(health-arbiter.*)$", CRONTAB, re.MULTILINE)
"""The jobs of a system crontab (crontab(5)): when, the user and the command."""


@pytest.mark.parametrize(("when", "user", "command"), JOBS, ids=lambda text: text.split()[-1])
def test_each_job_runs_every_minute_with_valid_options_and_times(when: str, user: str, command: str) -> None:
    assert (when, user == "root") == ("* * * * *", False)
    assert not re.search(r"(?<!\\)%", command), "cron ends the command at %"
    _, name, *words = shlex.split(command.partition(" 2>&1 | ")[0])
    if name == "exec":
        options = exec_options.options_of(words)
        assert exec_options.contradictions(options) == []
        assert "--every 60s" in command
        assert options.standbys
        assert options.command[0].startswith("/")
    else:
        given = settings_commands.given(settings_commands.run.make_context("run", words))
        del given["config"]  # a file of the operator
        settings = load(given, {})
        assert (settings.process.standby, settings.process.run_lock) == (True, "/var/lib/health-arbiter")


def test_crontab_has_both_kinds_of_jobs() -> None:
    assert {command.split()[1] for _, _, command in JOBS} == {"exec", "run"}


# -- the page -------------------------------------------------------------------------------------------------------


def test_page_has_the_exit_codes_of_the_help() -> None:
    codes = re.compile(r"^(?:\| |  )(\d\S*(?: to \d+)?)(?: \||  )", re.MULTILINE)
    in_help = [code.replace("..", " to ") for code in codes.findall(exec_options.EPILOG)]
    assert codes.findall(STANDBY) == in_help
    assert in_help


def test_every_option_on_the_page_exists() -> None:
    known = {option for param in settings_commands.run.params for option in param.opts}
    known |= {*re.findall(r"--[a-z-]+", exec_options.parser().format_help())}
    assert {*re.findall(r"`(--[a-z-]+)", STANDBY)} - known == set()


@pytest.mark.parametrize("code", re.findall(r"```python\n(.*?)```", STANDBY, re.DOTALL))
def test_python_examples_of_the_page_compile(code: str) -> None:
    assert compile(code, "standby.md", "exec")
