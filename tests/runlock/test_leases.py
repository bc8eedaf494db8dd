"""Leases in real Redis servers: how long they last, and that there are never two holders, whatever the server does."""

from __future__ import annotations

import itertools
import os
import re
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

import pytest
import redis
from redis.backoff import NoBackoff
from redis.retry import Retry

from harness.children import Children, StartRedis
from harness.redis_server import RedisServer
from harness.sentinels import SentinelSetup
from harness.waiting import wait_for
from sidecar.runlock import LockError, WithStandby
from sidecar.runlock.leases import Leases

TTL_S = 3.0
OURS_S = 0.4 * TTL_S
LONG_S: Final = 60.0
"""Of a lease whose end does not matter: a busy machine may take a second for what takes a millisecond."""
PATIENCE_S: Final = 10.0
"""For an answer of a server that is there: how soon it comes is not what a test is about."""
KEY = "health-arbiter:lock:{main}"


@pytest.fixture
def server(redis_server: RedisServer) -> RedisServer:
    started(redis_server)
    return redis_server


@pytest.fixture
def aged(faketime_redis: RedisServer) -> RedisServer:
    """A server that the test's clock has made as old as it takes."""
    faketime_redis.advance(100)
    return faketime_redis


def started(server: RedisServer, name: str = "main") -> None:
    """Let the lock be known there: a server that has just started gives nothing away before half a ttl is over."""
    limit = Leases(server.url, name=name, ttl_s=0.5, timeout_s=PATIENCE_S)
    acquired(limit)
    limit.release()


@contextmanager
def limits(server: RedisServer, count: int, **options: Any) -> Iterator[list[Leases]]:
    given = {"ttl_s": TTL_S, "timeout_s": PATIENCE_S} | options
    made = [Leases(server.url, **given) for _ in range(count)]
    try:
        yield made
    finally:
        for limit in made:
            limit.release()


def acquired(limit: Leases, within_s: float = 20.0) -> None:
    """Wait for it, polled as a standby does; what Redis cannot tell counts as no."""

    def has() -> bool:
        try:
            return limit.acquire() is not None
        except LockError:
            return False

    wait_for(has, timeout_s=within_s, what="the lock is acquired")


class Clock:
    """A clock that a test moves, so that no lease ends because the machine is busy."""

    def __init__(self) -> None:
        self.now_s = 100.0

    def __call__(self) -> float:
        return self.now_s


# -- as any limit ---------------------------------------------------------------------------------------------------


def test_ids_count_from_one_and_a_released_one_is_free_at_once(server: RedisServer) -> None:
    with limits(server, 4, max_procs=3, ttl_s=LONG_S) as (first, second, third, fourth):
        assert [limit.acquire() for limit in (first, second, third, fourth)] == [1, 2, 3, None]
        second.release()
        assert (second.is_held, second.lock_id, fourth.acquire(), fourth.lock_id) == (False, None, 2, 2)


def test_release_gives_back_only_the_own_lease(aged: RedisServer) -> None:
    with limits(aged, 2, clock=Clock()) as (first, second):
        first.acquire()
        while second.acquire() is None:  # until the lease of the first is over
            aged.advance(0.3 * TTL_S)
        first.release()
        assert second.heartbeat()


def test_heartbeats_keep_a_lock_over_many_ttls(aged: RedisServer) -> None:
    server, clock = aged, Clock()
    with limits(server, 2, clock=clock) as (holder, other):
        assert holder.acquire() == 1
        for _ in range(10):
            server.advance(0.9 * OURS_S)
            clock.now_s += 0.9 * OURS_S
            assert holder.heartbeat()
            assert other.acquire() is None


def test_one_of_several_standbys_in_redis_takes_over_a_released_lease(server: RedisServer) -> None:
    with (
        limits(server, 2, ttl_s=LONG_S) as (first, second),
        limits(server, 3, name="standby", max_procs=2, ttl_s=LONG_S) as (other, standby, third),
    ):
        first.acquire()
        started(server, "standby")
        assert other.acquire() == 1
        naps: list[float] = []

        def nap(seconds: float) -> None:
            naps.append(seconds)
            assert third.acquire() is None
            if len(naps) == 3:
                first.release()

        assert WithStandby(second, standby, interval_s=0.1, sleep=nap).acquire() == 1
        assert (len(naps), standby.is_held, third.acquire()) == (3, False, 2)


def test_a_standby_whose_lease_would_end_while_it_waits_is_refused(server: RedisServer) -> None:
    with limits(server, 2) as (main, standby), pytest.raises(ValueError, match="lease ends before"):
        WithStandby(main, standby, interval_s=OURS_S)


def test_unused_lock_expires(server: RedisServer) -> None:
    with limits(server, 1, ttl_s=LONG_S) as (limit,):
        limit.acquire()
        assert server.cli("PTTL", KEY) == -1
        limit.release()
        assert 0 < server.cli("PTTL", KEY) <= 86_400_000


def test_a_client_of_the_app_is_used_and_left_open(server: RedisServer) -> None:
    with redis.Redis.from_url(server.url, socket_timeout=PATIENCE_S, retry=Retry(NoBackoff(), 0)) as client:
        limit = Leases(client, ttl_s=LONG_S)
        with limit as lock_id:
            assert (lock_id, limit.heartbeat()) == (1, True)
        assert client.ping()


def _page_user() -> list[str]:
    """The words of the page's ACL SETUSER."""
    (line,) = re.findall(r"ACL SETUSER .*", (Path(__file__).parents[2] / "deploy" / "standby.md").read_text())
    return str(line).split()


def test_the_user_of_the_page_may_do_all_that_it_takes(server: RedisServer) -> None:
    server.cli(*_page_user())
    url = server.url.replace("redis://", "redis://locks:SECRET@")
    limit = Leases(url, ttl_s=LONG_S, timeout_s=PATIENCE_S)
    with limit as lock_id:
        assert (lock_id, limit.heartbeat()) == (1, True)
    with limits(server, 1, ttl_s=LONG_S) as (other,):
        assert other.acquire() == 1


# -- what cannot be -------------------------------------------------------------------------------------------------


LOCAL = "redis://127.0.0.1"


@pytest.mark.parametrize(
    ("server", "options", "said"),
    [
        ("http://secret@x", {}, "is not a Redis URL"),
        ("redis://:secret@a,redis://:secret@b", {}, "give one URL"),
        ("redis+cluster://:secret@a", {}, "client of your own"),
        ("rediss+sentinel://:secret@a/fleet", {}, "client of your own"),
        (redis.Redis(socket_timeout=None), {}, "needs a socket_timeout"),
        (redis.asyncio.Redis(socket_timeout=1), {}, "must be a synchronous one"),
        (LOCAL, {"ttl_s": 0.01}, "ttl_s has to be"),
        (LOCAL, {"ttl_s": 1e6}, "ttl_s has to be"),
        (LOCAL, {"max_procs": 0}, "at least one holder"),
        (LOCAL, {"name": ""}, "the name of a lock"),
        (LOCAL, {"name": "a b"}, "the name of a lock"),
    ],
    ids=range(11),
)
def test_wrong_arguments_are_refused_without_the_secrets_in_them(
    server: Any, options: dict[str, Any], said: str
) -> None:
    with pytest.raises(ValueError, match=said) as raised:
        Leases(server, **options)
    assert "secret" not in str(raised.value)


@pytest.mark.parametrize(
    ("options", "timeout_s"), [({"ttl_s": 5.0}, 0.5), ({"ttl_s": 30.0}, 1.0), ({"timeout_s": 0.2}, 0.2)], ids=str
)
def test_answer_may_take_a_tenth_of_the_ttl_and_at_most_a_second(options: dict[str, Any], timeout_s: float) -> None:
    connection = Leases(LOCAL, **options)._client.connection_pool.connection_kwargs
    assert (connection["socket_timeout"], connection["socket_connect_timeout"]) == (timeout_s, timeout_s)


# -- expiry ---------------------------------------------------------------------------------------------------------


def test_process_that_calls_seldom_takes_over_at_its_second_call(aged: RedisServer) -> None:
    with limits(aged, 2, clock=Clock()) as (gone, other):
        assert gone.acquire() == 1
        aged.advance(1.1 * TTL_S)
        assert other.acquire() is None
        aged.advance(0.55 * TTL_S)
        assert other.acquire() == 1


def test_without_a_heartbeat_the_holder_gives_up_by_its_own_clock_and_for_good(server: RedisServer) -> None:
    clock = Clock()
    with limits(server, 1, clock=clock) as (limit,):
        limit.acquire()
        clock.now_s += OURS_S - 0.01
        assert limit.is_held
        clock.now_s += 0.02
        assert (limit.is_held, limit.lock_id, limit.heartbeat()) == (False, None, False)
        clock.now_s -= OURS_S
        assert (limit.is_held, limit.heartbeat()) == (False, False)


def test_an_answer_that_comes_after_the_end_does_not_count(server: RedisServer) -> None:
    class Slow(Clock):
        """Each look at it takes a third of what a lease lasts."""

        def __call__(self) -> float:
            self.now_s += OURS_S / 3
            return self.now_s

    clock = Clock()
    with limits(server, 1, clock=clock) as (limit,):
        limit.acquire()
        limit._clock = Slow()
        assert [limit.heartbeat() for _ in range(2)] == [False, False]
        assert not limit.is_held


@pytest.mark.filterwarnings("ignore:.*multi-threaded.*:DeprecationWarning")  # the threads of pytest's workers
def test_a_forked_child_does_not_hold_the_lease_of_its_parent(server: RedisServer) -> None:
    with limits(server, 1, ttl_s=LONG_S) as (limit,):
        limit.acquire()
        child = os.fork()
        if not child:
            os._exit(limit.is_held or limit.heartbeat())
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
        assert limit.is_held


# -- what happens to servers ----------------------------------------------------------------------------------------


def test_a_server_that_goes_away_loses_the_lock_for_good(server: RedisServer) -> None:
    with limits(server, 2) as (limit, other):
        limit.acquire()
        server.kill()
        with pytest.raises(LockError, match="ConnectionError"):
            other.acquire()
        assert (limit.heartbeat(), limit.is_held, other.is_held) == (False, False, False)
        server.start()
        assert (limit.heartbeat(), limit.is_held) == (False, False)


def test_a_paused_server_loses_the_lock_in_time_and_gives_it_to_one_only_afterwards(aged: RedisServer) -> None:
    server = aged
    with limits(server, 2, ttl_s=LONG_S, timeout_s=2) as (holder, other):
        assert holder.acquire() == 1
        server.pause()
        began_at = time.monotonic()
        assert (holder.heartbeat(), holder.is_held) == (False, False)
        assert time.monotonic() - began_at < holder.beat_within_s
        with pytest.raises(LockError, match="TimeoutError"):
            other.acquire()
        server.resume()
        assert other.acquire() is None
        server.advance(LONG_S / 2)
        assert other.acquire() is None
        server.advance(LONG_S / 2)
        assert (other.acquire(), holder.is_held) == (1, False)


@pytest.mark.parametrize("step_s", [-1e8, -1, 0.3, 86_400 * 400], ids="{:g} s".format)
def test_a_step_of_the_servers_clock_makes_no_second_holder(aged: RedisServer, step_s: float) -> None:
    server = aged
    with limits(server, 2, ttl_s=10, clock=Clock()) as (holder, other):
        holder.acquire()
        server.advance(1)
        assert holder.heartbeat()
        server.advance(step_s)
        assert [other.acquire() for _ in range(5)] == [None] * 5
        assert holder.heartbeat()
        server.advance(9.9)
        assert other.acquire() is None


@pytest.mark.parametrize("step_s", [-1e8, 0, 1e8], ids="{:g} s".format)
def test_after_a_step_a_lease_still_ends(aged: RedisServer, step_s: float) -> None:
    server = aged
    with limits(server, 2, ttl_s=10, clock=Clock()) as (holder, other):
        holder.acquire()
        server.advance(step_s)
        looks = 0
        while other.acquire() is None:
            server.advance(1)
            looks += 1
            assert looks <= 11
        assert looks >= 5


def test_a_restarted_server_forgets_and_gives_nothing_away_before_the_holder_has_given_up(server: RedisServer) -> None:
    with limits(server, 2) as (holder, other):
        acquired(holder)
        server.restart()
        acquired(other)
        assert not holder.is_held
        assert not holder.heartbeat()


@pytest.mark.site
@pytest.mark.parametrize("is_known", [True, False], ids=["replicated", "lost on the way"])
def test_a_failover_makes_no_second_holder(start_redis: StartRedis, children: Children, *, is_known: bool) -> None:
    watched = SentinelSetup(start_redis, children)
    started(watched.master)
    wait_for(lambda: watched.replica.cli("EXISTS", KEY), timeout_s=60, what="the replica knows the lock")
    first, second = (Leases(watched.url, ttl_s=5, timeout_s=1.5) for _ in range(2))
    if not is_known:
        watched.replica.pause()
    acquired(first)
    wait_for(lambda: not is_known or watched.replica.cli("HEXISTS", KEY, "1"), timeout_s=60, what="replicated")
    watched.master.kill()
    watched.replica.resume()
    acquired(second, within_s=40)
    assert not first.is_held
    first.release()
    second.release()


@pytest.mark.site
def test_holders_of_many_processes_never_overlap(server: RedisServer) -> None:
    """After a release, a loss or a long sleep: a process that claims to hold does so within one lease of its own."""
    program = (
        "import sys, time, random\n"
        "from sidecar.runlock import LockError\n"
        "from sidecar.runlock.leases import Leases\n"
        "_, url, me = sys.argv\n"
        "chance, lease, leases = random.Random(int(me)), 0, set()\n"
        "def made(): return Leases(url, ttl_s=0.4, max_procs=2, timeout_s=5)\n"
        "def acquired():\n"
        "    try: return limit.acquire()\n"
        "    except LockError: return None\n"  # it came too late to be used
        "limit = made()\n"
        "while len(leases) < 8:\n"  # leases of its own, however long that takes
        "    if (slot := acquired()):\n"
        "        lease += 1\n"
        "        while limit.heartbeat() and chance.random() < 0.9:\n"
        "            now = time.monotonic()\n"
        "            if limit.is_held: leases.add(lease); print(slot, me, lease, now, flush=True)\n"
        "            time.sleep(chance.choice((0.01, 0.05, 0.05, 0.3)))\n"
        "        if chance.random() < 0.5: limit.release()\n"
        "        else: limit = made()\n"
        "    time.sleep(0.02)\n"
    )
    environ = os.environ | {"PYTHONPATH": str(Path(__file__).parents[2])}
    commands = [[sys.executable, "-c", program, server.url, str(number)] for number in range(4)]
    crowd = [subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environ) for command in commands]
    moments: dict[tuple[str, str, str], list[float]] = {}
    for process in crowd:
        for line in process.communicate(timeout=250)[0].splitlines():
            slot, who, lease, at = line.split()
            moments.setdefault((slot, who, lease), []).append(float(at))
    assert all(process.returncode == 0 for process in crowd)
    for slot in "12":
        spans = sorted((min(times), max(times)) for (its_slot, *_), times in moments.items() if its_slot == slot)
        assert len(spans) >= 4
        assert all(before[1] < after[0] for before, after in itertools.pairwise(spans))
