"""The harness keeps its own promises: what it starts is real, and what it ends has ended."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from harness.binaries import find, require
from harness.child import Child, NotReadyError
from harness.ports import eventually, free_ports, is_open, wait_for
from harness.starting import Children

TESTS = Path(__file__).parent


class Script(Child):
    """A few lines of Python that are ready once they have printed their process id."""

    def __init__(self, directory: Path, lines: str, ports: list[int] | None = None) -> None:
        super().__init__("script", directory)
        self._lines = lines
        self._ports = iter(ports or ())
        self.port = 0

    def _command(self) -> list[str]:
        return [sys.executable, "-u", "-c", self._lines, str(self.port)]

    def _choose_place(self) -> None:
        self.port = next(self._ports, 0)

    def _is_ready(self) -> bool:
        return f"ready {self.pid}\n" in self.output()


IDLE = "import os, signal; print('ready', os.getpid()); signal.pause()"
DEAF = f"import signal; signal.signal(signal.SIGTERM, signal.SIG_IGN); {IDLE}"
BINDS = f"import socket, sys; held = socket.create_server(('127.0.0.1', int(sys.argv[1]))); {IDLE}"


def state_of(pid: int) -> str:
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]


# Waiting


def test_waiting_gives_back_the_first_true_value() -> None:
    values = iter([None, 0, 7, 8])

    assert wait_for(lambda: next(values), timeout_s=5, what="a number") == 7


def test_waiting_in_vain_says_for_what_and_what_was_seen_last() -> None:
    with pytest.raises(AssertionError, match=r"not within 0\.02 s: a token \(last seen: 0\)"):
        wait_for(lambda: 0, timeout_s=0.02, what="a token")


def test_a_closed_door_counts_as_not_yet() -> None:
    outcomes = iter([ConnectionRefusedError(), TimeoutError(), None])

    def knock() -> bool:
        if outcome := next(outcomes):
            raise outcome
        return True

    assert wait_for(knock, timeout_s=5, what="an open door")


async def test_waiting_within_a_loop_takes_functions_and_coroutines() -> None:
    plain, awaited = iter([0, 3]), iter([0, 4])

    async def ask() -> int:
        return next(awaited)

    assert await eventually(lambda: next(plain), timeout_s=5, what="a number") == 3
    assert await eventually(ask, timeout_s=5, what="a number") == 4


async def test_waiting_in_vain_within_a_loop_says_so_too() -> None:
    with pytest.raises(AssertionError, match=r"not within 0\.02 s: a token"):
        await eventually(lambda: 0, timeout_s=0.02, what="a token")


# Ports and programs


def test_free_ports_are_different_and_can_be_bound() -> None:
    ports = free_ports(20)

    assert len(set(ports)) == 20
    with socket.create_server(("127.0.0.1", ports[0])):
        assert is_open(ports[0])
    assert not is_open(ports[0])


def test_a_program_outside_the_path_of_a_plain_user_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "/nowhere")

    assert find("ldconfig") in {"/sbin/ldconfig", "/usr/sbin/ldconfig"}


def test_a_missing_program_skips_the_test(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("CI", raising=False)

    with pytest.raises(pytest.skip.Exception, match="no-such-server is not installed"):
        require("no-such-server")


def test_a_missing_program_fails_the_test_under_ci(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CI", "true")

    with pytest.raises(pytest.fail.Exception, match="no-such-server is not installed"):
        require("no-such-server")


# Children


def test_a_child_that_ends_early_is_reported_with_its_output(tmp_path: Path) -> None:
    script = Script(tmp_path, "print('bad password'); raise SystemExit(3)")

    with pytest.raises(NotReadyError, match=r"ended with 3 before it was ready\n(.*\n)*bad password"):
        script.start()


def test_a_child_that_does_not_answer_is_reported_with_its_output(tmp_path: Path, children: Children) -> None:
    script = children.adopt(Script(tmp_path, "import signal; print('loading'); signal.pause()"))
    script.launch()
    wait_for(lambda: "loading" in script.output(), timeout_s=10, what="the script runs")

    with pytest.raises(NotReadyError, match=r"script is ready .*\n(.*\n)*loading"):
        script.ready(timeout_s=0.05)


def test_a_killed_child_is_gone_and_tells_the_signal(tmp_path: Path) -> None:
    script = Script(tmp_path, IDLE).start()

    script.kill()

    assert not script.alive
    assert script.wait() == -signal.SIGKILL


def test_a_paused_child_stands_still_until_it_is_resumed(tmp_path: Path, children: Children) -> None:
    script = children.adopt(Script(tmp_path, IDLE)).start()

    script.pause()
    assert state_of(script.pid) == "T"

    script.resume()
    wait_for(lambda: state_of(script.pid) == "S", timeout_s=20, what="the script goes on")


def test_a_paused_child_can_be_stopped(tmp_path: Path) -> None:
    script = Script(tmp_path, IDLE).start()
    script.pause()

    script.stop()

    assert script.wait() == -signal.SIGTERM


def test_a_child_that_ignores_the_request_to_stop_is_killed(tmp_path: Path) -> None:
    script = Script(tmp_path, DEAF).start()

    script.stop(timeout_s=0.05)

    assert script.wait() == -signal.SIGKILL


def test_a_child_whose_port_was_taken_meanwhile_starts_at_another(tmp_path: Path, children: Children) -> None:
    taken, free = free_ports(2)

    with socket.create_server(("127.0.0.1", taken)):
        script = children.adopt(Script(tmp_path, BINDS, [taken, free])).start()

    assert script.port == free


def test_a_child_that_others_know_does_not_move(tmp_path: Path) -> None:
    first, other = free_ports(2)
    script = Script(tmp_path, BINDS, [first, other]).start()
    script.kill()

    with socket.create_server(("127.0.0.1", first)), pytest.raises(NotReadyError, match="Address already in use"):
        script.start()


@pytest.mark.parametrize(
    ("env", "outcome"),
    [({}, "skipped"), ({"CI": "true"}, "error")],
    ids=["by hand", "under CI"],
)
def test_without_its_server_a_test(env: dict[str, str], outcome: str, tmp_path: Path) -> None:
    test = tmp_path / "test_inner.py"
    test.write_text("def test_inner(redis_server):\n    assert False\n")

    said = run_pytest(test, {"PATH": "/nowhere", **env})

    assert f" 1 {outcome}" in said
    assert "redis-server is not installed" in said


@pytest.mark.redis
def test_below_a_failure_stands_what_the_servers_wrote(tmp_path: Path) -> None:
    test = tmp_path / "test_inner.py"
    test.write_text("def test_inner(redis_server):\n    assert False\n")

    said = run_pytest(test, {"PATH": os.environ["PATH"]})

    assert " 1 failed" in said
    assert "output of redis ---" in said
    assert "eady to accept connections" in said


def run_pytest(test: Path, env: dict[str, str]) -> str:
    """Run one file under this suite's conftest and give back what pytest printed."""
    command = [sys.executable, "-m", "pytest", "-ra", "-p", "conftest", "-p", "no:asyncio", str(test)]
    done = subprocess.run(
        [*command, f"--rootdir={test.parent}", "-c", os.devnull],
        env={"PYTHONPATH": str(TESTS), **env},
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
    )
    return done.stdout + done.stderr
