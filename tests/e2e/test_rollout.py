"""A rollout from shadow to enforce: the mode that each container shows, and orders that reach both parts."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any, Final

import pytest

from harness.sidecar import ASKS_AGAIN, AT_ONCE, command
from harness.waiting import wait_for
from sidecar.config import rollout

if TYPE_CHECKING:
    from harness.children import StartSidecar
    from harness.redis_server import RedisServer
    from harness.sidecar import Setting, Sidecar

pytestmark = [pytest.mark.redis, pytest.mark.process]

PLACES: Final = {f"web-{number}": rollout.place("app", f"web-{number}") for number in range(100)}
EARLY: Final = next(name for name, place in PLACES.items() if place < 50)
LATE: Final = next(name for name, place in PLACES.items() if place >= 50)
HEALTH: Final = ("/health", "/health/haproxy", "/health/nomad", "/health/restart", "/livez", "/readyz")
HOLD: Final = ("hold", "--for", "1h", "--reason", "look", "--author", "alice")


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


def _listening(one: Sidecar) -> list[dict[str, Any]]:
    return [line for line in one.log_lines() if line["message"] == "listening"]


def _is_held(one: Sidecar) -> bool:
    return bool((one.verdict()["claim"] or {}).get("reason") == "hold")


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


@pytest.mark.site
def test_every_listener_shows_the_effective_mode(pair: tuple[Sidecar, Sidecar], redis_server: RedisServer) -> None:
    for one, mode in zip(pair, ("enforce", "shadow"), strict=True):
        assert one.verdict()["mode"] == mode
        assert one.request("local", "GET", "/why").json()["mode"] == mode
        assert one.request("public", "GET", "/why").json()["mode"] == mode
        assert one.request("local", "GET", "/fleet").json()["mode"] == mode
        assert one.request("local", "GET", "/events").json()["mode"] == mode
        (build,) = (name for name in one.metrics() if name.startswith("arbiter_build_info"))
        assert f'mode="{mode}"' in build
        (listening,) = wait_for(partial(_listening, one), timeout_s=60, what="it logs that it listens")
        assert (listening["mode"], listening["enforce_percent"]) == (mode, 50)

    def fleets() -> list[list[str]]:
        return [redis_server.cli("ZRANGE", f"{{ha:default/app}}{part}:alive", 0, -1) for part in ("", ":shadow")]

    wait_for(lambda: fleets() == [[EARLY], [LATE]], timeout_s=60, what="each has beaten in the fleet of its part")


@pytest.mark.site
@pytest.mark.parametrize("place_of_order", [0, 1], ids=["set beside one that enforces", "set beside one in shadow"])
def test_hold_and_release_of_a_person_reach_both_parts(pair: tuple[Sidecar, Sidecar], place_of_order: int) -> None:
    there = pair[place_of_order]
    assert command(there, *HOLD).code == 0
    for one in pair:
        one.post_error(5)
        wait_for(partial(_is_held, one), timeout_s=60, what="its claim is denied by the hold")
    assert pair[0].health()[0] == 200
    assert not _would_be_culled(pair[1])
    assert command(pair[1 - place_of_order], "release").code == 0
    for one in pair:
        one.post_error(1)  # old errors claim nothing
    wait_for(lambda: pair[0].health()[0] == 503, timeout_s=60, what="the enforcing one is culled")
    wait_for(lambda: _would_be_culled(pair[1]), timeout_s=60, what="the other would be culled")


@pytest.mark.site
def test_percentage_0_and_100_mean_none_and_all(pair: tuple[Sidecar, Sidecar]) -> None:
    for one in pair:
        one.stop()
        one.settings["enforce_percent"] = 100
        one.start()
        assert one.verdict()["mode"] == "enforce"
        one.stop()
        one.settings["enforce_percent"] = 0
        one.start()
        assert one.verdict()["mode"] == "shadow"


@pytest.mark.site
def test_culled_container_is_up_again_when_it_no_longer_enforces(pair: tuple[Sidecar, Sidecar]) -> None:
    """A container in shadow mode is never down."""
    enforcing, _ = pair
    enforcing.post_error(5)
    wait_for(lambda: enforcing.health()[0] == 503, timeout_s=60, what="it is culled")
    enforcing.kill()
    enforcing.settings["enforce_percent"] = 0
    enforcing.start()
    assert enforcing.health() == (200, "up\n")


@pytest.mark.site
def test_hold_without_redis_holds_only_this_container_and_says_so(
    pair: tuple[Sidecar, Sidecar], redis_server: RedisServer
) -> None:
    redis_server.kill()
    assert command(pair[0], *HOLD).code == 1
    for one in pair:
        one.post_error(5)
    redis_server.start()  # a suspect claims only after a beat
    wait_for(partial(_is_held, pair[0]), timeout_s=60, what="this one is held")
    wait_for(lambda: _would_be_culled(pair[1]), timeout_s=60, what="the other is not held")
