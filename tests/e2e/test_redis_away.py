"""Whatever Redis does, health stays up, nothing crashes, nobody is culled, and it recovers by itself."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

import pytest

from harness.command import command
from harness.waiting import wait_for

if TYPE_CHECKING:
    from collections.abc import Callable

    from harness.redis_server import RedisServer
    from harness.sidecar import Sidecar
    from harness.starting import StartRedis, StartSidecar

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


def _told_away(one: Sidecar) -> list[str]:
    """Why Redis gave no answer to beats, line by line."""
    return [line["reason"] for line in one.log_lines() if line["message"].startswith("bucket unreachable: ")]


def _waits_for_redis(one: Sidecar) -> bool:
    """Whether it is suspect, and says that it claims nothing before the fleet has heard of that."""
    return "so that the fleet hears that it is suspect" in one.request("local", "GET", "/why").json()["clears"][-1]


@pytest.mark.parametrize(("breaks", "mends", "words"), [row[1:] for row in FAILURES], ids=[row[0] for row in FAILURES])
def test_broken_redis_culls_nobody_and_is_survived(
    sidecar: StartSidecar,
    redis_server: RedisServer,
    breaks: Callable[[RedisServer], None],
    mends: Callable[[RedisServer], None],
    words: set[str],
) -> None:
    one = sidecar("one", **FAST, redis_url=redis_server.url)
    wait_for(lambda: one.metrics()["arbiter_budget_reachable"] == 1, timeout_s=20, what="Redis is reached")
    breaks(redis_server)
    one.post_error(5, kind="redis")
    wait_for(lambda: words.intersection(_told_away(one)), timeout_s=20, what=f"its log tells of one of {words}")
    wait_for(lambda: _waits_for_redis(one), timeout_s=20, what="it waits for an answer to its beat")
    assert one.health() == (200, "up\n")
    assert one.verdict()["state"] == "suspect"
    metrics = one.metrics()
    assert metrics["arbiter_budget_reachable"] == 0
    assert metrics['arbiter_failures_total{where="step"}'] == 0
    assert [value for name, value in metrics.items() if name.startswith("arbiter_claims_total{") and value] == []

    mends(redis_server)
    wait_for(lambda: one.health()[0] == 503, timeout_s=30, what="it has claimed, and is culled after all")
    assert redis_server.cli("ZCARD", "{ha:default/app}:grants") == 1
    told = _told_away(one)
    assert len(told) == len(set(told)), "the same failure is told once a minute"


def test_restarted_empty_redis_serves_claims_again(sidecar: StartSidecar, redis_server: RedisServer) -> None:
    one = sidecar("one", **FAST, redis_url=redis_server.url)
    other = sidecar("other", **FAST, redis_url=redis_server.url)
    one.post_error(5)
    wait_for(lambda: one.health()[0] == 503, timeout_s=20, what="the first is culled")
    redis_server.restart()
    assert one.health()[0] == 503
    other.post_error(5)
    wait_for(lambda: other.health()[0] == 503, timeout_s=20, what="the second is culled")


def test_health_does_not_wait_for_a_hung_redis(sidecar: StartSidecar, start_redis: StartRedis) -> None:
    server = start_redis()
    one = sidecar("one", **FAST | {"redis_timeout": "10s", "check_interval": "11s"}, redis_url=server.url)
    wait_for(lambda: one.metrics()["arbiter_budget_reachable"] == 1, timeout_s=20, what="Redis is reached")
    server.pause()
    with ThreadPoolExecutor(1) as pool:
        pool.submit(
            command, one, "cull", "--yes"
        )  # a person's order claims at once, what the errors say waits for a beat
        wait_for(lambda: (one.verdict()["claim"] or {}).get("outstanding"), timeout_s=20, what="a claim is on its way")
        for _ in range(30):
            assert one.health() == (200, "up\n")
        assert one.verdict()["claim"] == {"outstanding": True}, "thirty answers later Redis still hangs"
        server.resume()


def test_it_starts_without_redis(sidecar: StartSidecar, start_redis: StartRedis) -> None:
    server = start_redis()
    server.kill()
    one = sidecar("one", **FAST, redis_url=server.url)
    assert one.health() == (200, "up\n")
    server.start()
    one.post_error(5)
    wait_for(lambda: one.health()[0] == 503, timeout_s=20, what="it found Redis by itself")


def test_no_password_is_ever_shown(sidecar: StartSidecar, redis_server: RedisServer) -> None:
    secret = "hunter2secret"
    url = redis_server.url.replace("redis://", f"redis://:{secret}@")
    one = sidecar("one", **FAST, redis_url=url)
    one.post_error(5)
    wait_for(lambda: _told_away(one) == ["auth"], timeout_s=20, what="the beat is refused")
    shown = [one.output(), str(one.verdict()), one.request("public", "GET", "/metrics").body, one.health()[1]]
    assert not [text for text in shown if secret in text]
