"""A sidecar and its standby under polls: however the main ends, the standby goes on, without a wrong answer."""

from __future__ import annotations

import http.client
import signal
import threading
import time
from contextlib import closing
from typing import TYPE_CHECKING, Final, Self

import pytest

from harness.main_and_standby import MainAndStandby
from harness.waiting import wait_for

if TYPE_CHECKING:
    from pathlib import Path

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
    pair.standby.kill()
    pair.main.kill()  # alone it would drain for ten minutes
