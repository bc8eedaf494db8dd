"""What the gates let through: a fleet that restarts help is healed, floors hold, and goodbyes are heard."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import pytest

from harness.command import command
from harness.crew import Crew, await_denied, await_metrics
from harness.pool import Pool
from harness.sidecar import GATES, Setting
from harness.waiting import wait_for

if TYPE_CHECKING:
    from harness.redis_server import RedisServer
    from harness.starting import Children, StartSidecar

pytestmark = [pytest.mark.redis, pytest.mark.timeout(120)]

REAL: dict[str, Setting] = {
    **GATES,
    "beat_interval": "500ms",
    "settle": "300ms",
    "drain": "0s",
    "check_interval": "1s",
    "redis_timeout": "300ms",
    "probation": "1s",
    "budget": "10",
    "budget_window": "60s",
}


@pytest.fixture
def pool(sidecar: StartSidecar, children: Children) -> Pool:
    return Pool(sidecar, children)


@pytest.fixture
def start_crew(pool: Pool, redis_server: RedisServer) -> Callable[..., Crew]:
    """Starts a fleet, and hands it over once it has been heard."""

    def start(count: int, **settings: Setting) -> Crew:
        crew = Crew(pool.fleet(count, **{**REAL, "redis_url": redis_server.url, **settings}))
        crew.await_metrics(fleet_alive=count)
        return crew

    return start


def key(name: str) -> str:
    return f"{{ha:default/app}}:{name}"


def test_fleet_that_restarts_help_is_healed_by_ever_more_culls_at_once(start_crew: Callable[..., Crew]) -> None:
    crew = start_crew(12)
    sick = crew.members[:9]
    crew.suffer(*sick)
    (first,) = wait_for(crew.down, timeout_s=20, what="one is tried")
    assert "not known yet" in await_denied(next(one for one in sick if one is not first), "trial")["sentence"]
    most = 1
    while waiting := [one for one in sick if one.verdict()["state"] != "up"]:
        down = crew.down()
        most = max(most, len(down))
        crew.replace(*down)
        assert len(waiting) <= len(sick)
    assert most > 1
    crew.await_metrics(fleet_alive=12, fleet_suspect=0, fleet_down=0)


def test_release_forgives_a_cause_that_restarts_did_not_help(start_crew: Callable[..., Crew]) -> None:
    crew = start_crew(6)
    crew.suffer(*crew.members, kind="dns")
    tried = wait_for(crew.down, timeout_s=20, what="one is tried")
    crew.replace(*tried)
    crew.suffer(*tried, kind="dns")
    crew.await_metrics(**{'engineer_needed{reason="paused"}': 1})
    await_denied(crew.members[-1], "paused")
    assert crew.down() == []
    assert command(crew.members[0], "release").code == 0
    crew.await_metrics(**{'engineer_needed{reason="paused"}': 0})
    wait_for(crew.down, timeout_s=20, what="one more is tried")


@pytest.mark.parametrize(
    ("count", "min_healthy", "may_go", "reason"),
    [(4, "50%", 2, "floor"), (2, "0", 1, "last")],
    ids=["half of four stay", "the last one stays"],
)
def test_floor_holds_however_many_suffer(
    start_crew: Callable[..., Crew], count: int, min_healthy: str, may_go: int, reason: str
) -> None:
    crew = start_crew(count, min_healthy=min_healthy, trial="off")
    crew.suffer(*crew.members)
    wait_for(lambda: len(crew.down()) == may_go, timeout_s=30, what="so many go")
    down = crew.down()
    for one in crew.members:
        if one not in down:
            await_denied(one, reason)
    assert crew.down() == down
    crew.replace(*down)
    wait_for(crew.down, timeout_s=20, what="with their replacements there the next may go")
    assert len(crew.down()) <= may_go


def test_goodbye_is_heard_at_once_and_silence_after_three_beats(
    start_crew: Callable[..., Crew], sidecar: StartSidecar, redis_server: RedisServer
) -> None:
    beat_s = 1.0
    crew = start_crew(1, beat_interval=f"{beat_s}s")
    told, untold = (
        sidecar(name, **{**REAL, "beat_interval": f"{beat_s}s", "stop_drain": "30s", "redis_url": redis_server.url})
        for name in ("told", "untold")
    )
    await_metrics(crew.members[0], {"arbiter_fleet_alive": 3})

    def await_gone(name: str) -> None:
        wait_for(lambda: redis_server.cli("ZSCORE", key("alive"), name) is None, timeout_s=20, what=f"{name} is gone")

    told.terminate()
    await_gone("told")
    assert told.alive, "it said so while it still drains, and beats"
    told.kill()
    untold.kill()
    heard_us = float(redis_server.cli("ZSCORE", key("alive"), "untold"))
    await_gone("untold")
    seconds, us = redis_server.cli("TIME")
    assert 3 * beat_s <= seconds + (us - heard_us) / 1e6 <= 10 * beat_s
    await_metrics(crew.members[0], {"arbiter_fleet_alive": 1})


def test_token_of_a_cull_that_helped_is_given_back(start_crew: Callable[..., Crew], redis_server: RedisServer) -> None:
    crew = start_crew(4, budget="1")
    first, second = crew.members[:2]
    crew.suffer(first, second)
    (culled,) = wait_for(crew.down, timeout_s=20, what="one of the two is culled")
    waits = second if culled is first else first
    crew.replace(culled)
    crew.await_down(waits)
    refunded = redis_server.cli("ZRANGE", key("refunded"), 0, -1)
    assert refunded == [f"app/{culled.settings['instance']}/life-1"]
    assert redis_server.cli("ZCARD", key("grants")) == 2
