from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from bench.crowd import PING, Crowd
from bench.fleet import Service
from sidecar.core.types import Presence

if TYPE_CHECKING:
    from harness.starting import StartRedis

pytestmark = pytest.mark.redis


def test_what_is_overheard_is_what_the_store_would_have_sent(start_redis: StartRedis) -> None:
    redis = start_redis()
    service = Service(redis.url, "shop", 5)
    with Crowd(("127.0.0.1", redis.port), 5) as crowd:
        crowd.all_once(service.beats())
        crowd.all_once(service.beats(Presence.SUSPECT, [1, 2]))
    assert redis.cli("ZCARD", f"{service.prefix}:alive") == 5
    assert redis.cli("HGETALL", f"{service.prefix}:causes") == {"redis": "2"}


def test_every_command_is_answered_and_counted(start_redis: StartRedis) -> None:
    redis = start_redis()
    with Crowd(("127.0.0.1", redis.port), 3) as crowd:
        before = _pings(redis.cli("INFO", "commandstats"))
        answered = crowd.race([PING], 0.05) + crowd.pace([PING], 200, 0.05)
    assert _pings(redis.cli("INFO", "commandstats")) - before == answered > 0


def test_an_error_is_no_answer(start_redis: StartRedis) -> None:
    redis = start_redis()
    with Crowd(("127.0.0.1", redis.port), 1) as crowd, pytest.raises(RuntimeError, match="ERR"):
        crowd.all_once([b"*1\r\n$5\r\nWRONG\r\n"])


def _pings(stats: dict[str, dict[str, int]]) -> int:
    return stats["cmdstat_ping"]["calls"]
