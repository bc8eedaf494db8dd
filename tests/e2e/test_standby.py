"""Run locks: a sidecar and its standby under polls, and any command under ``exec`` with its standby.

However the main ends, the standby goes on: without a wrong answer, and never two at once.
"""

from __future__ import annotations

import http.client
import os
import signal
import subprocess
import sys
import threading
import time
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple, Self

import pytest

from harness.main_and_standby import MainAndStandby
from harness.waiting import wait_for

if TYPE_CHECKING:
    from harness.children import StartSidecar
    from harness.redis_server import RedisServer
    from harness.sidecar import Setting, Sidecar

pytestmark = pytest.mark.process
SLOWEST_S: Final = 5.0
"""A bound for a busy machine; the benchmark has the real figures."""

LOST: Final = "lost"
"""What may happen to a poll while nobody listens."""

UP: Final = "200 up\n"
LINE: Final = "up ready 100%\n"
MANY: Final[dict[str, Setting]] = {"error_limit": 1_000_000, "error_window": "1h"}
FAST: Final[dict[str, Setting]] = {"settle": "0s", "drain": "0s", "check_interval": "500ms"}


class Polls:
    """Polls the health of a sidecar, each time on a new connection, while the context lasts."""

    def __init__(self, one: Sidecar) -> None:
        self.outcomes: list[tuple[float, str]] = []
        self._address = one.address("public")
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._run)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join()

    def seen(self) -> set[str]:
        return {outcome for _, outcome in self.outcomes}

    def gap_s(self, at: float) -> float:
        """The seconds from a signal to the first answer of the next main."""
        lost_at = next((ended for ended, outcome in self.outcomes if ended > at and outcome == LOST), at)
        return next(ended for ended, outcome in self.outcomes if ended > lost_at and outcome != LOST) - at

    def _run(self) -> None:
        while not self._over.wait(0.001):
            outcome = self._poll()
            self.outcomes.append((time.monotonic(), outcome))

    def _poll(self) -> str:
        with closing(http.client.HTTPConnection(*self._address, timeout=SLOWEST_S)) as connection:
            try:
                connection.request("GET", "/health", headers={"Connection": "close"})
                response = connection.getresponse()
                return f"{response.status} {response.read().decode()}"
            except (OSError, http.client.HTTPException):
                return LOST


def test_standby_goes_on_after_each_kill_of_the_main(sidecar: StartSidecar, run_dir: Path) -> None:
    pair, at = MainAndStandby(sidecar.unstarted, run_dir, **MANY).start(), []
    with Polls(pair.main) as polls:
        for _ in range(3):
            at.append(pair.end_main(signal.SIGKILL))
            assert pair.main.agent_line() == LINE
            pair.main.post_error()
            pair.await_standby()
    assert polls.seen() <= {UP, LOST}
    assert max(map(polls.gap_s, at)) < SLOWEST_S


def test_culled_container_stays_down_whichever_way_its_mains_end(sidecar: StartSidecar, run_dir: Path) -> None:
    pair = MainAndStandby(sidecar.unstarted, run_dir, **FAST).start()
    pair.main.post_error(5, app_start="boot-1", kind="redis")
    wait_for(lambda: pair.main.health()[0] == 503, timeout_s=60, what="it is culled")
    with Polls(pair.main) as polls:
        for number in (signal.SIGKILL, signal.SIGTERM):
            pair.end_main(number)
            assert pair.main.verdict()["latched"] is True
            assert pair.main.agent_line().startswith("fail #culled")
            pair.await_standby()
    assert {outcome.partition(":")[0] for outcome in polls.seen()} <= {"503 down", LOST}
    pair.main.post_error(1, app_start="boot-2")
    wait_for(lambda: pair.main.health()[0] == 200, timeout_s=60, what="the next incarnation is up")
    (file,) = (run_dir / "lock").glob("*.json")
    wait_for(lambda: '"latch": null' in file.read_text(), timeout_s=60, what="that is on disk")
    pair.end_main(signal.SIGKILL)
    assert pair.main.health()[0] == 200
    assert pair.main.verdict()["app_start"] == "boot-2"


def test_main_with_a_standby_ends_at_once_and_neither_balancers_nor_the_fleet_see_an_end(
    sidecar: StartSidecar, run_dir: Path, redis_server: RedisServer
) -> None:
    slow: dict[str, Setting] = {"beat_interval": "30s", "redis_timeout": "10s", "check_interval": "20s"}
    settings: dict[str, Setting] = {**slow, "stop_drain": "10m", "redis_url": redis_server.url}
    pair = MainAndStandby(sidecar.unstarted, run_dir, **settings).start()
    wait_for(lambda: pair.main.metrics().get("arbiter_fleet_alive") == 1, timeout_s=60, what="it is in the fleet")
    with Polls(pair.main) as polls:
        pair.end_main(signal.SIGTERM)
        assert redis_server.cli("ZSCORE", "{ha:default/app}:alive", "a") is not None
        assert pair.main.agent_line() == LINE
    assert polls.seen() <= {UP, LOST}
    wait_for(lambda: pair.main.metrics().get("arbiter_fleet_alive") == 1, timeout_s=60, what="it is still in the fleet")
    third = pair.another()
    pair.await_standby()
    third.launch()
    assert third.wait() == 0
    assert [line["message"] for line in third.log_lines()] == ["main and standby are there: nothing to do"]


# -- any command -----------------------------------------------------------------------------------------------------
# It binds an abstract unix socket of its slot. The kernel gives that address to one process at a time, which proves
# independently of the locks that the slot has one main.

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
