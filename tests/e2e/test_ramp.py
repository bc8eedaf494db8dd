"""From shadow to enforce: a fleet of which some enforce, what each part says of itself, and orders that reach all."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any, Final

import pytest

from harness.command import command
from harness.waiting import wait_for
from sidecar.config import rollout

if TYPE_CHECKING:
    from harness.redis_server import RedisServer
    from harness.sidecar import Setting, Sidecar
    from harness.starting import StartSidecar

FAST: Final = {"settle": "0s", "drain": "0s", "check_interval": "1s", "redis_timeout": "900ms", "beat_interval": "1s"}
PLACES: Final = {f"web-{number}": rollout.place("app", f"web-{number}") for number in range(100)}
EARLY: Final = next(name for name, place in PLACES.items() if place < 50)
LATE: Final = next(name for name, place in PLACES.items() if place >= 50)
HOLD: Final = ("hold", "--for", "1h", "--reason", "look", "--author", "alice")


@pytest.fixture
def pair(sidecar: StartSidecar, redis_server: RedisServer) -> tuple[Sidecar, Sidecar]:
    """Half of the fleet enforces: of these two, the first."""
    ramped: dict[str, Setting] = {"redis_url": redis_server.url, "enforce_percent": 50, **FAST}
    return sidecar(EARLY, **ramped), sidecar(LATE, **ramped)


def _would_be_culled(one: Sidecar) -> bool:
    return one.metrics()["arbiter_would_culls_total"] == 1


def _listening(one: Sidecar) -> list[dict[str, Any]]:
    return [line for line in one.log_lines() if line["message"] == "listening"]


def _is_held(one: Sidecar) -> bool:
    return bool((one.verdict()["claim"] or {}).get("reason") == "hold")


def test_those_on_the_way_are_culled_and_the_others_only_would_be(pair: tuple[Sidecar, Sidecar]) -> None:
    enforcing, shadow = pair
    for one in pair:
        one.post_error(5)
    wait_for(lambda: enforcing.health()[0] == 503, timeout_s=30, what="the one that enforces is culled")
    wait_for(lambda: _would_be_culled(shadow), timeout_s=30, what="the other would be")
    assert shadow.health() == (200, "up\n")
    assert shadow.agent_line() == "up ready 100%\n"
    assert shadow.metrics()["arbiter_culls_total"] == 0
    assert enforcing.metrics()["arbiter_would_culls_total"] == 0


def test_every_door_says_what_this_container_does_and_not_what_was_set(
    pair: tuple[Sidecar, Sidecar], redis_server: RedisServer
) -> None:
    for one, mode in zip(pair, ("enforce", "shadow"), strict=True):
        assert one.verdict()["mode"] == mode
        assert one.request("local", "GET", "/why").json()["mode"] == mode
        assert one.request("public", "GET", "/why").json()["mode"] == mode
        assert one.request("local", "GET", "/fleet").json()["mode"] == mode
        assert one.request("local", "GET", "/events").json()["mode"] == mode
        (build,) = (name for name in one.metrics() if name.startswith("arbiter_build_info"))
        assert f'mode="{mode}"' in build
        (listening,) = wait_for(partial(_listening, one), timeout_s=30, what="its log says that it listens")
        assert (listening["mode"], listening["enforce_percent"]) == (mode, 50)

    def fleets() -> list[list[str]]:
        return [redis_server.cli("ZRANGE", f"{{ha:default/app}}{part}:alive", 0, -1) for part in ("", ":shadow")]

    wait_for(lambda: fleets() == [[EARLY], [LATE]], timeout_s=20, what="each is in the fleet of its part")


@pytest.mark.parametrize("told", [0, 1], ids=["told one that enforces", "told one in shadow"])
def test_hold_and_release_of_a_person_reach_both_parts(pair: tuple[Sidecar, Sidecar], told: int) -> None:
    there = pair[told]
    assert command(there, *HOLD).code == 0
    for one in pair:
        one.post_error(5)
        wait_for(partial(_is_held, one), timeout_s=30, what="its claim meets the hold")
    assert pair[0].health()[0] == 200
    assert not _would_be_culled(pair[1])
    assert command(pair[1 - told], "release").code == 0
    wait_for(lambda: pair[0].health()[0] == 503, timeout_s=20, what="the one that enforces is culled after all")
    wait_for(lambda: _would_be_culled(pair[1]), timeout_s=20, what="the other would be")


def test_raised_percentage_only_adds(pair: tuple[Sidecar, Sidecar]) -> None:
    for one in pair:
        one.stop()
        one.settings["enforce_percent"] = 100
        one.start()
        assert one.verdict()["mode"] == "enforce"
        one.stop()
        one.settings["enforce_percent"] = 0
        one.start()
        assert one.verdict()["mode"] == "shadow"


def test_container_that_was_culled_is_back_when_it_enforces_no_more(pair: tuple[Sidecar, Sidecar]) -> None:
    """As with any step from enforce to shadow: who is in shadow is never down."""
    enforcing, _ = pair
    enforcing.post_error(5)
    wait_for(lambda: enforcing.health()[0] == 503, timeout_s=30, what="it is culled")
    enforcing.kill()
    enforcing.settings["enforce_percent"] = 0
    enforcing.start()
    assert enforcing.health() == (200, "up\n")


def test_hold_that_reaches_nobody_is_told_as_such(pair: tuple[Sidecar, Sidecar], redis_server: RedisServer) -> None:
    redis_server.kill()
    assert command(pair[0], *HOLD).code == 1
    for one in pair:
        one.post_error(5)
    redis_server.start()  # before the fleet has heard of a suspect again there is no claim
    wait_for(partial(_is_held, pair[0]), timeout_s=30, what="it is held here all the same")
    wait_for(lambda: _would_be_culled(pair[1]), timeout_s=30, what="the other is not")
