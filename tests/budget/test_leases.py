"""Leases on a real Redis whose holder is killed, that stands still, whose clock is set, and that fails over."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest

from harness.claims import beat, lease, without_time
from harness.sentinels import Watched
from harness.twins import impatient
from harness.waiting import eventually
from sidecar.core.terms import Share
from sidecar.core.words import Beat, Denied, Fleet, Granted, Presence, Unknown

if TYPE_CHECKING:
    from budget.conftest import Actor, OpenBudget, Proxy
    from harness.redis_server import RedisServer
    from harness.starting import Children, StartRedis
    from sidecar.budget.redis import RedisBudget

START_S = 1_700_000_400


async def fleet_of(names: str, *budgets: RedisBudget) -> None:
    for budget in budgets:
        for name in names:
            assert isinstance(await budget.beat(beat(name)), Fleet)


async def know_the_script(budget: RedisBudget) -> None:
    """A server that lacks a script says so, and is asked a second time."""
    await budget.retire(lease("z"))
    await budget.resign("z", "z's")
    await budget.beat(beat("z", Presence.GONE))


async def refused(budget: RedisBudget, name: str) -> str:
    answer = await budget.retire(lease(name))
    assert isinstance(answer, Denied)
    return answer.reason


async def test_slot_of_a_holder_that_was_killed_is_free_at_its_end_and_not_before(
    faketime_redis: RedisServer, open_budget: OpenBudget
) -> None:
    faketime_redis.set_time(START_S)
    killed, other = open_budget(faketime_redis.url), open_budget(faketime_redis.url)
    await fleet_of("abc", other)
    assert isinstance(await killed.retire(lease("a")), Granted)
    await killed.beat(beat("a", Presence.DOWN, lease="a's"))
    await killed.aclose()  # and is never heard of again
    for at_s in (1, 31, 299, 299.999999):
        faketime_redis.set_time(START_S + at_s)
        await fleet_of("bc", other)
        assert await refused(other, "b") == "slots"
    faketime_redis.set_time(START_S + 300)
    assert without_time(await other.retire(lease("b"))) == Granted(1, 1, alive=2)


@pytest.mark.parametrize("leap_s", [-100_000, -301, -1, 1, 299.999999])
async def test_clock_that_is_set_makes_no_second_holder(
    leap_s: float, faketime_redis: RedisServer, open_budget: OpenBudget
) -> None:
    faketime_redis.set_time(START_S)
    budget = open_budget(faketime_redis.url, beat_us=10**12)
    await fleet_of("abc", budget)
    assert isinstance(await budget.retire(lease("a")), Granted)
    faketime_redis.advance(leap_s)
    assert await refused(budget, "b") == "slots"
    faketime_redis.set_time(START_S + 299.999999)
    assert await refused(budget, "b") == "slots"


async def test_clock_that_leapt_ahead_and_came_back_makes_no_second_holder(
    faketime_redis: RedisServer, open_budget: OpenBudget
) -> None:
    faketime_redis.set_time(START_S)
    budget = open_budget(faketime_redis.url, beat_us=10**12)
    await fleet_of("abc", budget)
    assert isinstance(await budget.retire(lease("a")), Granted)
    faketime_redis.advance(86_400)
    assert isinstance(await budget.retire(lease("b")), Granted)
    faketime_redis.set_time(START_S + 1)
    assert [await refused(budget, name) for name in "ac"] == ["slots"] * 2
    faketime_redis.set_time(START_S + 86_400 + 300)
    assert isinstance(await budget.retire(lease("c")), Granted)


async def test_server_that_stood_still_gives_one_slot_once(redis_server: RedisServer, open_budget: OpenBudget) -> None:
    """Those who gave up on it asked all the same, and ask again when it is back."""
    budgets = [open_budget(redis_server.url) for _ in range(8)]
    await fleet_of("abcdefgh", budgets[0])
    names = dict(zip("abcdefgh", budgets, strict=True))
    await know_the_script(budgets[0])
    await asyncio.gather(*(budget.roll() for budget in budgets))  # all are connected
    redis_server.pause()
    with impatient(*budgets):
        answers = await asyncio.gather(*(budget.retire(lease(name)) for name, budget in names.items()))
    assert answers == [Unknown("timeout")] * 8
    redis_server.resume()
    patient = {name: open_budget(redis_server.url) for name in names}
    answers = await asyncio.gather(*(budget.retire(lease(name)) for name, budget in patient.items()))
    granted = [answer for answer in answers if isinstance(answer, Granted)]
    refusals = [answer.reason for answer in answers if isinstance(answer, Denied)]
    assert (len(granted), refusals) == (1, ["slots"] * 7)


async def test_lease_whose_reply_was_lost_is_granted_again(
    redis_server: RedisServer, open_budget: OpenBudget, proxy: Proxy
) -> None:
    cut_off = open_budget(await proxy.open(redis_server.port))
    other = open_budget(redis_server.url)
    await fleet_of("abc", other, cut_off)
    await know_the_script(other)
    proxy.holding = True
    with impatient(cut_off):
        assert without_time(await cut_off.retire(lease("a"))) == Unknown("timeout")
    assert await refused(other, "b") == "slots"
    proxy.release()
    assert without_time(await cut_off.retire(lease("a"))) == Granted(1, 1, replayed=True, alive=2)


async def test_lease_outlives_a_failover(start_redis: StartRedis, children: Children, open_budget: OpenBudget) -> None:
    watched = await asyncio.to_thread(Watched, start_redis, children, sentinels=3)
    budget = open_budget(watched.url, beat_us=10**12)  # nobody falls silent, however long the failover takes
    await fleet_of("abc", budget)
    assert isinstance(await budget.retire(lease("a")), Granted)
    assert watched.master.cli("WAIT", 1, 5000) == 1
    watched.master.kill()

    async def is_back() -> bool:
        return isinstance(await budget.roll(), Unknown) is False

    await eventually(is_back, timeout_s=30, what="a new master")
    assert await refused(budget, "b") == "slots"
    assert without_time(await budget.retire(lease("a"))) == Granted(1, 1, replayed=True, alive=2)


async def test_failover_that_forgets_a_lease_is_a_loss_to_who_holds_it(
    actor: Actor, start_redis: StartRedis, open_budget: OpenBudget
) -> None:
    """The new master has the fleet as it was before the grant, which was not replicated."""
    old, new = start_redis("old", faketime=True), start_redis("new", faketime=True)
    actor.line = named(old)
    place = (await actor.open()).removeprefix("redis://")
    budgets = [open_budget(f"redis+sentinel://{place}/fleet", lost_is_empty=True) for _ in "ab"]
    await fleet_of("abc", *budgets)
    old.cli("MIGRATE", "127.0.0.1", new.port, "", 0, 5000, "COPY", "KEYS", *old.cli("KEYS", "*"))
    old.advance(20)
    new.advance(20)
    assert isinstance(await budgets[0].retire(lease("a")), Granted)
    old.kill()
    actor.line = named(new)
    fleet = await heard(budgets[0], beat("a", Presence.DOWN, lease="a's"))
    assert (fleet.losses, fleet.retiring, fleet.down) == (1, 1, 1)
    await heard(budgets[1], beat("b"))
    assert await refused(budgets[1], "b") == "lost_memory"


async def heard(budget: RedisBudget, said: Beat) -> Fleet:
    """The first clear answer: a connection may have ended unseen."""
    answers: list[Fleet] = []

    async def is_heard() -> bool:
        answer = await budget.beat(said)
        if isinstance(answer, Fleet):
            answers.append(answer)
        return bool(answers)

    await eventually(is_heard, timeout_s=10, what="an answer of the new master")
    return answers[0]


def named(server: RedisServer) -> bytes:
    """What a Sentinel says of the master's place."""
    return b"*2\r\n$9\r\n127.0.0.1\r\n$%d\r\n%d\r\n" % (len(str(server.port)), server.port)


@pytest.mark.parametrize("slots", [1, 2, 3])
async def test_many_who_ask_at_once_get_as_many_as_there_are(
    slots: int, redis_server: RedisServer, open_budget: OpenBudget
) -> None:
    names = "abcdefghij"
    budgets = [open_budget(redis_server.url, capacity=Share(1)) for _ in names]
    await fleet_of(names, budgets[0])
    asked = [budget.retire(lease(name, slots=str(slots))) for name, budget in zip(names, budgets, strict=True)]
    answers = await asyncio.gather(*asked)
    assert sum(isinstance(answer, Granted) for answer in answers) == slots
