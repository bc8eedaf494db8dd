"""A main and its standby under polls: however the main ends, the standby goes on, and gives no wrong answer."""

from __future__ import annotations

import signal
from statistics import median, quantiles
from typing import TYPE_CHECKING, Final

import pytest

from harness.main_and_standby import MainAndStandby
from harness.polls import REFUSED, RESET, UP, Polls
from harness.waiting import wait_for

if TYPE_CHECKING:
    from pathlib import Path

    from harness.children import StartSidecar
    from harness.redis_server import RedisServer
    from harness.sidecar import Setting, Sidecar

pytestmark = pytest.mark.process
RATE: Final = 500
SLOWEST_S: Final = 5.0
"""A bound for a busy machine; the case of 30 kills prints the real figures."""

LOST: Final = {REFUSED, RESET}
"""What may happen to a poll while nobody listens."""

MANY: Final[dict[str, Setting]] = {"error_limit": 1_000_000, "error_window": "1h"}
FAST: Final[dict[str, Setting]] = {"settle": "0s", "drain": "0s", "check_interval": "500ms"}
LINE: Final = "up ready 100%\n"


@pytest.fixture
def pair(sidecar: StartSidecar, run_dir: Path) -> MainAndStandby:
    """A main with its standby, and an error limit out of reach."""
    return MainAndStandby(sidecar.unstarted, run_dir, **MANY).start()


def _messages(one: Sidecar) -> list[str]:
    return [line["message"] for line in one.log_lines()]


@pytest.mark.parametrize("kills", [2, pytest.param(30, marks=pytest.mark.site)])
@pytest.mark.timeout(600)
def test_standby_goes_on_after_each_kill_of_the_main(pair: MainAndStandby, kills: int) -> None:
    at = []
    with Polls(pair.main.address("public"), RATE) as polls:
        for _ in range(kills):
            at.append(pair.end_main(signal.SIGKILL))
            assert pair.main.agent_line() == LINE
            pair.main.post_error()
            pair.await_standby()
    gaps_ms = [1000 * polls.polled.gap_s(each) for each in at]
    print(f"gap after a kill: p50 {median(gaps_ms):.1f} ms, p99 {quantiles(gaps_ms, n=100)[-1]:.1f} ms")  # noqa: T201
    assert set(polls.polled.outcomes) <= {UP, *LOST}
    assert max(gaps_ms) < 1000 * SLOWEST_S


def test_culled_container_stays_down_whichever_way_its_mains_end(sidecar: StartSidecar, run_dir: Path) -> None:
    one = MainAndStandby(sidecar.unstarted, run_dir, **FAST).start()
    one.main.post_error(5, app_start="boot-1", kind="redis")
    wait_for(lambda: one.main.health()[0] == 503, timeout_s=60, what="it is culled")
    with Polls(one.main.address("public"), RATE) as polls:
        for number in (signal.SIGKILL, signal.SIGTERM):
            one.end_main(number)
            assert one.main.verdict()["latched"] is True
            assert one.main.agent_line().startswith("fail #culled")
            one.await_standby()
    assert set(polls.polled.outcomes) <= {"503 down:", *LOST}
    one.main.post_error(1, app_start="boot-2")
    wait_for(lambda: one.main.health()[0] == 200, timeout_s=60, what="the next incarnation is up")
    (file,) = (run_dir / "lock").glob("*.json")
    wait_for(lambda: '"latch": null' in file.read_text(), timeout_s=60, what="that is on disk")
    one.end_main(signal.SIGKILL)
    assert one.main.health()[0] == 200
    assert one.main.verdict()["app_start"] == "boot-2"


def test_main_with_a_standby_ends_at_once_and_neither_balancers_nor_the_fleet_see_an_end(
    sidecar: StartSidecar, run_dir: Path, redis_server: RedisServer
) -> None:
    slow: dict[str, Setting] = {"beat_interval": "30s", "redis_timeout": "10s", "check_interval": "20s"}
    settings: dict[str, Setting] = {**slow, "stop_drain": "10m", "redis_url": redis_server.url}
    one = MainAndStandby(sidecar.unstarted, run_dir, **settings).start()
    wait_for(lambda: one.main.metrics().get("arbiter_fleet_alive") == 1, timeout_s=60, what="it is in the fleet")
    with Polls(one.main.address("public"), RATE) as polls:
        one.end_main(signal.SIGTERM)
        assert redis_server.cli("ZSCORE", "{ha:default/app}:alive", "a") is not None
        assert one.main.agent_line() == LINE
    assert set(polls.polled.outcomes) <= {UP, *LOST}
    wait_for(lambda: one.main.metrics().get("arbiter_fleet_alive") == 1, timeout_s=60, what="it is still in the fleet")


@pytest.mark.site
def test_third_sidecar_and_a_stopped_standby_end_with_0(pair: MainAndStandby) -> None:
    third = pair.another()
    third.launch()
    assert third.wait(timeout_s=90) == 0
    assert _messages(third) == ["main and standby are there: nothing to do"]
    wait_for(pair.has_standby, timeout_s=60, what="the main knows its standby")
    pair.standby.terminate()
    assert pair.standby.wait() == 0
    wait_for(lambda: not pair.has_standby(), timeout_s=60, what="the main knows that it has no standby")
    second = pair.another(standby=False)
    second.launch()
    assert second.wait(timeout_s=90) == 0
    assert _messages(second) == ["a main is there: nothing to do"]
    assert pair.main.health() == (200, "up\n")
