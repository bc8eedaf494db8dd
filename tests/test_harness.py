"""The harness: waiting, ports, programs, child processes, and the servers that the fixtures start."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from harness.child import Child, NotReadyError
from harness.children import Children, SharedServers
from harness.waiting import eventually, wait_for

if TYPE_CHECKING:
    from collections.abc import Callable

    from harness.redis_server import RedisServer

TESTS = Path(__file__).parent
IDLE = "import os, signal; print('ready', os.getpid()); signal.pause()"
STUBBORN = f"import signal; signal.signal(signal.SIGTERM, signal.SIG_IGN); {IDLE}"


class Script(Child):
    """A few lines of Python that are ready once they have printed their process id."""

    def __init__(self, directory: Path, lines: str) -> None:
        super().__init__("script", directory)
        self._lines = lines

    def _command(self) -> list[str]:
        return [sys.executable, "-u", "-c", self._lines]

    def _is_ready(self) -> bool:
        return f"ready {self.pid}\n" in self.output()


async def test_waits_ignore_closed_listeners_and_say_at_their_deadline_what_was_awaited_and_seen_last() -> None:
    outcomes = iter([ConnectionRefusedError(), TimeoutError(), None, 0, 7])

    def connect() -> Any:
        if isinstance(outcome := next(outcomes), OSError):
            raise outcome
        return outcome

    assert wait_for(connect, timeout_s=60, what="a number") == 7
    with pytest.raises(AssertionError, match=r"not within 0\.02 s: a token \(last seen: 0\)"):
        wait_for(lambda: 0, timeout_s=0.02, what="a token")
    with pytest.raises(AssertionError, match=r"not within 0\.02 s: a token"):
        await eventually(lambda: 0, timeout_s=0.02, what="a token")


# -- children ---------------------------------------------------------------------------------------------------------


def test_child_that_ends_early_is_reported_with_its_output(tmp_path: Path) -> None:
    with pytest.raises(NotReadyError, match=r"ended with 3 before it was ready\n(.*\n)*bad password"):
        Script(tmp_path, "print('bad password'); raise SystemExit(3)").start()


@pytest.mark.parametrize(
    ("environ", "outcome", "output"),
    [
        ({"PATH": "/nowhere"}, "skipped", "redis-server is not installed"),
        ({"PATH": "/nowhere", "CI": "true"}, "error", "redis-server is not installed"),
        pytest.param({"PATH": os.environ["PATH"]}, "failed", "output of redis ---", marks=pytest.mark.redis),
    ],
    ids=["no server", "no server under CI", "failure with a server"],
)
def test_outcome_of_a_failing_test_with_a_server(
    environ: dict[str, str], outcome: str, output: str, tmp_path: Path
) -> None:
    test = tmp_path / "test_inner.py"
    test.write_text("def test_inner(redis_server):\n    assert False\n")
    command = [sys.executable, "-m", "pytest", "-ra", "-p", "conftest", "-p", "no:asyncio", str(test)]
    done = subprocess.run(
        [*command, f"--rootdir={tmp_path}", "-c", os.devnull],
        env={"PYTHONPATH": str(TESTS), **environ},
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
    )
    assert f" 1 {outcome}" in done.stdout
    assert output in done.stdout


# -- servers ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "leave_it",
    [
        lambda server: server.cli("SET", "colour", "blue"),
        lambda server: server.cli("CONFIG", "SET", "maxmemory", "1"),
        lambda server: server.cli("CONFIG", "SET", "requirepass", "secret"),
        lambda server: server.cli("ACL", "SETUSER", "app", "on", "nopass", "+@all"),
        lambda server: server.cli("REPLICAOF", "127.0.0.1", "1"),
        lambda server: server.stop(),
        lambda server: server.kill(),
        lambda server: server.pause(),
        lambda server: server.advance(60),
    ],
    ids=["data", "config", "password", "user", "replica", "stopped", "killed", "paused", "time"],
)
def test_shared_redis_is_new_for_the_next_test(
    leave_it: Callable[[RedisServer], object], run_dir: Path, children: Children
) -> None:
    servers = SharedServers(run_dir, children)
    leave_it(servers.redis("one", faketime=True))
    server = servers.redis("one", faketime=True)
    assert server.cli("SET", "shape", "round")
    assert server.cli("KEYS", "*") == ["shape"]
    assert (server.cli("ACL", "USERS"), server.cli("CONFIG", "GET", "maxmemory")) == (["default"], {"maxmemory": "0"})
    assert server.cli("TIME")[0] == 1_700_000_000


def test_redis_clock_is_set_to_the_microsecond_and_stands_still(faketime_redis: RedisServer) -> None:
    for moment in (1_700_000_600.0, 1_699_999_999.999_999, 1_700_000_000.0, 1_700_000_000.000_001, 1_893_456_000.25):
        faketime_redis.set_time(moment)
        seconds, micros = faketime_redis.cli("TIME")
        assert seconds * 1_000_000 + micros == round(moment * 1_000_000)
        assert faketime_redis.cli("EVAL", "return redis.call('TIME')", 0) == [str(seconds), str(micros)]
    assert [faketime_redis.cli("TIME") for _ in range(20)] == [(seconds, micros)] * 20
