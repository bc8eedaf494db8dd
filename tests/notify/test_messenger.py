"""Fleets of messengers with one store, in virtual time: which one sends what, and how often."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from itertools import pairwise
from random import Random
from typing import Any, cast

import pytest

from harness.virtual_time import in_virtual_time, settle
from sidecar.core.fleet.about import MemberList
from sidecar.core.life.container import Container, start
from sidecar.core.life.events import ClaimAnswered, Judged
from sidecar.core.life.snapshot import Record
from sidecar.core.types import (
    Answer,
    CauseTrial,
    Denied,
    Entry,
    Evidence,
    Fleet,
    Granted,
    Judgement,
    Latch,
    Policy,
    State,
    Unknown,
    Verdict,
)
from sidecar.notify.episodes import Episodes, Notification
from sidecar.notify.message import Context, Message
from sidecar.notify.messenger import Messenger
from sidecar.notify.outbox import Outbox
from sidecar.notify.posting import UndeliveredError
from sidecar.notify.receivers import Receiver
from sidecar.notify.watch import Watch

AWAY = Unknown("connection")
CALM = Fleet(5)
ON = Fleet(5, suspect=1, trials=(CauseTrial("redis", 1, 0, 540.0, 1),))
FINE = Judged(Verdict(Judgement.FINE))


@dataclass
class FakeStore:
    """Grants each claim to the first caller, on the loop's clock; gives no answer while it is away."""

    is_away: bool = False
    is_broken: bool = False
    used: int = 0
    claims: dict[str, tuple[str, float]] = field(default_factory=dict)

    def by(self, caller: str) -> Any:
        return _Caller(self, caller)


@dataclass
class _Caller:
    store: FakeStore
    name: str

    async def first(self, word: str, for_s: float) -> bool | Unknown:
        await asyncio.sleep(0.01)
        if self.store.is_broken:
            raise RuntimeError("bug")
        if self.store.is_away:
            return AWAY
        now = asyncio.get_running_loop().time()
        _, until = self.store.claims.get(word, ("", 0.0))
        if now < until:
            return False
        self.store.claims[word] = self.name, now + for_s
        return True

    async def member_list(self) -> MemberList | Unknown:
        return AWAY if self.store.is_away else MemberList(CALM, self.store.used)


class FakeReceiver:
    """Takes everything; ``repeats`` as an Alertmanager wants it."""

    def __init__(self, taken: list[Message], name: str, is_deaf: Callable[[], bool], *, repeats: bool = False) -> None:
        self.name = name
        self.repeats = repeats
        self.taken = taken
        self.is_deaf = is_deaf
        self.delay_s: Callable[[], float] = lambda: 0.0

    def wants(self, _: Notification) -> bool:
        return True

    async def send(self, message: Message) -> str:
        await asyncio.sleep(self.delay_s())
        if self.is_deaf():
            raise UndeliveredError("status 503")
        self.taken.append(message)
        return "host"


class MessengerFleet:
    """The messengers of one fleet. ``sent``: what any of them sent; ``alerts``: what went to receivers that forget."""

    def __init__(self, count: int, **options: Any) -> None:
        self.store = FakeStore()
        self.sent: list[Message] = []
        self.alerts: list[Message] = []
        self.failures: list[Exception] = []
        self.is_deaf: bool | Callable[[], bool] = False
        self.delay_s: Callable[[], float] = options.pop("delay_s", lambda: 0.0)
        self.messengers = [self._made(f"n{number}", **options) for number in range(count)]
        loop = asyncio.get_running_loop()
        self.tasks = [loop.create_task(one.run()) for one in self.messengers]

    def _made(self, name: str, *, scrapes: bool = False, **options: Any) -> Messenger:
        clock = asyncio.get_running_loop().time
        rng = Random(name)
        fakes = [
            FakeReceiver(taken, name, self._is_deaf, repeats=name == "alerts")
            for name, taken in (("fake", self.sent), ("alerts", self.alerts))
        ]
        fakes[0].delay_s = self.delay_s
        boxes = [
            Outbox(cast("Receiver", cast("Any", fake)), clock=clock, rng=rng, observe=lambda _: None) for fake in fakes
        ]
        return Messenger(
            Episodes(name, honour_s=300.0),
            boxes,
            self.store.by(name),
            Watch(scrapes=scrapes),
            Context("web", "prod", name),
            clock=clock,
            wall=lambda: 1_700_000_000.0 + clock(),
            rng=rng,
            on_failure=self.failures.append,
            **options,
        )

    def _is_deaf(self) -> bool:
        return self.is_deaf() if callable(self.is_deaf) else self.is_deaf

    async def beats(self, answer: Fleet | Unknown, seconds: float, every_s: float = 10.0) -> None:
        """Let every sidecar beat, one after the other, as long as that takes."""
        for _ in range(round(seconds / every_s)):
            for messenger in self.messengers:
                messenger.beaten(answer)
                await asyncio.sleep(every_s / len(self.messengers))

    @property
    def words(self) -> list[str]:
        return [
            f"-{one.notification.topic}" if one.notification.is_over else one.notification.word for one in self.sent
        ]

    async def end(self) -> None:
        for task in self.tasks:
            task.cancel()
        await settle()
        assert self.failures == []


def answered(answer: Answer) -> Record:
    container = Container(State.SUSPECT, 0.0, "web/a")
    return Record(ClaimAnswered("id", answer, 0.0), container, container, Evidence(60))


def down(since: float, evidence: Evidence, *, lease: str = "") -> Record:
    container = Container(State.DOWN, since, "web/a", latch=Latch("id", 0.0, "why", lease))
    return Record(FINE, container, container, evidence)


@in_virtual_time
async def test_fleet_sends_once_and_its_recovery_once() -> None:
    fleet = MessengerFleet(5)
    await fleet.beats(CALM, 30)
    await fleet.beats(ON, 200)
    await fleet.beats(CALM, 120)
    assert fleet.words == ["paused", "-paused"]
    await fleet.end()


@in_virtual_time
async def test_two_incidents_are_sent_twice() -> None:
    fleet = MessengerFleet(5)
    await fleet.beats(CALM, 10)
    for _ in range(2):
        await fleet.beats(ON, 20)
        await fleet.beats(CALM, 90)
    assert fleet.words == ["paused", "-paused"] * 2
    await fleet.end()


@in_virtual_time
async def test_replacement_during_an_incident_sends_nothing() -> None:
    fleet = MessengerFleet(3)
    await fleet.beats(CALM, 10)
    await fleet.beats(ON, 300)
    late = fleet._made("late")
    fleet.messengers.append(late)
    fleet.tasks.append(asyncio.get_running_loop().create_task(late.run()))
    await fleet.beats(ON, 120)
    assert fleet.words == ["paused"]
    await fleet.end()


@in_virtual_time
async def test_replacements_alone_still_send_the_end() -> None:
    fleet = MessengerFleet(3)
    await fleet.beats(CALM, 10)
    await fleet.beats(ON, 60)
    for messenger, task in zip(fleet.messengers[:], fleet.tasks[:], strict=True):
        task.cancel()
        fleet.messengers.remove(messenger)
        fresh = fleet._made(f"new{len(fleet.tasks)}")
        fleet.messengers.append(fresh)
        fleet.tasks.append(asyncio.get_running_loop().create_task(fresh.run()))
    await fleet.beats(ON, 60)
    await fleet.beats(CALM, 120)
    assert fleet.words == ["paused", "-paused"]
    await fleet.end()


@in_virtual_time
async def test_alert_is_repeated_once_a_minute_by_one_of_the_fleet() -> None:
    fleet = MessengerFleet(5)
    await fleet.beats(CALM, 10)
    await fleet.beats(ON, 600)
    at = [one.at for one in fleet.alerts]
    assert 10 <= len(at) <= 13
    assert max(later - earlier for earlier, later in pairwise(at)) < 75
    assert fleet.words == ["paused"]
    await fleet.end()


@in_virtual_time
async def test_message_of_a_sender_that_ended_is_sent_by_another() -> None:
    fleet = MessengerFleet(5)
    await fleet.beats(CALM, 10)
    fleet.is_deaf = True
    await fleet.beats(ON, 10)
    (sender,) = (name for word, (name, _) in fleet.store.claims.items() if word == "message:paused:1")
    fleet.tasks[int(sender[1:])].cancel()
    fleet.is_deaf = False
    await fleet.beats(ON, 120)
    assert fleet.words == ["paused"]
    await fleet.beats(CALM, 120)
    assert fleet.words == ["paused", "-paused"]
    await fleet.end()


@in_virtual_time
async def test_sender_that_retries_for_long_is_not_overtaken() -> None:
    fleet = MessengerFleet(5)
    await fleet.beats(CALM, 10)
    fleet.is_deaf = True
    await fleet.beats(ON, 100)
    fleet.is_deaf = False
    await fleet.beats(ON, 60)
    assert fleet.words == ["paused"]
    await fleet.end()


@in_virtual_time
async def test_nothing_is_repeated_while_all_is_well() -> None:
    fleet = MessengerFleet(3)
    await fleet.beats(CALM, 600)
    assert (fleet.alerts, fleet.sent) == ([], [])
    await fleet.end()


# -- the budget ----------------------------------------------------------------------------------------------------


@in_virtual_time
async def test_each_level_is_sent_by_the_sidecar_that_reached_it() -> None:
    fleet = MessengerFleet(5)
    await fleet.beats(CALM, 10)
    for used in range(1, 6):
        fleet.messengers[used - 1].notice(answered(Granted(used, 5)))
        await asyncio.sleep(4)
    assert fleet.words == ["budget_50", "budget_80", "budget_empty"]
    await fleet.end()


@pytest.mark.parametrize("seed", [1, 2, 3, 4, 18, 20, 27, 30])
def test_no_level_arrives_after_a_higher_one_however_slow_the_receiver_is(seed: int) -> None:
    """Each sidecar has its own delays and failures, so a later message may overtake an earlier one.

    Without the wait for earlier messages, or without the drop of late ones, one of these seeds fails.
    """

    @in_virtual_time
    async def story() -> None:
        rng = Random(seed)
        fleet = MessengerFleet(5, delay_s=lambda: rng.choice((0.0, 0.5, 4.9)))
        fleet.is_deaf = lambda: rng.random() < 0.4
        await fleet.beats(CALM, 10)
        for used in range(1, 11):
            fleet.messengers[rng.randrange(5)].notice(answered(Granted(used, 10)))
            await asyncio.sleep(rng.choice((0.1, 1.0, 6.0)))
        await fleet.beats(replace(CALM, used=10, capacity=10), 150)
        fleet.is_deaf = False
        await fleet.beats(replace(CALM, used=0, capacity=10), 200)
        levels = [one.notification.level for one in fleet.sent if not one.notification.is_over]
        assert levels == sorted(set(levels)), fleet.words
        assert fleet.words[-2:] == ["budget_empty", "-budget"]
        await fleet.end()

    story()


@in_virtual_time
async def test_pause_that_ends_during_the_trouble_is_no_recovery() -> None:
    fleet = MessengerFleet(3)
    tried = Fleet(5, suspect=3, trials=(CauseTrial("redis", 1, 1, 0.0, 1),))
    await fleet.beats(CALM, 10)
    for _ in range(3):
        await fleet.beats(ON, 100)
        await fleet.beats(tried, 100)
    assert fleet.words == ["paused"]
    await fleet.beats(CALM, 120)
    assert fleet.words == ["paused", "-paused"]
    await fleet.end()


@in_virtual_time
async def test_single_cull_is_quiet() -> None:
    fleet = MessengerFleet(3)
    await fleet.beats(CALM, 10)
    fleet.messengers[0].notice(answered(Granted(1, 10)))
    await fleet.beats(CALM, 700)
    assert fleet.sent == []
    await fleet.end()


@in_virtual_time
async def test_refused_container_does_not_send_again() -> None:
    fleet = MessengerFleet(3)
    await fleet.beats(CALM, 10)
    fleet.messengers[0].notice(answered(Granted(2, 2)))
    await asyncio.sleep(2)
    fleet.messengers[1].notice(answered(Denied("window", 2, 2, 60.0)))
    fleet.messengers[2].notice(answered(Granted(2, 2, replayed=True)))
    fleet.messengers[2].notice(answered(Denied("hold", 0, 0, 60.0)))
    fleet.messengers[2].notice(answered(AWAY))
    await asyncio.sleep(5)
    assert fleet.words == ["budget_empty"]
    await fleet.end()


@in_virtual_time
async def test_leader_asks_how_many_tokens_are_back() -> None:
    fleet = MessengerFleet(3, capacity=4)
    await fleet.beats(CALM, 10)
    fleet.store.used = 4
    fleet.messengers[0].notice(answered(Granted(4, 4)))
    await fleet.beats(CALM, 200)
    fleet.store.used = 0
    await fleet.beats(CALM, 700)
    assert fleet.words == ["budget_empty", "-budget"]
    await fleet.end()


# -- Redis away ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("count", [1, 5, 30])
def test_one_of_the_fleet_sends_that_redis_is_away(count: int) -> None:
    @in_virtual_time
    async def story() -> None:
        fleet = MessengerFleet(count)
        await fleet.beats(CALM, 700)
        fleet.store.is_away = True
        await fleet.beats(AWAY, 200)
        assert fleet.words == []
        await fleet.beats(AWAY, 400)
        assert fleet.words == ["redis_unknown"]
        fleet.store.is_away = False
        await fleet.beats(CALM, 120)
        assert fleet.words == ["redis_unknown", "-redis"]
        await fleet.end()

    story()


@in_virtual_time
async def test_sidecar_that_never_reached_redis_sends_for_itself() -> None:
    fleet = MessengerFleet(2)
    fleet.store.is_away = True
    await fleet.beats(AWAY, 400)
    assert fleet.words == ["redis_unknown"] * 2
    assert len({one.key for one in fleet.sent}) == 1
    await fleet.end()


@in_virtual_time
async def test_short_silence_of_redis_delays_a_message_and_loses_none() -> None:
    fleet = MessengerFleet(5)
    await fleet.beats(CALM, 100)
    fleet.store.is_away = True
    for messenger in fleet.messengers:
        messenger.beaten(ON)
    await asyncio.sleep(20)
    assert fleet.words == []
    fleet.store.is_away = False
    await asyncio.sleep(5)
    assert fleet.words == ["paused"]
    await fleet.end()


@in_virtual_time
async def test_leader_sends_what_could_not_be_claimed() -> None:
    fleet = MessengerFleet(5)
    await fleet.beats(CALM, 100)
    fleet.store.is_away = True
    for messenger in fleet.messengers:
        messenger.beaten(ON)
    await asyncio.sleep(100)
    assert fleet.words == ["paused"]
    await fleet.end()


# -- not honoured --------------------------------------------------------------------------------------------------

REPORTING = {
    "errors": (Evidence(60, errors=3), {}, True),
    "requests": (Evidence(60, requests=3), {}, True),
    "a heart": (Evidence(60, heartbeat_age_s=3.0), {}, True),
    "a page": (Evidence(60), {"scrapes": True}, True),
    "silence": (Evidence(60), {}, False),
    "a heart that stopped": (Evidence(60, heartbeat_age_s=300.0), {}, False),
    "a page that is gone": (Evidence(60, missed_scrapes=9), {"scrapes": True}, False),
}


@pytest.mark.parametrize(("evidence", "options", "is_told"), REPORTING.values(), ids=REPORTING)
def test_cull_is_not_honoured_while_the_app_still_reports(
    evidence: Evidence,
    options: dict[str, Any],
    is_told: bool,  # noqa: FBT001 - a column of the table
) -> None:
    @in_virtual_time
    async def story() -> None:
        fleet = MessengerFleet(1, **options)
        since = asyncio.get_running_loop().time()
        for _ in range(32):
            fleet.messengers[0].notice(down(since, evidence))
            await asyncio.sleep(10)
        assert fleet.words == (["not_honoured"] if is_told else [])
        await fleet.end()

    story()


@in_virtual_time
async def test_many_that_are_not_replaced_are_one_message_with_one_end() -> None:
    fleet = MessengerFleet(5)
    since = asyncio.get_running_loop().time()
    for _ in range(40):
        for messenger in fleet.messengers:
            messenger.notice(down(since, Evidence(60, errors=1)))
        await fleet.beats(CALM, 10)
    assert fleet.words == ["not_honoured"]
    container = start("web/a", asyncio.get_running_loop().time(), Policy())
    for messenger in fleet.messengers:
        messenger.notice(Record(FINE, container, container, Evidence(60)))
    await asyncio.sleep(3)
    assert fleet.words == ["not_honoured", "-not_honoured"]
    assert fleet.sent[0].key == fleet.sent[1].key
    await fleet.end()


@in_virtual_time
async def test_second_container_that_is_not_replaced_sends_nothing_more() -> None:
    fleet = MessengerFleet(2)
    begun = asyncio.get_running_loop().time()
    for step in range(70):
        for messenger, late_s in zip(fleet.messengers, (0, 300), strict=True):
            if step * 10 >= late_s:
                messenger.notice(down(begun + late_s, Evidence(60, errors=1)))
        await fleet.beats(CALM, 10)
    assert fleet.words == ["not_honoured"]
    await fleet.end()


@in_virtual_time
async def test_retirement_that_takes_long_is_no_cull() -> None:
    fleet = MessengerFleet(1)
    since = asyncio.get_running_loop().time()
    for _ in range(40):
        fleet.messengers[0].notice(down(since, Evidence(60, errors=1), lease="word"))
        await asyncio.sleep(10)
    assert fleet.words == []
    await fleet.end()


# -- an action that failed -----------------------------------------------------------------------------------------

ENTRY = Entry("action_failed", 1.0, "n0", reason="nomad-stop", detail="Nomad answered 403")


@pytest.mark.parametrize("is_away", [False, True], ids=["Redis is there", "Redis is away"])
@pytest.mark.parametrize("lease", ["", "word"], ids=["cull", "retirement"])
def test_each_failed_action_is_one_message_of_its_own_sidecar_with_one_end(*, is_away: bool, lease: str) -> None:
    @in_virtual_time
    async def story() -> None:
        fleet = MessengerFleet(2)
        await fleet.beats(CALM, 20)
        fleet.store.is_away = is_away
        for own in fleet.messengers:
            for number in range(2):
                now = asyncio.get_running_loop().time()
                own.acted(ENTRY._replace(what="acted"))
                own.notice(down(now, Evidence(60), lease=lease))
                own.acted(ENTRY)
                for _ in range(10):
                    own.notice(down(now, Evidence(60), lease=lease))
                    await asyncio.sleep(1)
                assert fleet.words[-1] == "action_failed", number
                container = start("web/a", now, Policy())
                own.notice(Record(FINE, container, container, Evidence(60)))
                await asyncio.sleep(3)
        assert fleet.words == ["action_failed", "-action"] * 4
        assert {one.notification.instance for one in fleet.sent[:4]} == {"n0"}
        assert [len({one.key for one in part}) for part in (fleet.sent[:4], fleet.sent[4:], fleet.sent)] == [1, 1, 2]
        await fleet.end()

    story()


@in_virtual_time
async def test_action_that_succeeded_or_failed_after_the_app_was_restarted_sends_nothing() -> None:
    fleet = MessengerFleet(2)
    for own in fleet.messengers:
        own.notice(down(0.0, Evidence(60)))
    fleet.messengers[0].acted(ENTRY._replace(what="acted"))
    container = start("web/a", 0.0, Policy())
    fleet.messengers[1].notice(Record(FINE, container, container, Evidence(60)))
    fleet.messengers[1].acted(ENTRY)
    await fleet.beats(CALM, 30)
    assert fleet.words == []
    await fleet.end()


@in_virtual_time
async def test_sidecar_that_found_its_container_down_sends_that_the_action_failed() -> None:
    fleet = MessengerFleet(1)
    fleet.messengers[0].acted(ENTRY)
    await fleet.beats(CALM, 10)
    assert fleet.words == ["action_failed"]
    await fleet.end()


@in_virtual_time
async def test_alert_of_a_failed_action_is_repeated_while_the_container_is_down() -> None:
    fleet = MessengerFleet(2)
    await fleet.beats(CALM, 20)
    fleet.messengers[0].notice(down(0.0, Evidence(60)))
    fleet.messengers[0].acted(ENTRY)
    await fleet.beats(CALM, 300)
    assert (fleet.words, {one.notification.word for one in fleet.alerts}) == (["action_failed"], {"action_failed"})
    assert 5 <= len(fleet.alerts) <= 7
    await fleet.end()


@in_virtual_time
async def test_failure_is_reported_and_survived() -> None:
    fleet = MessengerFleet(1)
    fleet.store.is_broken = True
    await fleet.beats(CALM, 10)
    fleet.store.is_broken = False
    assert [str(error) for error in fleet.failures][:1] == ["bug"]
    fleet.failures.clear()
    await fleet.beats(ON, 20)
    assert fleet.words == ["paused"]
    await fleet.end()
