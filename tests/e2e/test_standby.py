"""A main and its standby under polls: whatever ends the main, nobody is refused, and nothing it knew is lost.

12 kills run with the suite; ``STANDBY_KILLS=200`` makes it 200.
"""

from __future__ import annotations

import os
import shutil
import signal
import socket
import stat
import time
from contextlib import suppress
from functools import partial
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, Final

import pytest

from harness.polls import MOST_WAITING, RESET, UP, Polls, told
from harness.ports import free_port
from harness.succession import Succession
from harness.waiting import wait_for

if TYPE_CHECKING:
    from harness.redis_server import RedisServer
    from harness.sidecar import Setting
    from harness.starting import StartSidecar

KILLS: Final = int(os.environ.get("STANDBY_KILLS", "12"))
TERMS: Final = max(4, KILLS // 4)
RATE: Final = 1_000
SLOWEST_S: Final = 1.0
"""Of a machine that has other things to do; the bench tells what it is on one that has not."""

MANY: Final[dict[str, Setting]] = {"error_limit": 1_000_000, "error_window": "1h"}
FAST: Final[dict[str, Setting]] = {"settle": "0s", "drain": "0s", "check_interval": "500ms"}
LINE: Final = "up ready 100%\n"
STANDBYS_OWN: Final = ("standby.1.lock", "")
"""Without these files a standby is none any more."""


@pytest.fixture
def succession(sidecar: StartSidecar, run_dir: Path) -> Succession:
    """Both are there, and no number of errors is too many."""
    return Succession(sidecar.unstarted, run_dir, **MANY).start()


def _errors(one: Succession) -> int:
    return int(one.main.verdict()["evidence"]["errors"])


def _has_errors(one: Succession, count: int) -> bool:
    return _errors(one) == count


def _let_it_tell(one: Succession) -> None:
    """An error is told 2 ms after it came; however busy the machine is, who answers after that has told it."""
    time.sleep(0.2)
    assert one.main.health()[0] == 200


@pytest.mark.timeout(60 + 10 * KILLS)
def test_killed_mains_refuse_nobody_and_what_they_counted_still_counts(succession: Succession) -> None:
    posted, at = 0, []
    with Polls(succession.main.address("public"), RATE) as polls:
        for _ in range(KILLS):
            succession.main.post_error(3)
            posted += 3
            _let_it_tell(succession)
            at.append(succession.end_main(signal.SIGKILL))
            assert succession.main.agent_line() == LINE
            assert _errors(succession) == posted
            succession.await_standby()
    polled = polls.polled
    took_s = [polled.handover_s(each) for each in at]
    print(told("SIGKILL", took_s, polled))  # noqa: T201 - the figures are what a person runs it for
    assert set(polled.outcomes) <= {UP, RESET}
    assert set(polled.kept_outcomes) <= {UP, RESET}
    assert polled.outcomes[RESET] <= MOST_WAITING * KILLS
    assert polled.kept_outcomes[RESET] <= KILLS
    assert median(took_s) < SLOWEST_S


@pytest.mark.timeout(60 + 10 * TERMS)
def test_planned_ends_lose_no_request_at_all(succession: Succession) -> None:
    at = []
    with Polls(succession.main.address("public"), RATE) as polls:
        for number in range(TERMS):
            succession.main.post_error()
            _let_it_tell(succession)
            at.append(succession.end_main(signal.SIGTERM))
            assert _errors(succession) == number + 1
            succession.await_standby()
    polled = polls.polled
    print(told("SIGTERM", [polled.handover_s(each) for each in at], polled))  # noqa: T201 - as above
    assert set(polled.outcomes) == {UP}
    assert set(polled.kept_outcomes) == {UP}
    assert polled.closed == 0, "the connection that is kept goes on with the next main"


def test_culled_container_stays_down_through_every_takeover(sidecar: StartSidecar, run_dir: Path) -> None:
    one = Succession(sidecar.unstarted, run_dir, **FAST).start()
    one.main.post_error(5, app_start="boot-1", kind="redis")
    wait_for(lambda: one.main.health()[0] == 503, timeout_s=20, what="it is culled")
    reason = one.main.health()[1].splitlines()[0]
    with Polls(one.main.address("public"), RATE) as polls:
        for number in (signal.SIGKILL, signal.SIGTERM, signal.SIGKILL):
            one.end_main(number)
            assert one.main.verdict()["latched"] is True
            status, body = one.main.health()
            assert (status, body.splitlines()[0]) == (503, reason)
            assert one.main.agent_line().startswith("fail #culled")
            one.await_standby()
    assert set(polls.polled.outcomes) <= {"503 down:", RESET}
    one.main.post_error(1, app_start="boot-2")
    wait_for(lambda: one.main.health()[0] == 200, timeout_s=20, what="the next life is up")
    one.end_main(signal.SIGKILL)
    assert one.main.health()[0] == 200
    assert one.main.verdict()["app_start"] == "boot-2"


def test_datagrams_sent_while_nobody_reads_count_with_the_next(sidecar: StartSidecar, run_dir: Path) -> None:
    port, path = free_port(), run_dir / "statsd.sock"
    statsd: dict[str, Setting] = {"statsd_listen": f"127.0.0.1:{port}", "statsd_socket": path}
    one = Succession(sidecar.unstarted, run_dir, **MANY, **statsd).start()
    sent = 0
    with (
        socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as udp,
        socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as unix,
    ):
        udp.connect(("127.0.0.1", port))
        unix.connect(str(path))
        for number in (signal.SIGKILL, signal.SIGTERM, signal.SIGKILL):
            one.main.pause()
            udp.send(b"errors:1|c")
            unix.send(b"errors:1|c")
            sent += 2
            if number is signal.SIGTERM:
                one.main.resume()
            one.end_main(number)
            wait_for(partial(_has_errors, one, sent), timeout_s=20, what=f"{sent} errors are counted")
            one.await_standby()


def test_unix_socket_is_the_same_for_the_app_whoever_serves(sidecar: StartSidecar, run_dir: Path) -> None:
    path = run_dir / "app.sock"
    one = Succession(sidecar.unstarted, run_dir, **MANY, socket=path).start()
    inode = path.stat().st_ino
    for number in (signal.SIGKILL, signal.SIGTERM):
        one.end_main(number)
        assert path.stat().st_ino == inode
        assert one.main.request("socket", "POST", "/errors").json() == {"state": "up"}
        one.await_standby()
    path.unlink()
    one.end_main(signal.SIGKILL)
    assert one.main.health() == (200, "up\n")
    wait_for(
        lambda: one.main.request("socket", "POST", "/errors").status == 202,
        timeout_s=20,
        what="a path that was lost is opened anew",
    )


def test_third_leaves_with_one_line_and_so_does_a_second_without_standby(
    succession: Succession, sidecar: StartSidecar, run_dir: Path
) -> None:
    third = succession.another()
    third.launch()
    assert third.wait(timeout_s=40) == 0
    assert [line["message"] for line in third.log_lines()] == ["main and standby are there: nothing to do"]
    other = run_dir / "other"
    other.mkdir()
    alone = Succession(sidecar.unstarted, other, standby=False)
    alone.main.launch()
    alone.main.ready()
    second = alone.another()
    second.launch()
    assert second.wait(timeout_s=40) == 0
    assert second.log_lines()[-1]["message"] == "a main is there: nothing to do"
    assert alone.main.health() == (200, "up\n")


def test_main_whose_time_is_up_goes_on_until_there_is_a_standby(sidecar: StartSidecar, run_dir: Path) -> None:
    lifetime: dict[str, Setting] = {"run_lifetime": "1s", "run_every": "1s"}
    with pytest.raises(AssertionError, match="ARBITER_RUN_EVERY"):
        Succession(sidecar.unstarted, run_dir, **lifetime).main.start()
    lifetime["run_lifetime"] = "1500ms"
    one = Succession(sidecar.unstarted, run_dir, **MANY, **lifetime)
    one.main.launch()
    one.main.ready()
    time.sleep(2.0)
    assert one.main.health() == (200, "up\n")
    with Polls(one.main.address("public"), RATE) as polls:
        one.standby = one.another()
        one.standby.launch()
        assert one.main.wait(timeout_s=20) == 0
    assert one.standby.health() == (200, "up\n")
    assert set(polls.polled.outcomes) == {UP}


def test_standby_that_was_told_of_another_door_opens_it_anew(succession: Succession) -> None:
    succession.standby.stop()
    port = free_port()
    succession.await_standby(agent_listen=f"127.0.0.1:{port}")
    with Polls(succession.main.address("public"), RATE) as polls:
        succession.end_main(signal.SIGTERM)
        wait_for(lambda: succession.main.agent_line() == LINE, timeout_s=20, what="the new door answers")
    assert set(polls.polled.outcomes) == {UP}
    wait_for(
        lambda: any(line.get("setting") == "agent_listen" for line in succession.main.log_lines()),
        timeout_s=20,
        what="its log tells of it",
    )


def test_standby_that_dies_is_replaced_by_the_next(succession: Succession) -> None:
    succession.standby.kill()
    wait_for(lambda: not succession.is_ready(), timeout_s=20, what="the main knows that it is alone")
    succession.await_standby()
    with Polls(succession.main.address("public"), RATE) as polls:
        succession.end_main(signal.SIGKILL)
        assert succession.main.health() == (200, "up\n")
    assert set(polls.polled.outcomes) <= {UP, RESET}


@pytest.mark.parametrize("file", ["main.1.lock", "standby.1.lock", "handover.sock", ""], ids=lambda file: file or "all")
def test_there_is_one_main_though_somebody_removes_its_files(succession: Succession, file: str) -> None:
    directory = Path(str(succession.settings["run_lock"]))
    with Polls(succession.main.address("public"), RATE) as polls:
        if file:
            (directory / file).unlink()
        else:
            shutil.rmtree(directory)
        time.sleep(7)  # both have looked: the main every 2 s, the standby every 5 s
        assert not any(line.get("message") == "took over" for line in succession.standby.log_lines())
        wait_for((directory / "handover.sock").exists, timeout_s=20, what="the main has its place again")
        if file in STANDBYS_OWN:
            assert succession.standby.wait(20) == 0, "it leaves its place to the next"
            succession.await_standby()
        succession.end_main(signal.SIGKILL)
        assert succession.main.agent_line() == LINE
    assert set(polls.polled.outcomes) <= {UP, RESET}


def test_without_a_standby_it_stops_as_ever(sidecar: StartSidecar, run_dir: Path) -> None:
    one = Succession(sidecar.unstarted, run_dir, stop_drain="1s")
    one.main.launch()
    one.main.ready()
    one.main.terminate()
    wait_for(lambda: one.main.health()[0] == 503, timeout_s=20, what="it leaves the balance")
    assert one.main.wait() == 0
    assert not (run_dir / "lock" / "handover.sock").exists()


def test_directory_of_the_lock_is_private_and_keeps_the_latch(sidecar: StartSidecar, run_dir: Path) -> None:
    one = Succession(sidecar.unstarted, run_dir, **FAST)
    one.main.launch()
    one.main.ready()
    one.main.post_error(5)
    wait_for(lambda: one.main.health()[0] == 503, timeout_s=20, what="it is culled")
    directory = run_dir / "lock"
    assert stat.S_IMODE(directory.stat().st_mode) == 0o700
    assert stat.S_IMODE((directory / "handover.sock").stat().st_mode) == 0o600
    files = directory.glob  # one is there from the start, with the age of the app
    wait_for(
        lambda: any('"latch": {' in file.read_text() for file in files("health-arbiter-*.json")),
        timeout_s=20,
        what="the latch is on disk",
    )
    one.main.kill()
    one.main.start()
    assert one.main.health()[0] == 503, "it is the journal's alone to know"


def test_fleet_hears_no_goodbye_of_a_main_that_hands_over(
    sidecar: StartSidecar, run_dir: Path, redis_server: RedisServer
) -> None:
    one = Succession(sidecar.unstarted, run_dir, beat_interval="30s", redis_url=redis_server.url).start()
    wait_for(lambda: one.main.metrics().get("arbiter_fleet_alive") == 1, timeout_s=20, what="it is in the fleet")
    one.end_main(signal.SIGTERM)
    assert redis_server.cli("ZSCORE", "{ha:default/app}:alive", "a") is not None
    wait_for(lambda: one.main.metrics().get("arbiter_fleet_alive") == 1, timeout_s=20, what="it still is")


def test_what_a_killed_main_has_started_does_not_keep_the_lock(sidecar: StartSidecar, run_dir: Path) -> None:
    hook, running = run_dir / "hook", run_dir / "pid"
    hook.write_text(f"#!/bin/sh\necho $$ >>{running}\nexec sleep 30\n")
    hook.chmod(0o700)
    one = Succession(sidecar.unstarted, run_dir, **FAST, cull_hook=hook, cull_hook_timeout="20s").start()
    one.main.post_error(5, app_start="boot-1")
    first = int(wait_for(lambda: running.exists() and running.read_text().strip(), timeout_s=20, what="the hook runs"))
    try:
        one.end_main(signal.SIGKILL)
        wait_for(
            lambda: any(line.get("message") == "took over" for line in one.main.log_lines()),
            timeout_s=30,
            what="the standby has the lock",
        )
        assert one.main.health()[0] in {200, 503}
        assert Path(f"/proc/{first}/comm").read_text() == "sleep\n", "the hook of the killed main still runs"
    finally:
        for pid in running.read_text().split():
            with suppress(ProcessLookupError):
                os.kill(int(pid), signal.SIGKILL)
