"""Run lock, standby, cron and lifetime together: a command always runs, and never two in one slot.

Each command binds an abstract unix socket of its slot. The kernel gives that address to one process at a time, which
proves independently of the locks that the slot has one main.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Final, NamedTuple

import pytest

from harness.waiting import wait_for

pytestmark = pytest.mark.process

ROOT: Final = Path(__file__).parents[2]

WORKER: Final = """
import os, socket, sys, time
log = os.open(sys.argv[1], os.O_WRONLY | os.O_APPEND | os.O_CREAT)
slot = os.environ["HEALTH_ARBITER_SLOT"]
only = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
try:
    only.bind(f"\\0{sys.argv[2]}.{slot}")
except OSError:
    os.write(log, b"two %s %d\\n" % (slot.encode(), os.getppid()))
    sys.exit(1)
while True:
    os.write(log, b"one %s %d\\n" % (slot.encode(), os.getppid()))
    time.sleep(0.01)
"""


class Sighting(NamedTuple):
    word: str
    slot: int
    parent: int


def start_exec(locks: Path, log: Path, *options: str) -> subprocess.Popen[bytes]:
    """Start ``health-arbiter exec`` with a command that writes sightings into the log."""
    wrapper = [sys.executable, "-m", "sidecar", "exec", "--run-lock", str(locks)]
    worker = [sys.executable, "-c", WORKER, str(log), str(locks)]
    environ = os.environ | {"PYTHONPATH": str(ROOT)}
    return subprocess.Popen([*wrapper, *options, "--", *worker], env=environ, stdin=subprocess.DEVNULL)


def sightings(log: Path) -> list[Sighting]:
    """What the commands have logged so far."""
    lines = (line.split() for line in log.read_text().splitlines())
    return [Sighting(word, int(slot), int(parent)) for word, slot, parent in lines]


def is_standby(child: subprocess.Popen[bytes]) -> bool:
    try:
        return Path(f"/proc/{child.pid}/comm").read_text() == "exec-standby\n"
    except OSError:
        return False


def test_standby_runs_the_command_when_the_main_is_killed_and_never_two(tmp_path: Path) -> None:
    log, locks = tmp_path / "seen", tmp_path / "locks"
    log.touch()
    started: list[subprocess.Popen[bytes]] = []
    try:
        for number in range(2):
            started.append(start_exec(locks, log, "--standby", "--interval", "50ms", "--grace", "1s"))
            wait_for(lambda number=number: is_standby(started[number]) or number == 0, timeout_s=60, what="it waits")  # type: ignore[misc]
            wait_for(lambda: sightings(log), timeout_s=60, what="the first command runs")
        main, standby = started
        assert {one.parent for one in sightings(log)} == {main.pid}
        main.kill()
        wait_for(lambda: sightings(log)[-1].parent == standby.pid, timeout_s=60, what="the standby runs the command")
        standby.terminate()
        standby.wait(60)
    finally:
        for child in started:
            child.kill()
            child.wait(60)
    assert {one.word for one in sightings(log)} == {"one"}, "two mains met"
