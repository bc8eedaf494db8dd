"""A sidecar killed with SIGKILL at every step of a claim: one token per incarnation, and a latch that survives."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from harness.redis_proxy import RedisProxy, Where
from harness.sidecar import AT_ONCE
from harness.waiting import wait_for

if TYPE_CHECKING:
    from collections.abc import Callable

    from harness.children import StartSidecar
    from harness.redis_server import RedisServer
    from harness.sidecar import Sidecar

pytestmark = [pytest.mark.redis, pytest.mark.process]

GRANTS = "{ha:default/app}:grants"


def _await_redis(one: Sidecar) -> None:
    """Wait for the first beat; then the server has the scripts too."""
    wait_for(lambda: one.metrics()["arbiter_budget_reachable"] == 1, timeout_s=60, what="Redis is reached")


def _is(one: Sidecar, state: str) -> Callable[[], bool]:
    return lambda: bool(one.verdict()["state"] == state)


@pytest.mark.parametrize(
    ("where", "granted", "app_start"),
    [("request", 0, None), ("reply", 1, "boot-1")],
    ids=["before Redis has the claim", "before the reply arrives"],
)
def test_killed_with_an_outstanding_claim_it_comes_back_up_and_asks_with_the_same_id(
    sidecar: StartSidecar, redis_server: RedisServer, where: Where, granted: int, app_start: str | None
) -> None:
    with RedisProxy(redis_server.port) as proxy:
        one = sidecar("one", **AT_ONCE, redis_url=proxy.url)
        _await_redis(one)
        proxy.lose(where)
        one.post_error(5, app_start=app_start)
        assert proxy.lost.wait(60)
        one.kill()
        assert redis_server.cli("ZCARD", GRANTS) == granted

        proxy.lose("nowhere")
        one.start()
        assert one.health() == (200, "up\n")
        one.post_error(5, app_start=app_start)
        wait_for(_is(one, "down"), timeout_s=60, what="the same claim is granted")
        assert redis_server.cli("ZCARD", GRANTS) == 1
        assert one.verdict()["claim"]["reason"] == ("replayed" if granted else "granted")


def test_claim_is_repeated_after_a_lost_reply_and_costs_one_token(
    sidecar: StartSidecar, redis_server: RedisServer
) -> None:
    """The claim is asked again after its time-out."""
    with RedisProxy(redis_server.port) as proxy:
        one = sidecar("one", **{**AT_ONCE, "redis_timeout": "1s"}, redis_url=proxy.url)
        _await_redis(one)
        proxy.lose("reply")
        one.post_error(5)
        assert proxy.lost.wait(60)
        assert one.health() == (200, "up\n")
        proxy.lose("nowhere")
        wait_for(_is(one, "down"), timeout_s=60, what="the claim is replayed")
        assert redis_server.cli("ZCARD", GRANTS) == 1


def test_killed_while_draining_it_finishes_the_drain_and_goes_down(
    sidecar: StartSidecar, redis_server: RedisServer
) -> None:
    """The drain lasts as long as the app has requests in flight."""
    one = sidecar("one", **{**AT_ONCE, "drain": "5m"}, redis_url=redis_server.url)
    one.post_error(5, kind="redis")
    wait_for(lambda: _latched(one), timeout_s=60, what="the latch is on disk")
    one.kill()
    one.start()
    assert one.verdict()["state"] == "draining"
    assert (one.health("/health/haproxy")[0], one.health("/health/nomad")[0]) == (503, 200)
    assert "5 server errors in 60 s (5 of them redis)" in one.health()[1]

    def is_down_when_idle() -> bool:
        one.request("local", "POST", "/results", '{"in_flight": 0}')
        return _is(one, "down")()

    wait_for(is_down_when_idle, timeout_s=60, what="the app is idle, and the drain over")
    assert one.health("/health/nomad")[0] == 503
    assert redis_server.cli("ZCARD", GRANTS) == 1


def test_killed_when_down_it_comes_back_down_every_time(sidecar: StartSidecar, redis_server: RedisServer) -> None:
    one = sidecar("one", **AT_ONCE, redis_url=redis_server.url)
    one.post_error(5, app_start="boot-1")
    wait_for(lambda: _latched(one), timeout_s=60, what="the latch is on disk")
    for _ in range(2):
        one.kill()
        one.start()
        assert (one.health()[0], one.health("/health/nomad")[0]) == (503, 503)
        one.post_error(5, app_start="boot-1")
    assert redis_server.cli("ZCARD", GRANTS) == 1


def test_restarted_app_starts_clean_with_its_own_claim(sidecar: StartSidecar, redis_server: RedisServer) -> None:
    one = sidecar("one", **AT_ONCE, redis_url=redis_server.url)
    one.post_error(5, app_start="boot-1")
    wait_for(_is(one, "down"), timeout_s=60, what="the first incarnation is culled")
    one.post_error(1, count=0, app_start="boot-2")
    wait_for(_is(one, "up"), timeout_s=60, what="the second incarnation is up")
    assert one.verdict()["evidence"]["errors"] == 0
    wait_for(lambda: not _latched(one), timeout_s=60, what="the latch is removed from the disk")
    one.kill()
    one.start()
    assert one.health() == (200, "up\n"), "the first latch is not loaded"
    one.post_error(5, app_start="boot-2")
    wait_for(_is(one, "down"), timeout_s=60, what="the second incarnation is culled")
    assert redis_server.cli("ZCARD", GRANTS) == 2


def _latched(one: Sidecar) -> bool:
    files = list(one.directory.glob("one.state/health-arbiter-*.json"))
    return bool(files) and '"reason"' in files[0].read_text()
