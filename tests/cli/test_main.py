"""``run`` in processes of its own: the fork, the exit code, the streams, what each process loads, and how."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable

import pytest

from sidecar.cli import main as cli
from sidecar.config.load import load

# Serves by printing what it got and which heavy modules the process carries.
SERVE = """
import json, sys
from sidecar.cli.main import main

def serve(config):
    libraries = {"argparse", "pydantic", "pydantic_core", "click"}
    heavy = {*libraries, "sidecar.config.load", "sidecar.cli.application"}
    print(json.dumps({"loaded": sorted(sys.modules.keys() & heavy), "config": config}))
    return 7

sys.exit(main(sys.argv[1:], serve))
"""

# The same with the application, which reads the options, replaced: READ is what happens in the child.
STUBBED = """
import os, signal, sys, types
from sidecar.cli.main import main

def run(arguments, environ, serve):
    READ

sys.modules["sidecar.cli.application"] = types.SimpleNamespace(run=run)
sys.exit(main(["run", "--budget", "9"], lambda config: 0))
"""

# What each process of a run loads, and which of our modules build classes by dataclass, the dearest thing they do.
LOADED = """
import dataclasses, json, sys
CODE

def builds(module):
    made = [value for value in vars(module).values() if isinstance(value, type) and dataclasses.is_dataclass(value)]
    return any(value.__module__ == module.__name__ for value in made)

ours = [name for name in sys.modules if name.startswith("sidecar.")]
print(json.dumps({"all": [*sys.modules], "building": [name for name in ours if builds(sys.modules[name])]}))
"""
CHILD = "from sidecar.config.load import load; load({}, {})"
DAEMON = """
from sidecar.cli.main import import_aiohttp
import_aiohttp()
import sidecar.app.daemon, sidecar.store.redis_client
"""

SECRET = "hunter2"  # not one: the string to look for
TIMEOUT_S = 90


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


def _stubbed(read: str) -> tuple[str, str]:
    return "-c", STUBBED.replace("READ", read)


def test_run_serves_the_configuration_that_the_child_read_and_loads_neither_click_nor_pydantic() -> None:
    done = _run("-c", SERVE, "run", "--budget", "9", "--alone", ARBITER_DRAIN="2s")
    assert done.stderr == ""
    expected = load({"budget": "9", "alone": "true"}, {"ARBITER_DRAIN": "2s"})
    assert json.loads(done.stdout) == {"loaded": [], "config": json.loads(json.dumps(expected))}
    assert done.returncode == 7


def test_what_both_processes_of_a_run_need_is_loaded_before_they_part_and_nothing_else() -> None:
    child, daemon = (json.loads(_run("-c", LOADED.replace("CODE", code)).stdout) for code in (CHILD, DAEMON))
    unneeded = {"email.message", "platform"} if sys.version_info >= (3, 12) else set()
    assert {*cli.SHARED} - unneeded <= {*child["all"]} & {*daemon["all"]}
    assert {*child["building"]} & {*daemon["building"]} <= {*cli.SHARED}


@pytest.mark.parametrize(
    ("options", "environ"),
    [(("--error-limit", "0"), {}), ((), {"ARBITER_ERROR_LIMIT": "0"})],
    ids=["with options", "without"],
)
def test_problems_are_lines_on_stderr_and_exit_2(options: tuple[str, ...], environ: dict[str, str]) -> None:
    done = _run("-c", SERVE, "run", *options, ARBITER_MODE="x", ARBITER_REDIS_URL=f"redis://:{SECRET}#@h", **environ)
    assert done.stdout == ""
    assert done.returncode == 2
    assert SECRET not in done.stderr
    assert [line.split(": ")[:2] for line in done.stderr.splitlines()] == [
        ["health-arbiter", "ARBITER_MODE"],
        ["health-arbiter", "ARBITER_ERROR_LIMIT"],
        ["health-arbiter", "ARBITER_REDIS_URL"],
    ]


@pytest.mark.parametrize(
    ("read", "complaint"),
    [
        pytest.param("os.kill(os.getpid(), signal.SIGKILL)", "ended early (exit code -9)", id="killed"),
        pytest.param("os._exit(0)", "ended early (exit code 0)", id="empty answer"),
        pytest.param(f"raise RuntimeError('{SECRET}')", "failed: RuntimeError", id="bug"),
    ],
)
def test_a_child_that_crashes_exits_70_with_one_line(read: str, complaint: str) -> None:
    done = _run(*_stubbed(read))
    assert done.returncode == os.EX_SOFTWARE
    assert done.stderr.rstrip().endswith(complaint)
    assert sum(line.startswith("health-arbiter: ") for line in done.stderr.splitlines()) == 1
    assert SECRET not in done.stderr.replace(f"raise RuntimeError('{SECRET}')", "")


@pytest.mark.parametrize("send", [os.kill, os.killpg], ids=["to the parent", "to both"])
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_while_starting_ends_quietly(number: signal.Signals, send: Callable[[int, int], None]) -> None:
    # The child says that it runs, waits for us to close its input, and answers a parent that is gone.
    read = "print('reading', flush=True); sys.stdin.read(); return serve({'a': 1})"
    with subprocess.Popen(
        [sys.executable, *_stubbed(read)],
        env=_environ({}),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "reading\n"
        send(process.pid, number)
        assert process.wait(TIMEOUT_S) == 0
        assert process.communicate(timeout=TIMEOUT_S) == ("", "")


def test_it_starts_under_a_parent_that_ignores_its_children() -> None:
    done = _run("-c", "import signal\nsignal.signal(signal.SIGCHLD, signal.SIG_IGN)\n" + SERVE, "run", "--budget", "0")
    assert done.returncode == 2
    assert "Traceback" not in done.stderr


PROBE = """
import json, os, sys
from sidecar.cli import main as cli
if sys.argv[1:]:
    sys.modules["aiohttp"] = None
before = dict(os.environ)
try:
    cli.import_aiohttp()
except ImportError:
    print(json.dumps({"same": dict(os.environ) == before}))
    sys.exit()
from aiohttp import connector
print(json.dumps({
    "same": dict(os.environ) == before,
    "authorities": connector._SSL_CONTEXT_VERIFIED.cert_store_stats()["x509_ca"],
    "cpp": "libstdc++" in open("/proc/self/maps").read(),
}))
"""
MEANWHILE = ("SSL_CERT_FILE", "SSL_CERT_DIR", "FROZENLIST_NO_EXTENSIONS")
GIVEN = [
    {},
    {"SSL_CERT_FILE": "/etc/company/ca.pem"},
    {"SSL_CERT_FILE": "", "SSL_CERT_DIR": "/a:/b", "FROZENLIST_NO_EXTENSIONS": ""},
]


def _probe(given: dict[str, str], *arguments: str) -> object:
    inherited = {name: value for name, value in os.environ.items() if name not in MEANWHILE}
    command = [sys.executable, "-c", PROBE, *arguments]
    return json.loads(
        subprocess.run(command, env=inherited | given, capture_output=True, timeout=90, check=True).stdout
    )


@pytest.mark.parametrize("given", GIVEN, ids=["none", "file", "all"])
def test_aiohttp_comes_without_authorities_and_cpp_and_the_environment_is_as_before(given: dict[str, str]) -> None:
    assert _probe(given) == {"same": True, "authorities": 0, "cpp": False}


def test_environment_is_as_before_when_the_import_fails() -> None:
    assert _probe(GIVEN[1], "fails") == {"same": True}
