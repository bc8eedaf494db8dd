"""The client of Redis is made at the first call, in a thread: importing redis-py must not delay a health answer."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import threading
from typing import TYPE_CHECKING

import pytest

from harness.stores import FRESH, claim, look, word_of
from sidecar.store import redis_client

if TYPE_CHECKING:
    from collections.abc import Callable

    from harness.redis_server import RedisServer
    from store.conftest import OpenStore

UNOPENED = """
import asyncio, sys
from sidecar.store.redis import RedisStore
store = RedisStore("redis://localhost", prefix="p", timeout_s=1)
asyncio.run(store.aclose())
print([name for name in sys.modules if name.partition(".")[0] in ("redis", "hiredis")])
"""


class Opening:
    """Replaces the constructor of the client: records the threads that call it, fails on demand."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self._made = redis_client.RedisClient
        self.threads: list[threading.Thread] = []
        self.failures: list[Exception] = []
        monkeypatch.setattr(redis_client, "RedisClient", self)

    def __call__(self, *args: object, **named: object) -> object:
        self.threads.append(threading.current_thread())
        if self.failures:
            raise self.failures.pop()
        make: Callable[..., object] = self._made
        return make(*args, **named)


@pytest.fixture
def opening(monkeypatch: pytest.MonkeyPatch) -> Opening:
    return Opening(monkeypatch)


def test_nothing_of_redis_py_is_imported_before_the_first_call() -> None:
    ran = subprocess.run([sys.executable, "-c", UNOPENED], capture_output=True, text=True, check=True, timeout=90)
    assert ran.stdout.strip() == "[]"


async def test_client_is_made_once_for_calls_at_the_same_time_and_not_in_the_thread_of_the_loop(
    redis_server: RedisServer, open_store: OpenStore, opening: Opening
) -> None:
    store = open_store(redis_server.url)
    assert opening.threads == []
    await asyncio.gather(*(look(store) for _ in range(5)))
    (thread,) = opening.threads
    assert thread is not threading.current_thread()


async def test_failure_is_reported_answered_with_a_word_and_tried_again(
    redis_server: RedisServer, open_store: OpenStore, opening: Opening
) -> None:
    reported: list[Exception] = []
    store = open_store(redis_server.url, on_failure=reported.append)
    opening.failures = [ImportError("no such client"), ImportError("no such client")]
    assert [await word_of(look(store)), await word_of(look(store))] == ["internal", "internal"]
    assert [str(error) for error in reported] == ["no such client"] * 2
    assert await claim(store, "a") == FRESH
