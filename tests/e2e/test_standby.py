"""A main and its standby under polls: however the main ends, no poll is refused, and no state is lost."""

from __future__ import annotations

import os
import shutil
import signal
import socket
import stat
import time
from contextlib import suppress
from datetime import datetime, timedelta
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Final

import pytest

from harness.main_and_standby import MainAndStandby
from harness.polls import MOST_WAITING, RESET, UP, Polls, summary
from harness.ports import free_port
from harness.waiting import wait_for

if TYPE_CHECKING:
    from harness.children import StartSidecar
    from harness.redis_server import RedisServer
    from harness.sidecar import Setting

pytestmark = pytest.mark.process

RATE: Final = 1_000

MANY: Final[dict[str, Setting]] = {"error_limit": 1_000_000, "error_window": "1h"}
FAST: Final[dict[str, Setting]] = {"settle": "0s", "drain": "0s", "check_interval": "500ms"}
LINE: Final = "up ready 100%\n"
STANDBYS_OWN: Final = ("standby.1.lock", "")
"""Without these files a standby ends."""


@pytest.fixture
def pair(sidecar: StartSidecar, run_dir: Path) -> MainAndStandby:
    """A main with its standby, and an error limit out of reach."""
    return MainAndStandby(sidecar.unstarted, run_dir, **MANY).start()


def _errors(one: MainAndStandby) -> int:
    return int(one.main.verdict()["evidence"]["errors"])


def _has_errors(one: MainAndStandby, count: int) -> bool:
    return _errors(one) == count


def _let_it_transfer(one: MainAndStandby) -> None:
    """Let the standby have the errors, which nobody shows.

    They are sent some milliseconds later: before the second answer after that time, also if the main was stopped.
    """
    time.sleep(0.2)
    for _ in range(2):
        assert one.main.health()[0] == 200


@pytest.mark.parametrize(
    "kills", [2, pytest.param(12, marks=pytest.mark.site), pytest.param(200, marks=pytest.mark.site)]
)
@pytest.mark.timeout(2_200)
def test_kills_of_the_main_refuse_no_poll_and_lose_no_error(pair: MainAndStandby, kills: int) -> None:
    posted, at = 0, []
    with Polls(pair.main.address("public"), RATE) as polls:
        for _ in range(kills):
            pair.main.post_error(3)
            posted += 3
            _let_it_transfer(pair)
            at.append(pair.end_main(signal.SIGKILL))
            assert pair.main.agent_line() == LINE
            assert _errors(pair) == posted
            pair.await_standby()
    polled = polls.polled
    print(summary("SIGKILL", [polled.handover_s(each) for each in at], polled))  # noqa: T201 - shown with -s
    assert set(polled.outcomes) <= {UP, RESET}
    assert set(polled.kept_outcomes) <= {UP, RESET}
    assert polled.outcomes[RESET] <= MOST_WAITING * kills
    assert polled.kept_outcomes[RESET] <= kills


@pytest.mark.site
def test_planned_ends_lose_no_request(pair: MainAndStandby) -> None:
    at = []
    with Polls(pair.main.address("public"), RATE) as polls:
        for number in range(4):
            pair.main.post_error()
            _let_it_transfer(pair)
            at.append(pair.end_main(signal.SIGTERM))
            assert _errors(pair) == number + 1
            pair.await_standby()
    polled = polls.polled
    print(summary("SIGTERM", [polled.handover_s(each) for each in at], polled))  # noqa: T201 - as above
    assert set(polled.outcomes) == {UP}
    assert set(polled.kept_outcomes) == {UP}
    assert polled.closed == 0, "the kept connection moves to the next main"


@pytest.mark.site
def test_culled_container_stays_down_through_every_takeover(sidecar: StartSidecar, run_dir: Path) -> None:
    one = MainAndStandby(sidecar.unstarted, run_dir, **FAST).start()
    one.main.post_error(5, app_start="boot-1", kind="redis")
    wait_for(lambda: one.main.health()[0] == 503, timeout_s=60, what="it is culled")
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
    wait_for(lambda: one.main.health()[0] == 200, timeout_s=60, what="the next incarnation is up")
    one.end_main(signal.SIGKILL)
    assert one.main.health()[0] == 200
    assert one.main.verdict()["app_start"] == "boot-2"


@pytest.mark.site
def test_datagrams_that_no_main_reads_count_in_the_next(sidecar: StartSidecar, run_dir: Path) -> None:
    port, path = free_port(), run_dir / "statsd.sock"
    statsd: dict[str, Setting] = {"statsd_listen": f"127.0.0.1:{port}", "statsd_socket": path}
    one = MainAndStandby(sidecar.unstarted, run_dir, **MANY, **statsd).start()
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
            wait_for(partial(_has_errors, one, sent), timeout_s=60, what=f"{sent} errors are counted")
            one.await_standby()


@pytest.mark.site
def test_unix_socket_of_the_app_stays_the_same_after_a_takeover(sidecar: StartSidecar, run_dir: Path) -> None:
    path = run_dir / "app.sock"
    one = MainAndStandby(sidecar.unstarted, run_dir, **MANY, socket=path).start()
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
        timeout_s=60,
        what="a removed path is opened again",
    )


@pytest.mark.site
def test_third_process_ends_with_one_line_and_so_does_a_second_without_standby(
    pair: MainAndStandby, sidecar: StartSidecar, run_dir: Path
) -> None:
    third = pair.another()
    third.launch()
    assert third.wait(timeout_s=90) == 0
    assert [line["message"] for line in third.log_lines()] == ["main and standby are there: nothing to do"]
    other = run_dir / "other"
    other.mkdir()
    alone = MainAndStandby(sidecar.unstarted, other, standby=False)
    alone.main.launch()
    alone.main.ready()
    second = alone.another()
    second.launch()
    assert second.wait(timeout_s=90) == 0
    assert second.log_lines()[-1]["message"] == "a main is there: nothing to do"
    assert alone.main.health() == (200, "up\n")


@pytest.mark.site
def test_main_at_the_end_of_its_lifetime_runs_until_there_is_a_standby(sidecar: StartSidecar, run_dir: Path) -> None:
    lifetime: dict[str, Setting] = {"run_lifetime": "1s", "run_every": "1s"}
    with pytest.raises(AssertionError, match="ARBITER_RUN_EVERY"):
        MainAndStandby(sidecar.unstarted, run_dir, **lifetime).main.start()
    lifetime["run_lifetime"] = "1500ms"
    one = MainAndStandby(sidecar.unstarted, run_dir, **MANY, **lifetime)
    one.main.launch()
    one.main.ready()
    time.sleep(2.0)
    assert one.main.health() == (200, "up\n")
    with Polls(one.main.address("public"), RATE) as polls:
        one.standby = one.another()
        one.standby.launch()
        assert one.main.wait(timeout_s=90) == 0
    assert one.standby.health() == (200, "up\n")
    assert set(polls.polled.outcomes) == {UP}


@pytest.mark.site
def test_standby_with_another_listener_address_opens_it(pair: MainAndStandby) -> None:
    pair.standby.stop()
    port = free_port()
    pair.await_standby(agent_listen=f"127.0.0.1:{port}")
    with Polls(pair.main.address("public"), RATE) as polls:
        pair.end_main(signal.SIGTERM)
        wait_for(lambda: pair.main.agent_line() == LINE, timeout_s=60, what="the new listener answers")
    assert set(polls.polled.outcomes) == {UP}
    wait_for(
        lambda: any(line.get("setting") == "agent_listen" for line in pair.main.log_lines()),
        timeout_s=60,
        what="the change is logged",
    )


@pytest.mark.site
def test_standby_that_dies_is_replaced_by_the_next(pair: MainAndStandby) -> None:
    pair.standby.kill()
    wait_for(lambda: not pair.is_ready(), timeout_s=60, what="the main knows that it has no standby")
    pair.await_standby()
    with Polls(pair.main.address("public"), RATE) as polls:
        pair.end_main(signal.SIGKILL)
        assert pair.main.health() == (200, "up\n")
    assert set(polls.polled.outcomes) <= {UP, RESET}


@pytest.mark.site
@pytest.mark.parametrize("file", ["main.1.lock", "standby.1.lock", "handover.sock", ""], ids=lambda file: file or "all")
def test_there_is_one_main_after_its_files_are_removed(pair: MainAndStandby, file: str) -> None:
    directory = Path(str(pair.settings["run_lock"]))
    with Polls(pair.main.address("public"), RATE) as polls:
        if file:
            (directory / file).unlink()
        else:
            shutil.rmtree(directory)
        time.sleep(7)  # both have checked: the main every 2 s, the standby every 5 s
        assert not any(line.get("message") == "took over" for line in pair.standby.log_lines())
        wait_for((directory / "handover.sock").exists, timeout_s=60, what="the main has its files again")
        if file in STANDBYS_OWN:
            assert pair.standby.wait(20) == 0, "it ends, so that the next one takes its place"
            pair.await_standby()
        pair.end_main(signal.SIGKILL)
        assert pair.main.agent_line() == LINE
    assert set(polls.polled.outcomes) <= {UP, RESET}


@pytest.mark.site
def test_main_without_a_standby_drains_and_ends(sidecar: StartSidecar, run_dir: Path) -> None:
    one = MainAndStandby(sidecar.unstarted, run_dir, stop_drain="1s")
    one.main.launch()
    one.main.ready()
    one.main.terminate()
    assert one.main.wait() == 0
    logged_at = {line["message"]: datetime.fromisoformat(line["time"]) for line in one.main.log_lines()}
    assert logged_at["stopped"] - logged_at["stopping"] >= timedelta(seconds=0.99), "it drains"
    assert not (run_dir / "lock" / "handover.sock").exists()


@pytest.mark.site
def test_lock_directory_is_private_and_has_the_latch(sidecar: StartSidecar, run_dir: Path) -> None:
    one = MainAndStandby(sidecar.unstarted, run_dir, **FAST)
    one.main.launch()
    one.main.ready()
    one.main.post_error(5)
    wait_for(lambda: one.main.health()[0] == 503, timeout_s=60, what="it is culled")
    directory = run_dir / "lock"
    assert stat.S_IMODE(directory.stat().st_mode) == 0o700
    assert stat.S_IMODE((directory / "handover.sock").stat().st_mode) == 0o600
    files = directory.glob  # one exists from the start, with the age of the app
    wait_for(
        lambda: any('"latch": {' in file.read_text() for file in files("health-arbiter-*.json")),
        timeout_s=60,
        what="the latch is on disk",
    )
    one.main.kill()
    one.main.start()
    assert one.main.health()[0] == 503, "the latch is loaded from the journal"


@pytest.mark.site
def test_main_that_hands_over_sends_no_goodbye(sidecar: StartSidecar, run_dir: Path, redis_server: RedisServer) -> None:
    one = MainAndStandby(sidecar.unstarted, run_dir, beat_interval="30s", redis_url=redis_server.url).start()
    wait_for(lambda: one.main.metrics().get("arbiter_fleet_alive") == 1, timeout_s=60, what="it is in the fleet")
    one.end_main(signal.SIGTERM)
    assert redis_server.cli("ZSCORE", "{ha:default/app}:alive", "a") is not None
    wait_for(lambda: one.main.metrics().get("arbiter_fleet_alive") == 1, timeout_s=60, what="it is still in the fleet")


@pytest.mark.site
def test_hook_of_a_killed_main_does_not_keep_the_lock(sidecar: StartSidecar, run_dir: Path) -> None:
    hook, running = run_dir / "hook", run_dir / "pid"
    hook.write_text(f"#!/bin/sh\necho $$ >>{running}\nexec sleep 300\n")
    hook.chmod(0o700)
    one = MainAndStandby(sidecar.unstarted, run_dir, **FAST, cull_hook=hook, cull_hook_timeout="20s").start()
    one.main.post_error(5, app_start="boot-1")
    first = int(wait_for(lambda: running.exists() and running.read_text().strip(), timeout_s=60, what="the hook runs"))
    try:
        one.end_main(signal.SIGKILL)
        wait_for(
            lambda: any(line.get("message") == "took over" for line in one.main.log_lines()),
            timeout_s=60,
            what="the standby has the lock",
        )
        assert one.main.health()[0] in {200, 503}
        assert Path(f"/proc/{first}/comm").read_text() == "sleep\n", "the hook of the killed main still runs"
    finally:
        for pid in running.read_text().split():
            with suppress(ProcessLookupError):
                os.kill(int(pid), signal.SIGKILL)
