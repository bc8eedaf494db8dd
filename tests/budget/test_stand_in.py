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

from harness.claims import ask, beat, lease, warm, without_time
from sidecar.budget import scripts
from sidecar.core.members import pack
from sidecar.core.terms import Share
from sidecar.core.words import About, Denied, Fleet, Granted, Presence, Roll, State, Unknown

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
        for script in (*scripts.read(), scripts.read_retire(), scripts.read_resign(), scripts.read_roll()):
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


async def test_one_of_two_goes_for_its_age_and_comes_back(stand_in: TcpFakeServer, open_budget: OpenBudget) -> None:
    budget = open_budget(_url(stand_in))
    for name in "abc":
        assert isinstance(await budget.beat(beat(name)), Fleet)
    assert await budget.retire(lease("a")) == Granted(1, 1, alive=3, left_s=300.0)
    assert without_time(await budget.retire(lease("a"))) == Granted(1, 1, replayed=True, alive=2)
    assert isinstance(await budget.beat(beat("a", Presence.DOWN, lease="a's")), Fleet)
    refused = await budget.retire(lease("b"))
    assert isinstance(refused, Denied)
    assert refused.reason == "slots"
    assert [await budget.resign("a", holder) for holder in ("b's", "a's")] == [False, True]
    assert without_time(await budget.retire(lease("b"))) == Granted(1, 1, alive=2)


async def test_roll_has_what_sidecars_told_and_who_departed(stand_in: TcpFakeServer, open_budget: OpenBudget) -> None:
    budget, about = open_budget(_url(stand_in)), About(State.UP, 7, "a|b", 100, 0, 5, "0.9")
    for told in (beat("a", about=pack(about)), beat("b", about=pack(about)), beat("c"), beat("b", Presence.GONE)):
        assert isinstance(await budget.beat(told), Fleet)
    roll = await budget.roll()
    assert isinstance(roll, Roll)
    assert [(member.instance, member.about) for member in roll.members] == [("a", about), ("c", None)]
    assert [instance for instance, _ in roll.departed] == ["b"]


async def test_nobody_at_the_address_is_unknown(open_budget: OpenBudget) -> None:
    server = TcpFakeServer(("127.0.0.1", 0), server_type="redis")
    url = _url(server)
    server.server_close()
    assert await ask(open_budget(url), "a") == Unknown("connection")
