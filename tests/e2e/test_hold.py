"""A hold across real sidecars: whom it keeps from being culled, who hears why, and what is left of it without Redis."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from harness.command import command
from harness.crew import await_answers, await_denied, claim
from harness.waiting import wait_for

if TYPE_CHECKING:
    from harness.redis_server import RedisServer
    from harness.sidecar import Sidecar
    from harness.starting import StartSidecar

FAST = {"settle": "0s", "drain": "0s", "check_interval": "1s", "redis_timeout": "900ms", "beat_interval": "1s"}
HOLD = ("hold", "--for", "1h", "--reason", "migration of the database", "--author", "alice")
SAID = "alice holds the service: migration of the database, no container is culled for"


def _suffer(one: Sidecar) -> None:
    """Too many errors, and the clear answer to the claim that follows."""
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
    _suffer(there)
    told = claim(there)
    assert (told["outcome"], told["reason"]) == ("denied", "hold")
    assert told["sentence"].startswith(SAID)
    until = "arbiter_hold_until_timestamp_seconds"
    wait_for(lambda: there.metrics().get(until, 0) > 0, timeout_s=20, what="the metric tells of the hold")
    assert there.health()[0] == 200
    assert "alice" not in there.health()[1]
    assert "alice" not in there.request("public", "GET", "/metrics").body
    assert command(here, "release").out.startswith("the service is released; ")
    wait_for(lambda: _is_down(there), timeout_s=20, what="the other is culled after all")
    assert not _is_down(here)


def test_hold_of_one_instance_leaves_the_other_to_be_culled(pair: list[Sidecar]) -> None:
    here, there = pair
    assert command(here, *HOLD, "--instance", "n01").code == 0
    _suffer(there)
    assert claim(there)["reason"] == "hold"
    _suffer(here)
    wait_for(lambda: _is_down(here), timeout_s=20, what="the one that is not held is culled")
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
    wait_for(lambda: _is_down(there), timeout_s=20, what="the other is not held, and culled")
    assert claim(here)["reason"] == "hold"
    assert not _is_down(here)
    assert command(here, "release").out.startswith("the service is released; ")
    wait_for(lambda: _is_down(here), timeout_s=20, what="it is culled after all")
