"""Every test runs the command in a process of its own: what is tried is the fork, the exit code and the streams."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys

import pytest

from sidecar import __version__
from sidecar.cli import main as cli
from sidecar.config.settings import load, table

# Serves by printing what it got and which heavy modules the process carries.
SERVE = """
import json, sys
from sidecar.cli.main import main

def serve(settings):
    libraries = {"argparse", "pydantic", "pydantic_core", "pydantic_settings", "click", "rich"}
    heavy = {*libraries, "sidecar.config.settings", "sidecar.cli.exit_codes"}
    loaded = sorted(sys.modules.keys() & heavy)
    print(json.dumps({"loaded": loaded, "settings": settings._asdict()}))
    try:
        settings.budget = 1000
    except AttributeError:
        return 7

sys.exit(main(sys.argv[1:], serve))
"""

# The same with the settings' module replaced: LOAD is what happens in the child.
STUBBED = """
import os, signal, sys, types
from sidecar.cli.main import main

class Told(Exception):
    problems = ()

def load(flags, environ):
    LOAD

sys.modules["sidecar.config.settings"] = types.SimpleNamespace(table=list, load=load, SettingsError=Told)
sys.modules["sidecar.config.sources"] = types.SimpleNamespace(former=str, nearest=str)
sys.exit(main([], lambda settings: 0))
"""

# What each process of a run loads, and which rooms of ours build classes by dataclass, the dearest thing they do.
LOADED = """
import dataclasses, json, sys
CODE

def builds(module):
    made = [value for value in vars(module).values() if isinstance(value, type) and dataclasses.is_dataclass(value)]
    return any(value.__module__ == module.__name__ for value in made)

ours = [name for name in sys.modules if name.startswith("sidecar.")]
print(json.dumps({"all": [*sys.modules], "building": [name for name in ours if builds(sys.modules[name])]}))
"""
CHILD = "from sidecar.cli import flags; from sidecar.config import settings"
DAEMON = (
    "from sidecar.app import lean_import; lean_import.import_aiohttp(); import sidecar.app.daemon, sidecar.store.redis"
)

SECRET = "hunter2"  # not one: the string to look for
TIMEOUT_S = 30


def _environ(more: dict[str, str]) -> dict[str, str]:
    ours = {name: value for name, value in os.environ.items() if not name.startswith(("ARBITER_", "NOMAD_"))}
    return ours | more


def _run(*command: str, **environ: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, *command],
        env=_environ(environ),
        capture_output=True,
        text=True,
        timeout=TIMEOUT_S,
        check=False,
    )


def _arbiter(*arguments: str, **environ: str) -> subprocess.CompletedProcess[str]:
    return _run("-m", "sidecar", *arguments, **environ)


def _stubbed(load: str) -> tuple[str, str]:
    return "-c", STUBBED.replace("LOAD", load)


@pytest.mark.parametrize("command", [(), ("run",)], ids=["no command", "run"])
def test_run_serves_the_settings_that_the_child_read(command: tuple[str, ...]) -> None:
    done = _run("-c", SERVE, *command, "--budget", "9", "--check-on-report=false", ARBITER_DRAIN="2s")
    assert done.stderr == ""
    expected = load({"budget": "9", "check_on_report": "false"}, {"ARBITER_DRAIN": "2s"})
    assert json.loads(done.stdout)["settings"] == expected.model_dump()
    assert done.returncode == 7  # what serve returned, having found the settings frozen


def test_the_process_that_serves_never_loads_pydantic_or_what_draws_tables() -> None:
    assert json.loads(_run("-c", SERVE).stdout)["loaded"] == []


def test_what_both_processes_of_a_run_need_is_loaded_before_they_part_and_nothing_else() -> None:
    child, daemon = (json.loads(_run("-c", LOADED.replace("CODE", code)).stdout) for code in (CHILD, DAEMON))
    assert {*cli.SHARED} <= {*child["all"]} & {*daemon["all"]}
    assert {*child["building"]} & {*daemon["building"]} <= {*cli.SHARED}


def test_problems_are_lines_on_stderr_and_exit_2() -> None:
    done = _run("-c", SERVE, "--error-limit", "0", ARBITER_MODE="x", ARBITER_REDIS_URL=f"redis://:{SECRET}#@h")
    assert done.stdout == ""
    assert done.returncode == 2
    assert done.stderr.splitlines() == [
        "health-arbiter: ARBITER_MODE: 'x' from env must be 'enforce' or 'shadow'",
        "health-arbiter: ARBITER_ERROR_LIMIT: '0' from flag must be at least 1",
        (
            "health-arbiter: ARBITER_REDIS_URL: the value from env is not a Redis URL: write redis://host:6379/0, "
            "rediss://... or unix:///path, with reserved characters of a password percent-encoded"
        ),
    ]


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (["--eror-limit", "5"], "--eror-limit: unknown flag; did you mean --error-limit?"),
        (["--eror-limit=5"], "--eror-limit: unknown flag; did you mean --error-limit?"),
        (["--error_limit", "5"], "--error_limit: unknown flag; did you mean --error-limit?"),
        (["--error", "5"], "--error: unknown flag; did you mean"),
        (["--earn", "on"], "--earn: this setting is called --refund since 0.2\n"),
        (["--earn-max=30"], "--earn-max: this setting is called --refund-max since 0.2\n"),
        (["--useless-after", "0"], "--useless-after: replaced by --trial, which limits culls for one cause"),
        (["--xyzzy"], "--xyzzy: unknown flag\n"),
        (["--redis-ulr", f"redis://:{SECRET}@h"], "--redis-ulr: unknown flag; did you mean --redis-url?"),
        ([f"--redis-url:redis://:{SECRET}@h"], "--redis-url: unknown flag"),
        ([f"redis://:{SECRET}@h"], "a word that is no flag; first comes the command"),
        (["--drain", "1s", "check-config"], "a word that is no flag; first comes the command"),
        (["chek-config"], "a word that is no flag; did you mean check-config?"),
        (["--drain"], "argument --drain: expected one argument"),
    ],
)
@pytest.mark.parametrize("command", ["run", "check-config"])
def test_a_command_line_that_cannot_be_read_exits_2_without_a_secret(
    command: str, arguments: list[str], complaint: str
) -> None:
    done = _run("-c", SERVE, *([] if arguments == ["chek-config"] else [command]), *arguments)
    assert done.returncode == 2
    assert done.stderr.startswith(f"health-arbiter: {complaint}")
    assert done.stderr.count("\n") == 1
    assert SECRET not in done.stdout + done.stderr


@pytest.mark.parametrize(
    ("flags", "lines"),
    [
        (["--run-lock", "/l", "--lifetime", "5m"], ["ARBITER_RUN_LIFETIME=5m", "ARBITER_LIFETIME=0s"]),
        (["--run-lock=/l", "--lifetime=5m", "--standby"], ["ARBITER_RUN_LIFETIME=5m", "ARBITER_STANDBY=true"]),
        (["--standby", "--run-lock", "/l"], ["ARBITER_STANDBY=true", "ARBITER_RUN_LOCK=/l"]),
        (["--standby", "false", "--never-last=false"], ["ARBITER_STANDBY=false", "ARBITER_NEVER_LAST=false"]),
        (["--lifetime", "5h", "--redis-url", "redis://h"], ["ARBITER_RUN_LIFETIME=0s", "ARBITER_LIFETIME=5h"]),
        (
            ["--run-lock", "/l", "--lifetime", "5h", "--run-lifetime", "5m", "--redis-url", "redis://h"],
            ["ARBITER_RUN_LIFETIME=5m", "ARBITER_LIFETIME=5h"],
        ),
    ],
    ids=["beside a run lock", "with equals", "switch first", "switch with a value", "the app's", "both"],
)
def test_lifetime_is_the_sidecars_own_beside_a_run_lock_and_a_switch_needs_no_value(
    flags: list[str], lines: list[str]
) -> None:
    done = _arbiter("check-config", *flags)
    assert done.stderr == ""
    assert {line.partition("  #")[0] for line in done.stdout.splitlines()} >= set(lines)


def test_a_negative_number_is_a_value_and_not_a_flag() -> None:
    done = _arbiter("check-config", "--grace", "-5")
    assert done.stderr == "health-arbiter: ARBITER_GRACE: '-5' from flag must not be negative\n"


def test_check_config_prints_the_effective_settings_without_secrets() -> None:
    url = f"redis://user:{SECRET}@host/0?password={SECRET}"
    done = _arbiter("check-config", "--preset", "classdojo", ARBITER_REDIS_URL=url, NOMAD_ALLOC_ID="0a1b")
    assert done.returncode == 0
    assert done.stderr == ""
    assert SECRET not in done.stdout
    lines = done.stdout.splitlines()
    assert len(lines) == len(table())
    assert "ARBITER_REDIS_URL=redis://user:***@host/0?password=***  # from env" in lines
    assert "ARBITER_PRESET=classdojo  # from flag" in lines
    assert "ARBITER_BUDGET_STRATEGY=fixed  # from preset" in lines
    assert "ARBITER_INSTANCE=0a1b  # from nomad" in lines


def test_check_config_prints_the_same_as_json() -> None:
    url = f"redis://user:{SECRET}@host/0"
    flags, environ = ["--drain", "20s"], {"ARBITER_REDIS_URL": url}
    done = _arbiter("check-config", *flags, "--json", **environ)
    assert (done.returncode, done.stderr) == (0, "")
    assert SECRET not in done.stdout
    told = json.loads(done.stdout)
    assert (told["ARBITER_DRAIN"], told["ARBITER_REDIS_URL"]) == (
        {"value": "20s", "from": "flag"},
        {"value": "redis://user:***@host/0", "from": "env"},
    )
    lines = _arbiter("check-config", *flags, **environ).stdout.splitlines()
    assert [f"{name}={of['value']}  # from {of['from']}" for name, of in told.items()] == lines


def test_check_config_exits_2_on_every_problem_at_once() -> None:
    done = _arbiter("check-config", "--settle", "60s", ARBITER_LOCAL_LISTEN="off", ARBITER_BUGDET="1")
    assert done.returncode == 2
    assert done.stdout == ""
    assert [line.split(": ")[:2] for line in done.stderr.splitlines()] == [
        ["health-arbiter", "ARBITER_BUGDET"],
        ["health-arbiter", "ARBITER_SETTLE"],
        ["health-arbiter", "ARBITER_LOCAL_LISTEN"],
    ]


def test_version_is_told_and_exits_0() -> None:
    done = _arbiter("--version")
    assert (done.returncode, done.stdout, done.stderr) == (0, f"health-arbiter {__version__}\n", "")


@pytest.mark.parametrize("arguments", [["--help"], ["run", "-h"], ["check-config", "--help"]])
def test_help_names_every_flag_and_exits_0(arguments: list[str]) -> None:
    done = _arbiter(*arguments)
    assert (done.returncode, done.stderr) == (0, "")
    for name, _, _ in table():
        flag = f"--{name.removeprefix('ARBITER_').lower().replace('_', '-')}"
        assert f"{flag} VALUE" in done.stdout or f"{flag} [VALUE]" in done.stdout


def test_help_lists_every_command() -> None:
    told = _arbiter("--help").stdout
    for name in cli.COMMANDS:
        assert f"\n{name} " in told


@pytest.mark.parametrize("name", cli.FOR_PEOPLE)
def test_command_of_a_person_explains_itself_and_its_exit_codes(name: str) -> None:
    done = _arbiter(name, "--help")
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith(f"Usage: health-arbiter {name} [OPTIONS]")
    assert "Exit codes: 0 " in done.stdout
    assert " 2 " in done.stdout


@pytest.mark.parametrize(
    ("load", "complaint"),
    [
        pytest.param("os.kill(os.getpid(), signal.SIGKILL)", "ended early (exit code -9)", id="killed"),
        pytest.param("os._exit(0)", "ended early (exit code 0)", id="empty answer"),
        pytest.param(f"raise RuntimeError('{SECRET}')", "failed: RuntimeError", id="bug"),
    ],
)
def test_a_child_that_crashes_exits_70_with_one_line(load: str, complaint: str) -> None:
    done = _run(*_stubbed(load))
    assert done.returncode == os.EX_SOFTWARE
    assert done.stderr.rstrip().endswith(complaint)
    assert sum(line.startswith("health-arbiter: ") for line in done.stderr.splitlines()) == 1
    assert SECRET not in done.stderr.replace(f"raise RuntimeError('{SECRET}')", "")


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_while_starting_ends_quietly(number: signal.Signals) -> None:
    # The child says that it runs, waits for us to close its input, and answers a parent that is gone.
    load = "print('reading', flush=True); sys.stdin.read(); return types.SimpleNamespace(model_dump=lambda: {'a': 1})"
    with subprocess.Popen(
        [sys.executable, *_stubbed(load)],
        env=_environ({}),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "reading\n"
        process.send_signal(number)
        assert process.wait(TIMEOUT_S) == 0
        assert process.communicate(timeout=TIMEOUT_S) == ("", "")


def test_it_starts_under_a_parent_that_ignores_its_children() -> None:
    done = _run("-c", "import signal\nsignal.signal(signal.SIGCHLD, signal.SIG_IGN)\n" + SERVE, "--budget", "0")
    assert done.returncode == 2
    assert "Traceback" not in done.stderr
