"""A hold across real sidecars: which culls it stops, who sees the reason, and its effect without Redis."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from harness.fleet_driver import await_answers, await_denied, claim
from harness.sidecar import command
from harness.waiting import wait_for

if TYPE_CHECKING:
    from harness.children import StartSidecar
    from harness.redis_server import RedisServer
    from harness.sidecar import Sidecar

FAST = {"settle": "0s", "drain": "0s", "check_interval": "1s", "redis_timeout": "900ms", "beat_interval": "1s"}
HOLD = ("hold", "--for", "1h", "--reason", "migration of the database", "--author", "alice")
SAID = "alice holds the service: migration of the database, no container is culled for"


def _make_sick(one: Sidecar) -> None:
    """Report too many errors, and wait for the answer to the claim."""
    one.post_error(10)
    await_answers(one)


def _is_down(one: Sidecar) -> bool:
    return one.health()[0] == 503


@pytest.fixture
def pair(sidecar: StartSidecar, redis_server: RedisServer) -> list[Sidecar]:
    return sidecar.fleet(2, redis_url=redis_server.url, **FAST)


def test_hold_set_beside_one_sidecar_keeps_the_other_up_until_it_is_released(pair: list[Sidecar]) -> None:
    here, there = pair
    assert command(here, *HOLD).code == 0
    _make_sick(there)
    last = claim(there)
    assert (last["outcome"], last["reason"]) == ("denied", "hold")
    assert last["sentence"].startswith(SAID)
    until = "arbiter_hold_until_timestamp_seconds"
    wait_for(lambda: there.metrics().get(until, 0) > 0, timeout_s=60, what="the metric has the hold")
    assert there.health()[0] == 200
    assert "alice" not in there.health()[1]
    assert "alice" not in there.request("public", "GET", "/metrics").body
    assert command(here, "release").out.startswith("the service is released; ")
    wait_for(lambda: _is_down(there), timeout_s=60, what="the other is culled")
    assert not _is_down(here)


def test_hold_of_one_instance_leaves_the_other_to_be_culled(pair: list[Sidecar]) -> None:
    here, there = pair
    assert command(here, *HOLD, "--instance", "n01").code == 0
    _make_sick(there)
    assert claim(there)["reason"] == "hold"
    _make_sick(here)
    wait_for(lambda: _is_down(here), timeout_s=60, what="the container without a hold is culled")
    assert not _is_down(there)


def test_hold_set_while_redis_is_away_holds_this_one_also_when_it_is_back(
    pair: list[Sidecar], redis_server: RedisServer
) -> None:
    here, there = pair
    redis_server.kill()
    assert command(here, *HOLD).code == 1
    for one in pair:
        one.post_error(10)
    redis_server.start()
    assert await_denied(here, "hold")["sentence"].startswith(SAID)
    wait_for(lambda: _is_down(there), timeout_s=60, what="the other, without a hold, is culled")
    assert claim(here)["reason"] == "hold"
    assert not _is_down(here)
    assert command(here, "release").out.startswith("the service is released; ")
    wait_for(lambda: _is_down(here), timeout_s=60, what="it is culled")
