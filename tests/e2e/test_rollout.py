"""A rollout from shadow to enforce: the mode that each container shows, and orders that reach both parts."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import pytest

from harness.sidecar import ASKS_AGAIN, AT_ONCE
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
HEALTH: Final = ("/health", "/health/haproxy", "/health/nomad", "/health/restart", "/livez", "/readyz")


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


def test_balancers_see_an_idle_container_where_shadow_mode_would_cull(sidecar: StartSidecar) -> None:
    """Seven of twelve requests fail: enforce mode would lower the weight, and then take the container out."""
    settings: dict[str, Setting] = {**AT_ONCE, "beat_interval": "10s"}
    one = sidecar("a", mode="shadow", **settings)
    wait_for(lambda: one.health("/readyz")[0] == 200, timeout_s=60, what="it has made its first check")
    idle = _shown(one)
    one.request("local", "POST", "/results", '{"ok":5,"failed":7}')
    wait_for(
        lambda: one.metrics().get("arbiter_success_rate", 1.0) < 0.5,
        timeout_s=60,
        what="the failures have been counted",
    )
    one.post_error(7, kind="redis")
    wait_for(lambda: _would_be_culled(one), timeout_s=60, what="it would be culled")
    assert _shown(one) == idle
    assert idle["agent"] == "up ready 100%\n"
    assert idle["/health/haproxy"]["X-Arbiter-Weight"] == "100"
    assert "x-envoy-degraded" not in idle["/health/haproxy"]
    assert one.metrics()["arbiter_would_weight"] == 0
    assert one.metrics()["arbiter_weight"] == 100


def _shown(one: Sidecar) -> dict[str, Any]:
    """What balancers and schedulers read, without the dates."""
    replies = {path: one.request("public", "GET", path) for path in HEALTH}
    shown = {
        path: {**dict(reply.headers), "Date": "", "status": reply.status, "body": reply.body}
        for path, reply in replies.items()
    }
    return {"agent": one.agent_line(), **shown}
