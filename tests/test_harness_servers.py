"""The servers and sidecars that the harness starts are real, and do what their options promise."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import redis
from redis.backoff import NoBackoff
from redis.retry import Retry

from harness.haproxy import Haproxy
from harness.ports import free_port, is_open, wait_for
from harness.redis_server import RedisServer
from harness.starting import StartHaproxy, StartRedis, StartSidecar

# Redis


def test_redis_answers_at_its_url_and_its_socket(redis_server: RedisServer) -> None:
    redis_server.cli("SET", "colour", "blue")

    with (
        redis.Redis.from_url(redis_server.url) as by_url,
        redis.Redis(unix_socket_path=str(redis_server.unix_socket)) as by_socket,
    ):
        assert by_url.get("colour") == by_socket.get("colour") == b"blue"


def test_redis_restarted_is_empty_and_at_the_same_place(redis_server: RedisServer) -> None:
    url, pid = redis_server.url, redis_server.pid
    redis_server.cli("SET", "colour", "blue")

    redis_server.restart()

    assert redis_server.cli("DBSIZE") == 0
    assert (redis_server.url, redis_server.pid == pid) == (url, False)


def test_redis_with_a_password_wants_it(start_redis: StartRedis) -> None:
    server = start_redis(password="s:e/c@ret")

    without_it = redis.Redis("127.0.0.1", server.port, retry=Retry(NoBackoff(), 0))
    with redis.Redis.from_url(server.url) as with_it, without_it:
        assert with_it.ping()
        with pytest.raises(redis.AuthenticationError):
            without_it.ping()


@pytest.mark.parametrize(
    ("options", "word"),
    [({"maxmemory": 1}, "OOM|used memory"), ({"read_only": True}, "read only replica")],
    ids=["out of memory", "read only"],
)
def test_redis_refuses_to_write_when(options: dict[str, Any], word: str, start_redis: StartRedis) -> None:
    server = start_redis(**options)

    with pytest.raises(redis.ResponseError, match=word):
        server.cli("SET", "colour", "blue")


@pytest.mark.parametrize(
    "moments",
    [
        pytest.param([1_700_000_000.0, 1_700_000_600.0], id="forwards"),
        pytest.param([1_700_000_600.0, 1_700_000_000.0], id="backwards"),
        pytest.param([1_699_999_999.999_999, 1_700_000_000.0, 1_700_000_000.000_001], id="by a microsecond"),
        pytest.param([946_684_800.5, 1_893_456_000.25], id="by decades"),
    ],
)
def test_redis_time_is_what_it_was_set_to(moments: list[float], faketime_redis: RedisServer) -> None:
    for moment in moments:
        faketime_redis.set_time(moment)

        seconds, micros = (int(part) for part in faketime_redis.cli("EVAL", "return redis.call('TIME')", 0))

        assert (seconds * 1_000_000 + micros) == round(moment * 1_000_000)
        assert faketime_redis.cli("TIME") == (seconds, micros)


def test_redis_time_stands_still_until_it_is_moved(faketime_redis: RedisServer) -> None:
    before = faketime_redis.cli("TIME")
    assert [faketime_redis.cli("TIME") for _ in range(20)] == [before] * 20

    faketime_redis.advance(2.5)
    assert faketime_redis.cli("TIME") == (before[0] + 2, before[1] + 500_000)


def test_redis_keys_expire_by_the_time_that_was_set(faketime_redis: RedisServer) -> None:
    faketime_redis.cli("SET", "colour", "blue", "EX", 600)

    faketime_redis.advance(599)
    assert faketime_redis.cli("GET", "colour") == "blue"

    faketime_redis.advance(2)
    assert faketime_redis.cli("GET", "colour") is None


def test_redis_with_a_set_time_leaves_nothing_in_shared_memory_when_killed(faketime_redis: RedisServer) -> None:
    pid = faketime_redis.pid

    faketime_redis.kill()

    assert not list(Path("/dev/shm").glob(f"*faketime*_{pid}"))


# HAProxy

CONFIG = """
defaults
  mode http
  timeout client 5s
  timeout server 5s
  timeout connect 5s
frontend front
  bind 127.0.0.1:{port}
  default_backend apps
backend apps
  server one 127.0.0.1:9
  server two 127.0.0.1:9 disabled
"""


def test_haproxy_tells_how_each_server_stands(haproxy: StartHaproxy) -> None:
    port = free_port()

    proxy = haproxy(CONFIG.format(port=port))

    assert is_open(port)
    assert {key: row["status"] for key, row in proxy.show_servers().items()} == {
        ("apps", "one"): "no check",
        ("apps", "two"): "MAINT",
    }


def test_haproxy_takes_orders(haproxy: StartHaproxy) -> None:
    proxy = haproxy(CONFIG.format(port=free_port()))

    proxy.admin("enable server apps/two")

    assert proxy.show_servers()["apps", "two"]["status"] == "no check"


@pytest.mark.haproxy
def test_haproxy_with_a_wrong_configuration_is_not_started(run_dir: Path) -> None:
    proxy = Haproxy(run_dir, "backend apps\n  no-such-word\n")

    with pytest.raises(AssertionError, match="no-such-word"):
        proxy.start()
    assert not proxy.alive


# Sidecars


def test_a_sidecar_answers_at_all_its_doors(sidecar: StartSidecar, run_dir: Path) -> None:
    one = sidecar("one", socket=run_dir / "one.sock", settle=0)
    assert one.health() == (200, "up\n")
    assert one.agent_line() == "up ready 100%\n"
    assert one.verdict()["state"] == "up"

    assert one.post_error(4, kind="redis") == {"state": "up"}
    assert one.request("socket", "POST", "/errors").json() == {"state": "up"}

    wait_for(lambda: one.health()[0] == 503, timeout_s=20, what="the fifth error brings it down")
    assert one.agent_line().startswith("drain ")
    assert one.metrics()['arbiter_state_changes_total{state="draining"}'] == 1


def test_a_sidecar_tells_its_log_line_by_line(sidecar: StartSidecar) -> None:
    one = sidecar("one")
    one.stop()
    with one.log.open("a") as log:
        log.write('garbage\n{"message": "not yet comp')

    lines = one.log_lines()

    assert lines[0]["instance"] == "one"
    assert lines[-1] == {"unparsed": "garbage"}


def test_a_sidecar_told_to_stop_ends_well(sidecar: StartSidecar) -> None:
    one = sidecar()

    one.terminate()

    assert one.wait() == 0


def test_a_sidecar_started_again_is_at_the_same_place(sidecar: StartSidecar) -> None:
    one = sidecar()
    before = one.address("local"), one.address("public"), one.address("agent")

    one.kill()
    one.start()

    assert (one.address("local"), one.address("public"), one.address("agent")) == before
    assert one.health() == (200, "up\n")


def test_a_sidecar_that_refuses_to_start_tells_its_exit_code(sidecar: StartSidecar) -> None:
    one = sidecar.unstarted(error_limit=0)

    one.launch()

    assert one.wait() == 2
    assert "ARBITER_ERROR_LIMIT" in one.output()


def test_a_sidecar_does_not_inherit_the_settings_of_the_run(
    sidecar: StartSidecar, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ARBITER_MODE", "shadow")
    monkeypatch.setenv("NOMAD_ALLOC_ID", "of-the-run")

    verdict = sidecar().verdict()

    assert verdict["mode"] == "enforce"
    assert "of-the-run" not in json.dumps(verdict)


def test_a_fleet_shares_its_settings_and_nothing_else(sidecar: StartSidecar) -> None:
    fleet = sidecar.fleet(3, mode="shadow")

    assert [one.verdict()["mode"] for one in fleet] == ["shadow"] * 3
    assert len({one.address("local") for one in fleet}) == 3
    first = [wait_for(one.log_lines, timeout_s=20, what="the first line is written")[0] for one in fleet]
    assert [line["instance"] for line in first] == ["n00", "n01", "n02"]
