"""Failures of Redis: health stays up, nothing crashes, no container is culled, and the sidecar recovers by itself."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

import pytest

from harness.sidecar import command
from harness.waiting import wait_for

if TYPE_CHECKING:
    from collections.abc import Callable

    from harness.children import StartRedis, StartSidecar
    from harness.redis_server import RedisServer
    from harness.sidecar import Sidecar

FAST = {"settle": "0s", "drain": "0s", "check_interval": "1s", "redis_timeout": "500ms", "beat_interval": "1s"}


def _fill(server: RedisServer) -> None:
    server.cli("CONFIG", "SET", "maxmemory", "1")


def _empty(server: RedisServer) -> None:
    server.cli("CONFIG", "SET", "maxmemory", "0")


def _make_read_only(server: RedisServer) -> None:
    server.cli("REPLICAOF", "127.0.0.1", "1")


def _make_master(server: RedisServer) -> None:
    server.cli("REPLICAOF", "NO", "ONE")


def _lock(server: RedisServer) -> None:
    server.cli("CONFIG", "SET", "requirepass", "other")
    server.password = "other"
    server.cli("CLIENT", "KILL", "TYPE", "NORMAL", "SKIPME", "YES")


def _unlock(server: RedisServer) -> None:
    server.cli("CONFIG", "SET", "requirepass", "")
    server.password = None


def _start(server: RedisServer) -> None:
    server.start()


FAILURES: list[tuple[str, Callable[[RedisServer], None], Callable[[RedisServer], None], set[str]]] = [
    ("killed", lambda server: server.kill(), _start, {"connection", "timeout"}),
    ("hung", lambda server: server.pause(), lambda server: server.resume(), {"timeout"}),
    ("wrong password", _lock, _unlock, {"auth"}),
    ("read-only", _make_read_only, _make_master, {"readonly"}),
    ("out of memory", _fill, _empty, {"oom"}),
]


def _reasons_away(one: Sidecar) -> list[str]:
    """The logged reasons for beats without an answer."""
    return [line["reason"] for line in one.log_lines() if line["message"].startswith("store unreachable: ")]


def _waits_for_redis(one: Sidecar) -> bool:
    """Whether it is suspect, and shows that it claims only after an answered beat."""
    return "so that the fleet knows that it is suspect" in one.request("local", "GET", "/why").json()["remedies"][-1]


@pytest.mark.parametrize(("breaks", "mends", "words"), [row[1:] for row in FAILURES], ids=[row[0] for row in FAILURES])
def test_broken_redis_culls_nobody_and_is_survived(
    sidecar: StartSidecar,
    redis_server: RedisServer,
    breaks: Callable[[RedisServer], None],
    mends: Callable[[RedisServer], None],
    words: set[str],
) -> None:
    one = sidecar("one", **FAST, redis_url=redis_server.url)
    wait_for(lambda: one.metrics()["arbiter_budget_reachable"] == 1, timeout_s=60, what="Redis is reached")
    breaks(redis_server)
    one.post_error(5, kind="redis")
    wait_for(lambda: words.intersection(_reasons_away(one)), timeout_s=60, what=f"one of {words} is logged")
    wait_for(lambda: _waits_for_redis(one), timeout_s=60, what="it waits for an answer to its beat")
    assert one.health() == (200, "up\n")
    assert one.verdict()["state"] == "suspect"
    metrics = one.metrics()
    assert metrics["arbiter_budget_reachable"] == 0
    assert metrics['arbiter_failures_total{where="step"}'] == 0
    assert [value for name, value in metrics.items() if name.startswith("arbiter_claims_total{") and value] == []

    mends(redis_server)
    wait_for(lambda: one.health()[0] == 503, timeout_s=60, what="it claims and is culled")
    assert redis_server.cli("ZCARD", "{ha:default/app}:grants") == 1
    reasons = _reasons_away(one)
    assert len(reasons) == len(set(reasons)), "each failure is logged once a minute"


def test_restarted_empty_redis_serves_claims_again(sidecar: StartSidecar, redis_server: RedisServer) -> None:
    one = sidecar("one", **FAST, redis_url=redis_server.url)
    other = sidecar("other", **FAST, redis_url=redis_server.url)
    one.post_error(5)
    wait_for(lambda: one.health()[0] == 503, timeout_s=60, what="the first is culled")
    redis_server.restart()
    assert one.health()[0] == 503
    other.post_error(5)
    wait_for(lambda: other.health()[0] == 503, timeout_s=60, what="the second is culled")


def test_health_does_not_wait_for_a_hung_redis(sidecar: StartSidecar, start_redis: StartRedis) -> None:
    server = start_redis()
    one = sidecar("one", **FAST | {"redis_timeout": "10s", "check_interval": "11s"}, redis_url=server.url)
    wait_for(lambda: one.metrics()["arbiter_budget_reachable"] == 1, timeout_s=60, what="Redis is reached")
    server.pause()
    with ThreadPoolExecutor(1) as pool:
        pool.submit(command, one, "cull", "--yes")  # an order claims without a beat before it
        wait_for(lambda: (one.verdict()["claim"] or {}).get("outstanding"), timeout_s=60, what="a claim is on its way")
        for _ in range(30):
            assert one.health() == (200, "up\n")
        assert one.verdict()["claim"] == {"outstanding": True}, "Redis still hangs after thirty answers"
        server.resume()


def test_sidecar_starts_without_redis(sidecar: StartSidecar, start_redis: StartRedis) -> None:
    server = start_redis()
    server.kill()
    one = sidecar("one", **FAST, redis_url=server.url)
    assert one.health() == (200, "up\n")
    server.start()
    one.post_error(5)
    wait_for(lambda: one.health()[0] == 503, timeout_s=60, what="it reaches Redis and is culled")


def test_no_password_is_ever_shown(sidecar: StartSidecar, redis_server: RedisServer) -> None:
    secret = "hunter2secret"
    url = redis_server.url.replace("redis://", f"redis://:{secret}@")
    one = sidecar("one", **FAST, redis_url=url)
    one.post_error(5)
    wait_for(lambda: "auth" in _reasons_away(one), timeout_s=60, what="the beat is refused")
    shown = [one.output(), str(one.verdict()), one.request("public", "GET", "/metrics").body, one.health()[1]]
    assert not [text for text in shown if secret in text]
