"""A hold across real sidecars: which culls it stops, who sees the reason, and its effect without Redis."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from harness.fleet_driver import await_denied
from harness.sidecar import ASKS_AGAIN, command
from harness.waiting import wait_for

if TYPE_CHECKING:
    from harness.children import StartSidecar
    from harness.redis_server import RedisServer
    from harness.sidecar import Sidecar

pytestmark = [pytest.mark.redis, pytest.mark.process]

HOLD = ("hold", "--for", "1h", "--reason", "migration of the database", "--author", "alice")
SAID = "alice holds the service: migration of the database, no container is culled for"


def _fails_on(one: Sidecar) -> bool:
    """Whether it is down; if not, its app has another error: old errors claim nothing."""
    one.post_error(1)
    return _is_down(one)


def _is_down(one: Sidecar) -> bool:
    return one.health()[0] == 503


def test_hold_set_beside_one_sidecar_keeps_the_others_up_until_it_is_released(
    sidecar: StartSidecar, redis_server: RedisServer
) -> None:
    """A hold of one instance leaves the others to be culled; a hold of the service keeps them all."""
    here, there, other = sidecar.fleet(3, redis_url=redis_server.url, **ASKS_AGAIN)
    assert command(here, *HOLD, "--instance", "n01").code == 0
    there.post_error(10)
    await_denied(there, "hold")
    other.post_error(10)
    wait_for(lambda: _is_down(other), timeout_s=60, what="the container without a hold is culled")

    assert command(here, *HOLD).code == 0
    here.post_error(10)
    assert await_denied(here, "hold")["sentence"].startswith(SAID)
    until = "arbiter_hold_until_timestamp_seconds"
    wait_for(lambda: here.metrics().get(until, 0) > 0, timeout_s=60, what="the metric has the hold")
    for one in (here, there):
        assert one.health() == (200, "up\n")
        assert "alice" not in one.request("public", "GET", "/metrics").body
    assert command(there, "release").out.startswith("the service is released; ")
    wait_for(lambda: _fails_on(here), timeout_s=60, what="the released container is culled at its next check")
    assert not _is_down(there), "its own hold still counts"
