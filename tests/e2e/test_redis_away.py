"""Failures of Redis: health stays up, nothing crashes, no container is culled, and the sidecar recovers by itself."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, NamedTuple

import pytest

from harness.command import command
from harness.sidecar import AT_ONCE
from harness.waiting import wait_for

if TYPE_CHECKING:
    from collections.abc import Callable

    from harness.children import StartRedis, StartSidecar
    from harness.redis_server import RedisServer
    from harness.sidecar import Sidecar

pytestmark = [pytest.mark.redis, pytest.mark.process]


class Failure(NamedTuple):
    """How Redis fails and how it is mended, and the word by which the sidecar logs it."""

    begin: Callable[[RedisServer], object]
    end: Callable[[RedisServer], object]
    word: str
    redis_timeout: str = "10s"


def _lock(server: RedisServer) -> None:
    server.set_password("other")
    server.cli("CLIENT", "KILL", "TYPE", "NORMAL", "SKIPME", "YES")


FAILURES = {
    "killed": Failure(lambda server: server.kill(), lambda server: server.start(), "connection"),
    "read-only": Failure(
        lambda server: server.cli("REPLICAOF", "127.0.0.1", "1"),
        lambda server: server.cli("REPLICAOF", "NO", "ONE"),
        "readonly",
    ),
    "out of memory": Failure(
        lambda server: server.cli("CONFIG", "SET", "maxmemory", "1"),
        lambda server: server.cli("CONFIG", "SET", "maxmemory", "0"),
        "oom",
    ),
    "hung": Failure(lambda server: server.pause(), lambda server: server.resume(), "timeout", "1s"),
    "wrong password": Failure(_lock, lambda server: server.set_password(""), "auth"),
}


def _reasons_away(one: Sidecar) -> list[str]:
    """The logged reasons for beats without an answer."""
    return [line["reason"] for line in one.log_lines() if line["message"].startswith("store unreachable: ")]


def _waits_for_redis(one: Sidecar) -> bool:
    """Whether it is suspect, and shows that it claims only after an answered beat."""
    return "so that the fleet knows that it is suspect" in one.request("local", "GET", "/why").json()["remedies"][-1]


@pytest.mark.parametrize("failure", FAILURES.values(), ids=FAILURES)
def test_broken_redis_culls_nobody_and_is_survived(
    sidecar: StartSidecar, start_redis: StartRedis, failure: Failure
) -> None:
    server = start_redis()
    one = sidecar("one", **{**AT_ONCE, "redis_timeout": failure.redis_timeout}, redis_url=server.url)
    wait_for(lambda: one.metrics()["arbiter_budget_reachable"] == 1, timeout_s=60, what="Redis is reached")
    failure.begin(server)
    one.post_error(5, kind="redis")
    wait_for(lambda: failure.word in _reasons_away(one), timeout_s=60, what=f"{failure.word} is logged")
    wait_for(lambda: _waits_for_redis(one), timeout_s=60, what="it waits for an answer to its beat")
    assert one.health() == (200, "up\n")
    assert one.verdict()["state"] == "suspect"
    metrics = one.metrics()
    assert metrics["arbiter_budget_reachable"] == 0
    assert metrics['arbiter_failures_total{where="step"}'] == 0
    assert [value for name, value in metrics.items() if name.startswith("arbiter_claims_total{") and value] == []

    failure.end(server)
    wait_for(lambda: one.health()[0] == 503, timeout_s=60, what="it claims and is culled")
    assert server.cli("ZCARD", "{ha:default/app}:grants") == 1
    reasons = _reasons_away(one)
    assert len(reasons) == len(set(reasons)), "each failure is logged once a minute"


def test_no_answer_waits_for_a_hung_redis(sidecar: StartSidecar, start_redis: StartRedis) -> None:
    server = start_redis()
    one = sidecar("one", **AT_ONCE, redis_url=server.url)
    wait_for(lambda: one.metrics()["arbiter_budget_reachable"] == 1, timeout_s=60, what="Redis is reached")
    server.pause()
    with ThreadPoolExecutor(1) as pool:
        pool.submit(command, one, "cull", "--yes")  # an order claims without a beat before it
        wait_for(lambda: (one.verdict()["claim"] or {}).get("outstanding"), timeout_s=60, what="a claim is on its way")
        for _ in range(30):
            assert one.health() == (200, "up\n")
            assert one.request("public", "GET", "/why").status == 200
        assert one.verdict()["claim"] == {"outstanding": True}, "Redis still hangs after thirty answers"
        server.resume()
