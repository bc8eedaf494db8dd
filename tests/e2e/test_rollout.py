"""A rollout from shadow to enforce: the mode that each container shows, and orders that reach both parts."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import pytest

from harness.sidecar import ASKS_AGAIN
from harness.waiting import wait_for
from sidecar.config.settings import IdentityConfig

if TYPE_CHECKING:
    from harness.children import StartSidecar
    from harness.redis_server import RedisServer
    from harness.sidecar import Setting, Sidecar

pytestmark = [pytest.mark.redis, pytest.mark.process]

PLACES: Final = {name: IdentityConfig(service="app", instance=name).place for name in map("web-{}".format, range(100))}
EARLY: Final = next(name for name, place in PLACES.items() if place < 50)
LATE: Final = next(name for name, place in PLACES.items() if place >= 50)


@pytest.fixture
def pair(sidecar: StartSidecar, redis_server: RedisServer) -> tuple[Sidecar, Sidecar]:
    """Two sidecars of a fleet of which half enforces; the first one does. Each half has one token."""
    rollout_settings: dict[str, Setting] = {
        "redis_url": redis_server.url,
        "enforce_percent": 50,
        "budget": "1",
        **ASKS_AGAIN,
    }
    return sidecar(EARLY, **rollout_settings), sidecar(LATE, **rollout_settings)


def _would_be_culled(one: Sidecar) -> bool:
    return one.metrics()["arbiter_would_culls_total"] == 1


def test_enforcing_part_is_culled_and_the_shadow_part_only_would_be(pair: tuple[Sidecar, Sidecar]) -> None:
    """The cull that only would have been takes no token of the enforcing part."""
    enforcing, shadow = pair
    shadow.post_error(5)
    wait_for(lambda: _would_be_culled(shadow), timeout_s=60, what="it would be culled")
    enforcing.post_error(5)
    wait_for(lambda: enforcing.health()[0] == 503, timeout_s=60, what="the one that enforces is culled")
    assert shadow.health() == (200, "up\n")
    assert shadow.agent_line() == "up ready 100%\n"
    assert shadow.metrics()["arbiter_culls_total"] == 0
    assert enforcing.metrics()["arbiter_would_culls_total"] == 0
