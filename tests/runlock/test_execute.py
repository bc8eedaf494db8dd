"""``health-arbiter exec``: when the command runs, how it ends, the messages and the exit codes.

What a signal does to it is seen in a process of its own; the rest in this one.
"""

from __future__ import annotations

import os
import shlex
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from harness.redis_server import RedisServer
from harness.waiting import wait_for
from sidecar.cli.main import main
from sidecar.runlock import ConcurrencyLimit, LockError, supervisor
from sidecar.runlock.leases import Leases
from sidecar.runlock.supervisor import Signals

pytestmark = pytest.mark.filterwarnings("ignore:.*multi-threaded.*:DeprecationWarning")  # the threads of pytest
ROOT = Path(__file__).parents[2]

Start = Callable[..., subprocess.Popen[str]]


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Start]:
    """Starts ``exec`` with options as one text and a shell command; all of it is ended with the test."""
    started: list[subprocess.Popen[str]] = []

    def begin(options: str, command: str) -> subprocess.Popen[str]:
        lock = [] if "--redis-file" in options else ["--run-lock", str(tmp_path)]
        words = ["exec", *lock, "--grace", "20s", *shlex.split(options), "--"]
        process: subprocess.Popen[str] = subprocess.Popen(
            [sys.executable, "-m", "sidecar", *words, "/bin/sh", "-c", command],
            cwd=tmp_path,
            env=os.environ | {"PYTHONPATH": str(ROOT)},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        started.append(process)
        return process

    yield begin
    for process in started:
        if process.poll() is None:
            process.kill()
        process.communicate(timeout=90)


def ended(process: subprocess.Popen[str], timeout_s: float = 60) -> tuple[int, str, str]:
    out, error = process.communicate(timeout=timeout_s)
    return process.returncode, out, error


def runs(directory: Path) -> int:
    """The process of a command that begins with ``echo $$ > pid``."""
    pid_file = directory / "pid"
    wait_for(lambda: pid_file.exists() and pid_file.read_text(), timeout_s=60, what="it runs")
    return int(pid_file.read_text())


def is_alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    except FileNotFoundError:
        return False


PREFIX = "health-arbiter exec: "
LOOP = "while true; do sleep 0.05; done"
HOLD = f"echo $$ > pid; {LOOP}"

Run = Callable[..., int]


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Run:
    """Runs ``exec`` in this process, with options as one text and a shell command: the exit code."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(supervisor, "_CHECK_S", 0.05)

    def begin(options: str, command: str) -> int:
        words = ["--run-lock", str(tmp_path), "--grace", "60s", "--every", "1ms", *shlex.split(options)]
        return main(["exec", *words, "--", "/bin/sh", "-c", command])

    return begin


# -- lock or leave --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("command", "code"), [("exit 7", 7), ("exit 0", 0), ("kill -KILL $$", 137), ("kill -SEGV $$", 139)]
)
def test_exit_code_is_that_of_the_command(run: Run, command: str, code: int, capfd: Any) -> None:
    assert run("", command) == code
    assert capfd.readouterr() == ("", "")


def test_exit_code_is_kept_where_the_parent_ignores_the_ends_of_children(run: Run) -> None:
    before = signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    try:
        assert run("", "exit 7") == 7
    finally:
        signal.signal(signal.SIGCHLD, before)


def test_command_finds_its_slot_and_a_process_without_one_leaves_quietly(run: Run, tmp_path: Path, capfd: Any) -> None:
    with ConcurrencyLimit(tmp_path, name="exec", max_procs=3):
        assert run("--max-procs 3", "echo $HEALTH_ARBITER_SLOT of $HEALTH_ARBITER_SLOTS") == 0
        assert run("", "echo ran") == 0
    assert capfd.readouterr() == ("2 of 3\n", "")


def test_standby_that_is_not_needed_or_gives_up_leaves_quietly(run: Run, tmp_path: Path, capfd: Any) -> None:
    with ConcurrencyLimit(tmp_path, name="exec"):
        assert run("--standby --standby-for 2ms", "echo ran") == 0
        with ConcurrencyLimit(tmp_path, name="exec-standby"):
            assert run("--standby", "echo ran") == 0
    assert capfd.readouterr() == ("", "")


def test_command_starts_with_default_signals(run: Run, capfd: Any) -> None:
    run("", "grep -E 'SigBlk|SigIgn' /proc/self/status")
    assert capfd.readouterr().out == "SigBlk:\t0000000000000000\nSigIgn:\t0000000000000000\n"


@pytest.mark.process
def test_as_many_standbys_wait_as_may_and_run_once_main_has_gone(start: Start, tmp_path: Path) -> None:
    with ConcurrencyLimit(tmp_path, name="exec"):
        standbys = [start("--standbys 2", "echo ran") for _ in range(2)]
        comms = [Path(f"/proc/{standby.pid}/comm") for standby in standbys]
        wait_for(
            lambda: {comm.read_text() for comm in comms} == {"exec-standby\n"}, timeout_s=60, what="both are standbys"
        )
        assert ended(start("--standby", "echo ran")) == (0, "", "")
    assert [ended(standby) for standby in standbys] == [(0, "ran\n", "")] * 2


@pytest.mark.site
def test_signal_ends_a_standby(start: Start, tmp_path: Path) -> None:
    with ConcurrencyLimit(tmp_path, name="exec"):
        standby = start("--standby", "echo ran")
        comm = Path(f"/proc/{standby.pid}/comm")
        wait_for(lambda: comm.read_text() == "exec-standby\n", timeout_s=60, what="it waits as standby")
        standby.send_signal(signal.SIGINT)
        assert ended(standby) == (128 + signal.SIGINT, "", "")


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGQUIT])
def test_exit_code_of_a_standby_that_a_signal_ends_is_128_and_its_number(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    arriving = iter([signal.SIGUSR1, None, number])
    monkeypatch.setattr(Signals, "wait", lambda *_: next(arriving))
    with ConcurrencyLimit(tmp_path, name="exec"):
        assert main(["exec", "--run-lock", str(tmp_path), "--standby", "--", "/nonexistent"]) == 128 + number
    with ConcurrencyLimit(tmp_path, name="exec-standby") as free:
        assert free == 1


# -- the end of its time, or of its lock ------------------------------------------------------------------------------

BUSY = "--lifetime 2ms --lifetime-max 60s --busy-command 'test -e busy'"
LOST = f"{PREFIX}the lock was lost: its file was removed or replaced\n"
KILLED = f"{PREFIX}the command was still there 300ms after SIGTERM, and was killed\n"


@pytest.mark.parametrize(
    ("ends", "code", "said"), [("rm busy", 0, ""), ("rm exec.1.lock", 75, LOST)], ids=["planned", "lost"]
)
@pytest.mark.parametrize(
    ("trap", "grace", "out", "killed"),
    [("echo told; exit 3", "60s", "told\n", ""), ("", "300ms", "", KILLED)],
    ids=["SIGTERM", "SIGKILL after the grace"],
)
def test_command_whose_time_or_lock_is_over_is_ended(  # noqa: PLR0917 - a row of each table
    run: Run, tmp_path: Path, capfd: Any, ends: str, code: int, said: str, trap: str, grace: str, out: str, killed: str
) -> None:
    (tmp_path / "busy").touch()
    assert run(f"{BUSY} --grace {grace}", f"trap '{trap}' TERM; {ends}; {LOOP}") == code
    shown = capfd.readouterr()
    lines = [line for line in shown.err.splitlines(keepends=True) if line.startswith(PREFIX)]  # the shell has others
    assert (shown.out, "".join(lines)) == (out, killed + said)


def test_children_of_the_command_get_the_grace_too(run: Run, tmp_path: Path) -> None:
    (tmp_path / "busy").touch()
    child = f"trap 'sleep 0.4; touch finished; exit' TERM; rm busy; {LOOP}"
    assert run(BUSY, f"({child}) >/dev/null 2>&1 & wait") == 0
    assert (tmp_path / "finished").exists()


def test_a_busy_command_lives_on_until_it_is_not(run: Run, tmp_path: Path) -> None:
    (tmp_path / "busy").touch()
    assert run(BUSY, f"sleep 0.5; touch worked; rm busy; {LOOP}") == 0
    assert (tmp_path / "worked").exists()


@pytest.mark.parametrize("probe", ["/nonexistent", "sleep 60", "false"], ids=["cannot start", "hangs", "says no"])
def test_a_probe_that_does_not_answer_is_not_busy(run: Run, probe: str) -> None:
    assert run(f"--lifetime 200ms --lifetime-max 800ms --busy-command '{probe}'", LOOP) == 0


# -- signals --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("number", "word"),
    [
        pytest.param(signal.SIGTERM, "TERM", marks=pytest.mark.process),
        pytest.param(signal.SIGINT, "INT", marks=pytest.mark.site),
        pytest.param(signal.SIGHUP, "HUP", marks=pytest.mark.site),
    ],
)
def test_signal_is_passed_on_and_the_exit_code_is_that_of_the_command(
    start: Start, tmp_path: Path, number: int, word: str
) -> None:
    process = start("", f"trap 'exit 5' {word}; {HOLD}")
    runs(tmp_path)
    process.send_signal(number)
    assert ended(process)[0] == 5


def test_signal_is_kept_until_it_is_waited_for() -> None:
    with Signals() as signals:
        signal.pthread_kill(threading.get_ident(), signal.SIGUSR1)
        assert (signals.wait(60), signals.wait(0)) == (signal.SIGUSR1, None)


@pytest.mark.site
def test_stopped_command_is_continued_to_end(start: Start, tmp_path: Path) -> None:
    process = start("--grace 60s", f"trap 'exit 5' TERM; {HOLD}")
    os.killpg(runs(tmp_path), signal.SIGSTOP)
    process.terminate()
    assert ended(process)[0] == 5


@pytest.mark.site
def test_other_signals_are_passed_on_and_end_nothing(start: Start, tmp_path: Path) -> None:
    process = start("", f"trap 'touch told' USR1; {HOLD}")
    runs(tmp_path)
    process.send_signal(signal.SIGUSR1)
    wait_for((tmp_path / "told").exists, timeout_s=60, what="the command was told")
    assert process.poll() is None


# -- sudden ends ----------------------------------------------------------------------------------------------------


@pytest.mark.process
def test_sigkill_of_exec_kills_the_command(start: Start, tmp_path: Path) -> None:
    process = start("", HOLD)
    pid = runs(tmp_path)
    process.kill()
    wait_for(lambda: not is_alive(pid), timeout_s=60, what="the command is gone")
    wait_for(lambda: ended(start("", "echo ran"))[1], timeout_s=60, what="the lock is free")


@pytest.mark.parametrize(("option", "is_free"), [("", False), ("--no-inherit-lock", True)])
def test_child_that_outlives_the_command_keeps_the_lock_that_it_inherits(
    run: Run, tmp_path: Path, option: str, *, is_free: bool
) -> None:
    assert run(option, "sleep 60 >/dev/null 2>&1 & echo $! > pid") == 0
    try:
        with ConcurrencyLimit(tmp_path, name="exec") as slot:
            assert (slot == 1) == is_free
    finally:
        os.kill(runs(tmp_path), signal.SIGKILL)
    wait_for(lambda: run("", "exit 7") == 7, timeout_s=60, what="the lock is free without the child")


# -- locks in Redis -------------------------------------------------------------------------------------------------


@pytest.mark.site
def test_locks_of_many_machines_are_in_redis(start: Start, tmp_path: Path, redis_server: RedisServer) -> None:
    (tmp_path / "url").write_text(f"{redis_server.url}\n")
    options = "--redis-file url --name many --ttl 60s"
    # A server that has just started gives nothing away for half a ttl.
    limit = Leases(redis_server.url, name="many", ttl_s=0.5, timeout_s=10)
    wait_for(lambda: _had(limit), timeout_s=60, what="the server gives a lock away")
    limit.release()
    process = start(options, f"echo $HEALTH_ARBITER_SLOT of $HEALTH_ARBITER_SLOTS; {HOLD}")
    pid = runs(tmp_path)
    assert ended(start(options, "echo ran")) == (0, "", "")
    redis_server.cli("FLUSHALL")
    code, out, error = ended(process)
    assert (code, out, is_alive(pid)) == (75, "1 of 1\n", False)
    assert error == f"{PREFIX}the lock was lost: Redis did not renew it\n"


def _had(limit: Leases) -> bool:
    try:
        return limit.acquire() is not None
    except LockError:
        return False


def test_url_in_a_file_is_not_repeated(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "url").write_text("redis://:hunter2@:nowhere\n")
    for name, said in (("url", "this is not a Redis URL"), ("none", "cannot be read: No such file")):
        assert main(["exec", "--redis-file", str(tmp_path / name), "--", "true"]) == 2
        error = capfd.readouterr().err
        assert said in error
        assert "hunter2" not in error


# -- refusals -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        (["locks", "--", "/nonexistent"], 69, "/nonexistent: cannot be started: No such file"),
        (["no/locks", "--", "true"], 73, "the directory of the locks cannot be used"),
    ],
)
def test_what_cannot_be_run_or_locked_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: Any, *, words: list[str], code: int, said: str
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(["exec", "--run-lock", *words]) == code
    assert said in capfd.readouterr().err


def test_exec_loads_neither_the_daemon_nor_the_settings(tmp_path: Path) -> None:
    heavy = ("pydantic", "aiohttp", "asyncio", "redis", "sidecar.config")
    program = (
        "import sys; from sidecar.cli.main import main\n"
        f"main(['exec', '--run-lock', {str(tmp_path)!r}, '--', 'true'])\n"
        f"print([name for name in {heavy} if name in sys.modules])"
    )
    environ = os.environ | {"PYTHONPATH": str(ROOT)}
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, env=environ, check=True)
    assert done.stdout == "[]\n"
