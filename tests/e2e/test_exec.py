"""Run lock, standby, cron and lifetime together: a command always runs, and never two in one slot.

Each command binds an abstract unix socket of its slot. The kernel gives that address to one process at a time, which
proves independently of the locks that the slot has one main. The long story kills mains at work and waiting standbys,
but none that still starts.
"""

from __future__ import annotations

import itertools
import os
import random
import subprocess
import sys
import time
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
    os.write(log, b"two %s %d %d %.6f\\n" % (slot.encode(), os.getpid(), os.getppid(), time.monotonic()))
    sys.exit(1)
while True:
    os.write(log, b"one %s %d %d %.6f\\n" % (slot.encode(), os.getpid(), os.getppid(), time.monotonic()))
    time.sleep(0.01)
"""


class Sighting(NamedTuple):
    word: str
    slot: int
    pid: int
    parent: int
    at: float


class Cron:
    """Starts ``exec`` at an interval, and kills one of the started processes now and then."""

    def __init__(
        self, directory: Path, slots: int, *, every_s: float, lifetime_s: float, kills_s: tuple[float, float]
    ) -> None:
        self.every_s = every_s
        self.kills = 0
        self.late_s = 0.0
        self.starts_s: list[float] = []
        self._starting: dict[int, float] = {}
        self._kills_s = kills_s
        self._log = directory / f"seen-{slots}"
        self._locks = directory / f"locks-{slots}"
        self._locks.mkdir()
        self._log.touch()
        self._slots = slots
        self._lifetime_s = lifetime_s
        self._chance = random.Random(slots)
        self._children: list[subprocess.Popen[bytes]] = []
        self._next_start_at = self._next_kill_at = time.monotonic()

    def turn(self, now: float) -> None:
        """Do what is due."""
        if now >= self._next_start_at:
            self.late_s = max(self.late_s, now - self._next_start_at)
            self._next_start_at += self.every_s
            self._children.append(self._start())
            self._starting[self._children[-1].pid] = now
        for child in self._children:
            if child.pid in self._starting and is_standby(child):
                self.starts_s.append(now - self._starting.pop(child.pid))
        if now >= self._next_kill_at:
            at_work = {sight.parent for sight in self._seen()[-100:]}
            settled = [child for child in self._children if child.pid in at_work or is_standby(child)]
            alive = [child for child in settled if child.poll() is None]
            if alive:
                self._chance.choice(alive).kill()
                self.kills += 1
            self._next_kill_at = now + self._chance.uniform(*self._kills_s)

    def stop(self) -> list[Sighting]:
        """Kill all processes, and return what their commands logged.

        ``starts_s`` has the durations of the starts, also of one that was not over yet.
        """
        killed = {child.pid for child in self._children if child.poll() is None}
        stopped_at = time.monotonic()
        for child in self._children:
            child.kill()
        for child in self._children:
            child.wait(60)
        seen = self._seen()
        for parent, began in self._starting.items():
            self.starts_s += [one.at - began for one in seen if one.parent == parent][:1] or [stopped_at - began] * (
                parent in killed
            )
        return seen

    def _seen(self) -> list[Sighting]:
        return sightings(self._log)

    def codes(self) -> set[int | None]:
        return {child.poll() for child in self._children}

    def _start(self) -> subprocess.Popen[bytes]:
        options = f"--standby --standby-for {self._lifetime_s + 3} --interval 50ms --grace 1s"
        times = f"--every {self.every_s} --lifetime {self._lifetime_s} --max-procs {self._slots}"
        return start_exec(self._locks, self._log, *options.split(), *times.split())


def start_exec(locks: Path, log: Path, *options: str) -> subprocess.Popen[bytes]:
    """Start ``health-arbiter exec`` with a command that writes sightings into the log."""
    wrapper = [sys.executable, "-m", "sidecar", "exec", "--run-lock", str(locks)]
    worker = [sys.executable, "-c", WORKER, str(log), str(locks)]
    environ = os.environ | {"PYTHONPATH": str(ROOT)}
    return subprocess.Popen([*wrapper, *options, "--", *worker], env=environ, stdin=subprocess.DEVNULL)


def sightings(log: Path) -> list[Sighting]:
    """What the commands have logged so far."""
    lines = (line.split() for line in log.read_text().splitlines())
    return [Sighting(word, int(slot), int(pid), int(parent), float(at)) for word, slot, pid, parent, at in lines]


def is_standby(child: subprocess.Popen[bytes]) -> bool:
    try:
        return Path(f"/proc/{child.pid}/comm").read_text() == "exec-standby\n"
    except OSError:
        return False


def spans(seen: list[Sighting]) -> list[tuple[float, float]]:
    """The first and last instant of each process, in order."""
    times_by_pid: dict[int, list[float]] = {}
    for one in seen:
        times_by_pid.setdefault(one.pid, []).append(one.at)
    return sorted((min(times), max(times)) for times in times_by_pid.values())


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
    seen = sightings(log)
    assert {one.word for one in seen} == {"one"}, "two mains met"
    first, second = spans(seen)
    assert first[1] < second[0]


@pytest.mark.site
@pytest.mark.timeout(300)
@pytest.mark.parametrize("pattern_s", [15.0, 120.0])
def test_a_command_always_runs_and_never_two_in_one_slot(tmp_path: Path, pattern_s: float) -> None:
    one = Cron(tmp_path, 1, every_s=2.0, lifetime_s=2.5, kills_s=(0.6, 1.6))
    three = Cron(tmp_path, 3, every_s=1.0, lifetime_s=6.5, kills_s=(2.0, 4.0))
    ends_at = time.monotonic() + pattern_s
    try:
        while (now := time.monotonic()) < ends_at:
            for cron in (one, three):
                cron.turn(now)
            time.sleep(0.01)
    finally:
        seen = {cron: cron.stop() for cron in (one, three)}
    for cron, sightings in seen.items():
        assert {sight.word for sight in sightings} == {"one"}, "two mains met in one slot"
        assert cron.kills >= pattern_s / 6
        assert cron.codes() <= {0, -9}, "a process that is not killed ends with 0"
        moments = sorted(sight.at for sight in sightings)
        gap_s = max(after - before for before, after in itertools.pairwise([*moments, ends_at]))
        assert gap_s <= cron.every_s + cron.late_s + max(cron.starts_s)
        for slot in {sight.slot for sight in sightings}:
            times_by_pid = spans([sight for sight in sightings if sight.slot == slot])
            assert all(before[1] < after[0] for before, after in itertools.pairwise(times_by_pid))
    assert {sight.slot for sight in seen[one]} == {1}
    assert {sight.slot for sight in seen[three]} == {1, 2, 3}
