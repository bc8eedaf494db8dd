"""Retirement with real sidecars and a real Redis: one at a time, the busy one last, and without tokens."""

from __future__ import annotations

import asyncio
import threading
from contextlib import contextmanager
from datetime import datetime
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from itertools import pairwise
from typing import TYPE_CHECKING

import pytest

from harness.sidecar import AT_ONCE, GATES, command
from harness.waiting import wait_for
from sidecar.app.build_store import fleet_budget, redis_store
from sidecar.config.load import load
from sidecar.core.types import Hold

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from harness.children import StartRedis, StartSidecar
    from harness.redis_server import RedisServer
    from harness.sidecar import Setting, Sidecar

pytestmark = [pytest.mark.redis, pytest.mark.process]

AGING: dict[str, Setting] = {
    **AT_ONCE,
    **GATES,
    "lifetime": "4s",
    "retire_slots": "1",
    "drain": "500ms",
}
ASKS_OFTEN: dict[str, Setting] = {**AGING, "redis_timeout": "900ms", "check_interval": "1s"}
"""For tests that wait for many requests for a lease."""
GRANTS = "{ha:default/app}:grants"


def _is(one: Sidecar, state: str) -> Callable[[], bool]:
    return lambda: bool(one.verdict()["state"] == state)


def _retirements(one: Sidecar, outcome: str = "granted") -> float:
    return one.metrics()[f'arbiter_retirements_total{{outcome="{outcome}"}}']


def _busy(one: Sidecar, load: float) -> None:
    assert one.request("local", "POST", "/results", f'{{"load":{load}}}').status == 202


@contextmanager
def _replaced_when_down(fleet: list[Sidecar]) -> Iterator[None]:
    """Begin another incarnation of each container that is down, half a second later, as Nomad does."""
    is_over = threading.Event()
    incarnations = dict.fromkeys((one.name for one in fleet), 1)
    failures: list[Exception] = []

    def watch() -> None:
        while not is_over.wait(0.05):
            for one in fleet:
                if one.health("/health/nomad")[0] != 200 and not is_over.wait(0.5):
                    incarnations[one.name] += 1
                    one.post_error(count=0, app_start=f"life-{incarnations[one.name]}")

    def run() -> None:
        try:
            watch()
        except Exception as error:  # noqa: BLE001 - raised in the thread of the test
            failures.append(error)

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    try:
        yield
    finally:
        is_over.set()
        thread.join(10)
    assert not failures


def _hold(server: RedisServer) -> None:
    """Hold the service: the start of a fleet may take longer than the lifetime."""

    async def hold() -> None:
        settings = load({}, {"ARBITER_REDIS_URL": server.url, "ARBITER_SERVICE": "app"})
        budget = fleet_budget(settings, redis_store(settings))
        assert isinstance(await budget.hold("", "ann", "they start", 600), Hold)
        await budget.aclose()

    asyncio.run(hold())


def _away(one: Sidecar) -> list[tuple[float, float]]:
    """The times in which it was drained or down, by its log."""
    lines = [(datetime.fromisoformat(line["time"]).timestamp(), line["message"]) for line in one.log_lines()]
    begins = [at for at, message in lines if message == "draining"]
    ends = [at for at, message in lines if message == "starting"]
    assert len(ends) <= len(begins) <= len(ends) + 1
    return list(zip(begins, [*ends, float("inf")], strict=False))


def _absences(fleet: list[Sidecar]) -> list[tuple[float, float]]:
    """These times of the whole fleet in order; empty while two have not ended, because logs are late."""
    absences = sorted(absence for one in fleet for absence in _away(one))
    return absences if [end for _, end in absences].count(float("inf")) <= 1 else []


def test_one_retires_at_a_time_stays_down_after_a_kill_and_frees_its_place(
    sidecar: StartSidecar, redis_server: RedisServer
) -> None:
    """Nothing but its age: no token is used, and the other one retires only after the replacement."""
    settings: dict[str, Setting] = {**ASKS_OFTEN, "lifetime": "1s"}
    pair = sidecar.fleet(2, **settings, redis_url=redis_server.url)
    for one in pair:
        one.post_error(count=0, app_start="life-1")
    (retired,) = wait_for(lambda: [one for one in pair if _is_down(one)], timeout_s=60, what="one is retired")
    (other,) = (one for one in pair if one is not retired)
    wait_for(lambda: _retirements(other, "denied") >= 2, timeout_s=60, what="the other one may not, twice")
    assert other.health() == (200, "up\n")
    retired.kill()
    retired.start()
    status, body = retired.health("/health/nomad")
    assert status == 503
    assert body.startswith("down: retired at age ")
    assert other.health() == (200, "up\n")
    retired.post_error(count=0, app_start="life-2")
    wait_for(lambda: _is_down(other), timeout_s=60, what="the other one retires after it")
    assert redis_server.cli("ZCARD", GRANTS) == 0
    assert [one.metrics()["arbiter_culls_total"] for one in pair] == [0, 0]


def _is_down(one: Sidecar) -> bool:
    return one.health("/health/nomad")[0] != 200


@pytest.mark.site
def test_fleet_retires_one_by_one_and_the_busy_one_last(sidecar: StartSidecar, redis_server: RedisServer) -> None:
    _hold(redis_server)
    fleet = sidecar.fleet(3, **ASKS_OFTEN, lifetime_max="10m", busy_load="0.5", redis_url=redis_server.url)
    busy, *idle = fleet
    for one in fleet:
        one.post_error(count=0, app_start="life-1")
    _busy(busy, 0.9)
    with _replaced_when_down(fleet):
        wait_for(lambda: command(busy, "release").code == 0, timeout_s=60, what="the hold is released")
        for one in idle:
            wait_for(lambda one=one: _retirements(one) >= 1, timeout_s=60, what=f"{one.name} has retired")  # type: ignore[misc]
        assert _retirements(busy) == 0
        assert busy.metrics()["arbiter_load"] == 0.9
        _busy(busy, 0.1)
        wait_for(lambda: _retirements(busy) >= 1, timeout_s=60, what="the busy one has retired once it is idle")
        wait_for(_is(busy, "up"), timeout_s=60, what="its replacement is up")
    away = wait_for(lambda: _absences(fleet), timeout_s=60, what="the logs have the end of all absences but one")
    assert len(away) >= 3
    assert all(former[1] <= latter[0] for former, latter in pairwise(away)), away
    assert redis_server.cli("ZCARD", GRANTS) == 0
    for one in fleet:
        metrics = one.metrics()
        assert metrics["arbiter_culls_total"] == 0
        assert metrics['arbiter_retirements_total{outcome="not_honoured"}'] == 0
        assert metrics["arbiter_age_seconds"] < 30


@pytest.mark.site
def test_retired_container_stays_down_when_its_sidecar_is_killed(
    sidecar: StartSidecar, redis_server: RedisServer
) -> None:
    settings: dict[str, Setting] = {**ASKS_OFTEN, "lifetime": "8s", "retire_slots": "2", "min_healthy": "0"}
    one, _other = sidecar.fleet(2, **settings, redis_url=redis_server.url)
    one.post_error(count=0, app_start="life-1")
    wait_for(lambda: one.metrics()["arbiter_age_seconds"] > 3, timeout_s=60, what="it has an age")
    one.kill()
    one.start()
    assert one.metrics()["arbiter_age_seconds"] > 3

    wait_for(_is(one, "down"), timeout_s=120, what="it retires at the age that was saved")
    one.kill()
    one.start()
    status, body = one.health("/health/nomad")
    assert status == 503
    assert body.startswith("down: retired at age ")
    assert redis_server.cli("ZCARD", GRANTS) == 0


@pytest.mark.site
@pytest.mark.parametrize("away", ["paused", "gone"])
def test_no_container_retires_without_redis(sidecar: StartSidecar, start_redis: StartRedis, away: str) -> None:
    redis_server = start_redis()
    _hold(redis_server)
    one, other = sidecar.fleet(2, **ASKS_OFTEN, redis_url=redis_server.url)
    for each in (one, other):
        wait_for(
            lambda each=each: each.metrics()["arbiter_budget_reachable"] == 1,  # type: ignore[misc]
            timeout_s=60,
            what="Redis is reached",
        )
    redis_server.pause() if away == "paused" else redis_server.kill()
    before = _retirements(one, "unknown")
    wait_for(lambda: _retirements(one, "unknown") >= before + 3, timeout_s=60, what="three requests for a lease failed")
    assert [each.health() for each in (one, other)] == [(200, "up\n")] * 2
    assert _retirements(one) == 0
    if away == "paused":
        redis_server.resume()
        wait_for(lambda: command(one, "release").code == 0, timeout_s=60, what="the hold is released")
        wait_for(lambda: not _is(one, "retiring")() or not _is(other, "retiring")(), timeout_s=60, what="one retires")
        assert not (_is(one, "down")() and _is(other, "down")())


@contextmanager
def _page(loads: dict[str, int]) -> Iterator[str]:
    """A metrics page with the current lengths of these queues; its URL."""

    class Page(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(200)
            self.end_headers()
            self.wfile.write("".join(f'queue_length{{queue="{one}"}} {loads[one]}\n' for one in loads).encode())

        def log_message(self, *_: object) -> None:
            """Nothing."""

    with ThreadingHTTPServer(("127.0.0.1", 0), Page) as server:
        threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True).start()
        try:
            yield f"http://127.0.0.1:{server.server_port}/metrics"
        finally:
            server.shutdown()


@pytest.mark.site
def test_scraped_requests_in_flight_keep_a_busy_container_beyond_its_lifetime(
    sidecar: StartSidecar, redis_server: RedisServer
) -> None:
    loads = {"mail": 3, "search": 9}
    with _page(loads) as url:
        scraping: dict[str, Setting] = {
            "scrape_url": url,
            "scrape_in_flight": 'queue_length{queue="mail"}',
            "scrape_interval": "250ms",
        }
        demand: dict[str, Setting] = {"lifetime": "6s", "lifetime_max": "10m", "busy_load": "2"}
        one = sidecar("one", **{**ASKS_OFTEN, **demand, **scraping}, redis_url=redis_server.url)
        wait_for(lambda: one.metrics().get("arbiter_load") == 3, timeout_s=60, what="its load is known")
        wait_for(lambda: one.metrics()["arbiter_age_seconds"] > 8, timeout_s=60, what="it is due, and busy")
        assert _is(one, "up")()
        loads["mail"] = 2
        wait_for(lambda: not _is(one, "up")(), timeout_s=60, what="it retires once it is idle")
        assert one.metrics()["arbiter_load"] == 2
