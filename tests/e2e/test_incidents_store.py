"""What happens to the store of a fleet of real sidecars: lost keys, stepped clocks, other settings, other versions.

Never are more than N containers culled in a window of real time, and nothing in the store stops the culls for longer
than a window. Beats of 0.5 s stand for the default of 10 s.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from contextlib import ExitStack
from datetime import datetime
from typing import TYPE_CHECKING, Any, Final

import pytest

from harness.command import command
from harness.crew import Crew, await_denied, await_metrics
from harness.pool import Pool
from harness.relay import Relay
from harness.sidecar import GATES, NO_GATES, Setting, Sidecar
from harness.waiting import wait_for

if TYPE_CHECKING:
    from harness.redis_server import RedisServer
    from harness.starting import Children, StartRedis, StartSidecar

pytestmark = [pytest.mark.redis, pytest.mark.timeout(120)]

BEAT_S: Final = 0.5
BUDGET: Final = 2
QUICK: dict[str, Setting] = {
    "beat_interval": f"{BEAT_S}s",
    "settle": "300ms",
    "drain": "0s",
    "check_interval": "1s",
    "redis_timeout": "300ms",
    "budget_window": "60s",
}
BOUND: dict[str, Setting] = {**NO_GATES, **QUICK, "after_data_loss": "wait", "budget": str(BUDGET)}
"""The bound alone: everybody who is sick is culled, up to the budget."""
ALL: dict[str, Setting] = {**GATES, **QUICK, "budget": "10", "probation": "2s"}


@pytest.fixture
def pool(sidecar: StartSidecar, children: Children) -> Pool:
    return Pool(sidecar, children, hosts=1)


@pytest.fixture
def start_crew(pool: Pool, redis_server: RedisServer) -> Callable[..., Crew]:
    """Starts a fleet, and hands it over once it may cull."""

    def start(count: int, **settings: Setting) -> Crew:
        return ready(pool.fleet(count, **{**BOUND, "redis_url": redis_server.url, **settings}))

    return start


def ready(fleet: list[Sidecar], down: int = 0) -> Crew:
    """The fleet once it has been heard, of which so many are down."""
    crew = Crew(fleet[down:])
    await_metrics(fleet[-1], {"arbiter_fleet_alive": len(fleet) - down})
    pass_beats(3)
    return crew


def key(name: str, service: str = "app") -> str:
    return f"{{ha:default/{service}}}:{name}"


def pass_beats(number: float) -> None:
    """Let so many beats pass: what must not happen has the time to."""
    time.sleep(number * BEAT_S)


def spend(crew: Crew, count: int = BUDGET) -> list[Sidecar]:
    """Have so many culled, and hand over the others."""
    crew.suffer(*crew.members[:count])
    crew.await_down(*crew.members[:count])
    return crew.members[count:]


def await_spent(crew: Crew, what: str) -> None:
    wait_for(lambda: len(crew.down()) == BUDGET, timeout_s=30, what=what)


# -- lost keys --------------------------------------------------------------------------------------------------------

KEYS: Final = (
    *("state", "culls", "leases", "holds", "settings", "alive", "members", "causes", "control", "grants", "refunded"),
    *("departed", "errors", "ratios", "abouts", "events", "noted"),
)


def test_no_key_that_is_lost_alone_gives_a_token_too_many(pool: Pool, redis_server: RedisServer) -> None:
    """One fleet a key, so that a loss that is noticed hides nothing of the next."""
    names = {name: f"lost-{name}-" for name in KEYS}
    settings: dict[str, Setting] = {**BOUND, "redis_url": redis_server.url}
    fleets = pool.fleets(*((BUDGET + 1, {**settings, "service": service}) for service in names.values()))
    crews = dict(zip(KEYS, map(ready_soon, fleets), strict=True))
    with ExitStack() as sick:
        for crew in crews.values():
            sick.enter_context(crew.suffering(*crew.members))
        for name, crew in crews.items():
            await_spent(crew, f"the budget of {name} is spent")
        for name, service in names.items():
            redis_server.cli("DEL", key(name, service))
        pass_beats(8)
    assert {name: len(crew.down()) for name, crew in crews.items()} == dict.fromkeys(KEYS, BUDGET)
    losses = {name: crew.members[0].metrics()["arbiter_data_losses_total"] for name, crew in crews.items()}
    noticed = {name for name, count in losses.items() if count == 1}
    # A container that is down may bring its row back before the loss of the culls is seen.
    assert {"state", "grants"} <= noticed <= {"state", "grants", "culls"}
    assert set(losses.values()) == {0, 1}


def ready_soon(fleet: list[Sidecar]) -> Crew:
    crew = Crew(fleet)
    await_metrics(crew.members[0], {"arbiter_fleet_alive": len(fleet)})
    return crew


# -- clocks -----------------------------------------------------------------------------------------------------------


def test_stepped_clock_neither_gives_tokens_nor_stops_the_time(pool: Pool, start_redis: StartRedis) -> None:
    """Forward by an hour, and back again; windows of 6 s."""
    window_s = 6.0
    server = start_redis("stepped", faketime=True)
    server.run_clock(0)
    settings: dict[str, Setting] = {**BOUND, "redis_url": server.url, "budget_window": f"{window_s:g}s"}
    crew = ready(pool.fleet(6, **settings))
    first_at = time.time()
    left = spend(crew)

    server.run_clock(3600)
    with crew.suffering(*left[:2]):
        await_denied(left[0], "data_loss")
        crew.await_down(*crew.members[:4], timeout_s=4 * window_s)
    times = sorted(cull_times(pool))
    assert times[2] - times[1] >= window_s, "never more than the budget in a window of real time"
    assert times[0] >= first_at

    assert command(left[3], "hold", "--for", "2s", "--reason", "audit", "--author", "alice").code == 0
    with crew.suffering(left[2]):
        await_denied(left[2], "hold")
        server.run_clock(0)
        stepped_at = time.monotonic()
        await_metrics(left[3], {"arbiter_hold_until_timestamp_seconds": 0})
        assert time.monotonic() - stepped_at < window_s
        told = await_denied(left[2], "data_loss")
        assert 0 < told["retry_after_s"] <= window_s + 1
        crew.await_down(*crew.members[:5], timeout_s=4 * window_s)
    times = sorted(cull_times(pool))
    assert times[4] - times[3] >= window_s


def cull_times(pool: Pool) -> list[float]:
    return [datetime.fromisoformat(line["time"]).timestamp() for line in pool.lines(claim="granted")]


def test_member_that_died_by_a_clock_that_was_ahead_is_not_alive_for_ever(
    sidecar: StartSidecar, children: Children, start_redis: StartRedis
) -> None:
    server = start_redis("stepped", faketime=True)
    server.run_clock(3600)
    settings: dict[str, Setting] = {**BOUND, "redis_url": server.url, "min_healthy": "1"}
    stay = Pool(sidecar, children, hosts=1)
    crew = Crew(stay.fleet(2, **settings, service="app"))
    dying = sidecar("dies", **settings)
    await_metrics(crew.members[0], {"arbiter_fleet_alive": 3})
    dying.kill()
    server.run_clock(0)
    await_metrics(crew.members[0], {"arbiter_fleet_alive": 2}, timeout_s=10)


# -- settings ---------------------------------------------------------------------------------------------------------


def test_budget_is_one_for_all_strategies(pool: Pool, redis_server: RedisServer) -> None:
    common: dict[str, Setting] = {**BOUND, "budget": "5", "redis_url": redis_server.url, "service": "app"}
    fleets = pool.fleets(
        *((4, {**common, "budget_strategy": strategy}) for strategy in ("log", "previous", "fixed")), names="abc"
    )
    crew = Crew([one for fleet in fleets for one in fleet])
    crew.await_metrics(fleet_alive=12, fleet_policies=3)
    pass_beats(3)
    with crew.suffering(*crew.members):
        wait_for(lambda: len(crew.down()) == 5, timeout_s=30, what="five are culled")
        pass_beats(8)
    assert len(crew.down()) == 5


def test_sidecar_with_a_smaller_budget_binds_all_of_them(
    start_crew: Callable[..., Crew], sidecar: StartSidecar, redis_server: RedisServer
) -> None:
    crew = start_crew(3)
    odd = sidecar("odd", **{**BOUND, "budget": "1"}, redis_url=redis_server.url)
    crew.await_metrics(fleet_alive=4, fleet_policies=2)
    crew.suffer(*crew.members[:2])
    first = wait_for(crew.down, timeout_s=20, what="one of the two is culled")
    (second,) = (one for one in crew.members[:2] if one not in first)
    told = await_denied(second, "window")
    assert (told["used"], told["capacity"]) == (1, 1)
    odd.stop()
    crew.await_down(*crew.members[:2])


def test_other_list_of_servers_grants_nothing_for_a_window(
    sidecar: StartSidecar, children: Children, start_redis: StartRedis
) -> None:
    servers = [start_redis(f"redis-{name}") for name in "abc"]
    old = Pool(sidecar, children, hosts=1)
    crew = ready(old.fleet(6, **{**BOUND, "budget": "3"}, redis_url=servers[0].url))
    spend(crew)
    old.hosts[0].stop()
    new = Pool(sidecar, children, hosts=1)
    crew = ready(new.again(crew.members, redis_url=",".join(server.url for server in servers)), down=BUDGET)
    crew.suffer(*crew.members)
    for one in crew.members:
        await_denied(one, "data_loss")
    pass_beats(4)
    assert crew.down() == []


def test_spacing_is_kept_across_three_servers(pool: Pool, start_redis: StartRedis) -> None:
    spacing_s, servers = 1.5, [start_redis(f"redis-{name}") for name in "abc"]
    urls = ",".join(server.url for server in servers)
    crew = ready(pool.fleet(6, **{**BOUND, "budget": "9", "spacing": f"{spacing_s}s"}, redis_url=urls))
    crew.suffer(*crew.members)
    wait_for(lambda: len(crew.down()) >= 3, timeout_s=30, what="three are culled")
    grants = [
        score / 1e6 for server in servers for _, score in server.cli("ZRANGE", key("grants"), 0, -1, "WITHSCORES")
    ]
    gaps = [after - before for before, after in zip(sorted(grants), sorted(grants)[1:], strict=False)]
    assert min(gaps) >= spacing_s - 0.05, "give or take the time that an exchange takes"


# -- claims and names -------------------------------------------------------------------------------------------------


def test_container_that_recovers_gives_its_standing_back_and_has_to_pass_the_gates_again(
    pool: Pool, redis_server: RedisServer
) -> None:
    """Its claim is granted, the reply is lost, and by the time it asks again its errors have left the window."""
    with Relay(redis_server.port) as relay:
        crew = ready(pool.fleet(5, **{**ALL, "error_window": "3s"}, redis_url=relay.url))
        first, second = crew.members[:2]
        relay.lose("reply")
        crew.suffer(first)
        assert relay.lost.wait(20)
        name = str(first.settings["instance"])
        assert redis_server.cli("HEXISTS", key("culls"), name)
        wait_for(lambda: first.verdict()["state"] == "up", timeout_s=20, what="it has recovered")
        relay.lose("nowhere")
        wait_for(lambda: not redis_server.cli("HEXISTS", key("culls"), name), timeout_s=20, what="its standing is back")
        crew.suffer(second)
        crew.await_down(second)
        crew.suffer(first)
        await_denied(first, "trial")
        assert crew.down() == [second]


def test_two_containers_of_one_name_are_not_culled_and_everybody_is_told(
    sidecar: StartSidecar, children: Children, redis_server: RedisServer
) -> None:
    pools = [Pool(sidecar, children, hosts=1) for _ in range(2)]
    settings: dict[str, Setting] = {**ALL, "redis_url": redis_server.url}
    alone = Crew(pools[0].fleet(4, **settings, service="app"))
    twin = sidecar("twin", **{**settings, "instance": alone.members[0].settings["instance"]})
    twins = alone.members[0], twin
    twin.post_error(count=0, app_start="other")
    said = "two containers run under this instance name: neither may be culled or retired until one is renamed"
    wait_for(lambda: pools[0].lines(message=said), timeout_s=20, what="the one says so")
    wait_for(lambda: any(line["message"] == said for line in twin.log_lines()), timeout_s=20, what="the other too")
    alone.suffer(alone.members[0])
    twin.post_error(count=5, kind="redis", app_start="other")
    for one in twins:
        await_denied(one, "duplicate")
    table = command(twin, "fleet").out
    assert "duplicate" in table, table
    doctor = command(twin, "doctor")
    assert "instance name" in doctor.out, doctor.out
    assert [one.health()[0] for one in twins] == [200, 200]


# -- what stands in the store -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["", "n00"], ids=["of the service", "of an instance"])
def test_hold_that_is_no_text_stops_nobody(
    start_crew: Callable[..., Crew], redis_server: RedisServer, name: str
) -> None:
    crew = start_crew(3)
    redis_server.cli("HSET", key("holds"), name, b'{"f":1,"author":"\xff"}')
    spend(crew, 1)


def test_sidecar_of_a_later_version_neither_stops_culls_nor_breaks_the_bound(
    start_crew: Callable[..., Crew], redis_server: RedisServer
) -> None:
    """What it leaves in the store: new fields everywhere, strategies and tables that are not known here."""
    crew = start_crew(5)
    left = spend(crew, 1)
    now_us = time.time_ns() // 1000
    for table, name in (("state", "epoch"), ("state", "state"), ("culls", str(crew.members[0].settings["instance"]))):
        later(redis_server, key(table), name)
    ours = json.loads(redis_server.cli("ZRANGE", key("settings"), 0, -1)[0])
    newer = json.dumps({**ours, "f": 2, "zone": "b"})
    for text in (newer, '{"f":2,"strategy":"leaky","capacity":{"per":"zone"}}', "v2:zzz"):
        redis_server.cli("ZADD", key("settings"), now_us, text)
    redis_server.cli("HSET", key("state"), "quorum", "v2:zzz")
    redis_server.cli("HSET", key("members"), "newer", "life\ncause\n0\nzone-b")
    redis_server.cli("ZADD", key("alive"), now_us, "newer")
    crew.suffer(*left)
    await_spent(crew, "the budget is spent")
    pass_beats(6)
    assert len(crew.down()) == BUDGET
    assert redis_server.cli("HGET", key("state"), "quorum") == "v2:zzz"


def later(server: RedisServer, table: str, name: str) -> None:
    """Write a record as a later version would."""
    record: dict[str, Any] = json.loads(server.cli("HGET", table, name))
    server.cli("HSET", table, name, json.dumps({**record, "f": 2, "zones": {"b": [1, 2]}}))


def test_ten_thousand_members_that_fall_silent_at_once_do_not_hold_the_server(
    start_crew: Callable[..., Crew], redis_server: RedisServer
) -> None:
    """Struck off a hundred a beat: 0.34 s at once before, some milliseconds a beat now."""
    count, most_us = 10_000, 50_000
    crew = start_crew(10)
    now_us = time.time_ns() // 1000 - 3_600_000_000
    members = [f"silent-{number:05d}" for number in range(count)]
    redis_server.cli("CONFIG", "SET", "slowlog-log-slower-than", "500")
    for table in ("members", "abouts"):
        redis_server.cli("HSET", key(table), *(word for one in members for word in (one, "life\nredis\n1")))
    redis_server.cli("HINCRBY", key("causes"), "redis", count)
    for table, value in (("errors", 3), ("alive", now_us)):  # at last: from then on they are struck off
        redis_server.cli("ZADD", key(table), *(word for one in members for word in (value, one)))
    redis_server.cli("SLOWLOG", "RESET")
    wait_for(lambda: redis_server.cli("ZCARD", key("alive")) == 10, timeout_s=30, what="they are struck off")
    slowest_us = max((row[2] for row in redis_server.cli("SLOWLOG", "GET", 200)), default=0)
    print(f"slowest call {slowest_us} us")  # noqa: T201 - for who measures, with -s
    assert slowest_us < most_us
    crew.await_metrics(fleet_alive=10, fleet_suspect=0)
