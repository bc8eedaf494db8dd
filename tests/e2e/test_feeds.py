"""A real app that loses its Redis, reported by pings, datagrams and scrapes: the same verdict, and none afterwards."""

from __future__ import annotations

import time
from datetime import datetime
from typing import TYPE_CHECKING, Any

import pytest

from harness.apps import RealApp
from harness.ports import free_ports
from harness.waiting import wait_for

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path

    from harness.children import Children, StartRedis, StartSidecar
    from harness.redis_server import RedisServer
    from harness.sidecar import Setting, Sidecar

    StartApp = Callable[[Mapping[str, str]], RealApp]

pytestmark = pytest.mark.process

INTERVAL_S = 1.0
WITHIN_CHECKS = 2
"""One check may be under way, and the next finds the errors."""
SHORTEST_S = 0.8 * INTERVAL_S
"""An interval at its shortest, with its jitter."""

SELECTORS: dict[str, Setting] = {
    "scrape_errors": 'kind=redis: http_requests_total{status=~"5.."}',
    "scrape_requests": "http_requests_total",
    "check_interval": f"{INTERVAL_S}s",
}


def _checks(page: dict[str, float], way: str) -> float:
    """The number of scrapes, or of checks for the other ways."""
    kind = "arbiter_scrapes_total" if way == "scrapes" else "arbiter_checks_total"
    return sum(value for name, value in page.items() if name.startswith(kind))


def _suspicion(one: Sidecar) -> dict[str, Any]:
    """What it logged when it became suspect; else empty. The log stays, however late the test reads it."""
    return next((line for line in one.log_lines() if line["message"] == "suspect"), {})


def _errors(one: Sidecar) -> int:
    errors: int = one.verdict()["evidence"]["errors"]
    return errors


@pytest.fixture
def app_redis(start_redis: StartRedis) -> RedisServer:
    return start_redis()


@pytest.fixture
def start_app(run_dir: Path, children: Children, app_redis: RedisServer) -> StartApp:
    """Starts an app that needs ``app_redis``, with this environment."""

    def start(environment: Mapping[str, str]) -> RealApp:
        return children.adopt(RealApp(run_dir, app_redis.port, environment)).start()

    return start


@pytest.mark.site
@pytest.mark.parametrize("way", ["pings", "datagrams", "scrapes"])
def test_verdict_is_the_same_for_every_way_of_reporting(
    sidecar: StartSidecar, app_redis: RedisServer, start_app: StartApp, way: str
) -> None:
    settings: dict[str, Setting] = {"check_interval": f"{INTERVAL_S}s", "error_window": "5s", "settle": "3s"}
    local, statsd = (f"127.0.0.1:{port}" for port in free_ports(2))
    settings |= {"mode": "shadow", "error_ratio": "0", "statsd_listen": statsd, "local_listen": local}
    one = sidecar.unstarted("one", **settings)
    environment = {
        "pings": {"ARBITER_LOCAL_LISTEN": local},
        "datagrams": {"ARBITER_LOCAL_LISTEN": "off", "STATSD_PORT": statsd.rpartition(":")[2]},
        "scrapes": {"ARBITER_LOCAL_LISTEN": "off"},
    }[way]
    app = start_app(environment)
    if way == "scrapes":
        one.settings |= SELECTORS | {"scrape_url": f"http://127.0.0.1:{app.port}/metrics"}
    one.start()
    if way == "scrapes":
        scraped = 'arbiter_scrapes_total{outcome="ok"}'
        wait_for(lambda: one.metrics()[scraped] >= 1, timeout_s=60, what="the first scrape")
    assert app.work(3) == [200] * 3
    assert _errors(one) == 0

    app_redis.kill()
    assert app.work(5) == [500] * 5
    before = _checks(one.metrics(), way)
    suspicion = wait_for(lambda: _suspicion(one), timeout_s=60, what="the verdict")
    after, read_at = _checks(one.metrics(), way), time.time()
    later = 1 + (read_at - datetime.fromisoformat(suspicion["time"]).timestamp()) / SHORTEST_S
    assert after - before <= WITHIN_CHECKS + later, "the verdict within an interval"
    assert suspicion["errors"] == 5
    assert suspicion["reason"] == "5 server errors in 5 s (5 of them redis), the limit is 5"

    app_redis.start()
    assert app.work(3) == [200] * 3
    wait_for(lambda: one.verdict()["state"] == "up", timeout_s=60, what="no verdict once healed")
    assert one.health() == (200, "up\n")
