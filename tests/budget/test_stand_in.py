"""The adapter against fakeredis, for machines without a redis-server: claims, replays, and an end without warning.

Time in scripts and what a server does when it fails are tested on the real one.
"""

from __future__ import annotations

import threading
from datetime import datetime
from typing import TYPE_CHECKING

import pytest
from fakeredis import TcpFakeServer
from redis import Redis

from harness.claims import ask, warm
from sidecar.budget import scripts
from sidecar.core.terms import Share
from sidecar.core.words import Denied, Granted, Unknown

if TYPE_CHECKING:
    from collections.abc import Iterator

    from budget.conftest import OpenBudget

NOON = datetime(2026, 11, 20, 12)  # noqa: DTZ001 - the article goes by the local clock


@pytest.fixture
def stand_in() -> Iterator[TcpFakeServer]:
    server = TcpFakeServer(("127.0.0.1", 0), server_type="redis")
    server.daemon_threads = True
    threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True).start()
    with Redis.from_url(_url(server), protocol=2) as client:
        for script in scripts.read():
            client.script_load(script.text)  # it hangs up instead of saying NOSCRIPT
    yield server
    server.shutdown()
    server.server_close()


def _url(server: TcpFakeServer) -> str:
    return f"redis://127.0.0.1:{server.server_address[1]}"


@pytest.mark.parametrize("strategy", ["log", "previous", "fixed"])
async def test_two_of_three_are_granted_and_a_replay_is_free(
    stand_in: TcpFakeServer, open_budget: OpenBudget, strategy: str
) -> None:
    budget = open_budget(_url(stand_in), strategy=strategy, capacity=Share(2), local_time=lambda: NOON)
    assert await warm(budget) is None
    assert await ask(budget, "a") == Granted(1, 2)
    assert await ask(budget, "b") == Granted(2, 2)
    assert await ask(budget, "a") == Granted(2, 2, replayed=True)
    refused = await ask(budget, "c")
    assert isinstance(refused, Denied)
    assert (refused.reason, refused.used, refused.capacity) == ("window", 2, 2)
    assert 0 < refused.retry_after_s <= 1200.000001


async def test_nobody_at_the_address_is_unknown(open_budget: OpenBudget) -> None:
    server = TcpFakeServer(("127.0.0.1", 0), server_type="redis")
    url = _url(server)
    server.server_close()
    assert await ask(open_budget(url), "a") == Unknown("connection")
