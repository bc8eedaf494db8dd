"""Fleets of messengers with one store, in virtual time: which one sends what, and how often."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from random import Random
from typing import Any, cast

import pytest

from harness.virtual_time import in_virtual_time, settle
from sidecar.config.settings import IdentityConfig
from sidecar.core.claims import CauseTrial, Fleet, Presence, Unknown
from sidecar.core.fleet.fleet_events import FleetWatch
from sidecar.core.fleet.members import Member, MemberList
from sidecar.core.types import Entry
from sidecar.notify.messenger import GIVE_UP_S, LEADER_S, LOOK_S, MOST_WAITING, Delivery, Messenger
from sidecar.notify.webhook import UndeliveredError, Webhook

AWAY = Unknown("connection")
CALM = Fleet(5)
ON = Fleet(5, suspect=1, trials=(CauseTrial("redis", 1, 0, 540.0, 1),))
AGAIN = Fleet(5, suspect=1, trials=(CauseTrial("redis", 1, 0, 1080.0, 2),))
MEMBERS = (
    Member("n0", Presence.DOWN, "redis", 0.0),
    Member("n1", Presence.SUSPECT, "redis", 0.0),
    Member("n2", Presence.SUSPECT, "mysql", 0.0),
)


@dataclass
class FakeBudget:
    """Grants each claim to the first caller, on the loop's clock; gives no answer while it is away."""

    is_away: bool = False
    hangs: bool = False
    is_broken: bool = False
    members: tuple[Member, ...] = MEMBERS
    claims: dict[str, float] = field(default_factory=dict)

    async def first(self, word: str, for_s: float) -> bool | Unknown:
        await asyncio.sleep(0.01)
        if self.is_broken:
            raise RuntimeError("bug")
        if self.is_away:
            return AWAY
        now = asyncio.get_running_loop().time()
        if now < self.claims.get(word, 0.0):
            return False
        self.claims[word] = now + for_s
        return True

    async def member_list(self) -> MemberList | Unknown:
        if self.hangs:
            await asyncio.Event().wait()
        return AWAY if self.is_away else MemberList(CALM, 0, self.members)


class FakeWebhook(Webhook):
    """Refuses ``refusals`` in turn, and all of ``refused_sender``; takes the rest, at these times of the loop."""

    def __init__(self) -> None:
        super().__init__("http://a", "")
        self.refusals: list[UndeliveredError] = []
        self.refused_sender = ""
        self.taken: list[Mapping[str, str]] = []
        self.times: list[float] = []

    async def send(self, fields: Mapping[str, str]) -> str:
        await asyncio.sleep(0)
        if self.refusals:
            raise self.refusals.pop(0)
        if fields["sender"] == self.refused_sender:
            raise UndeliveredError("connection")
        self.taken.append(fields)
        self.times.append(asyncio.get_running_loop().time())
        return "host"


class MessengerFleet:
    """The messengers of one fleet, with one webhook. ``outcomes``: of all attempts."""

    def __init__(self, count: int) -> None:
        self.store = FakeBudget()
        self.webhook = FakeWebhook()
        self.outcomes: list[Delivery] = []
        self.failures: list[Exception] = []
        self.messengers: list[Messenger] = []
        self.watches: list[FleetWatch] = []
        self.tasks: list[asyncio.Task[Any]] = []
        for number in range(count):
            self.join(f"n{number}")

    def join(self, name: str) -> None:
        loop, rng = asyncio.get_running_loop(), Random(name)
        messenger = Messenger(
            self.webhook,
            cast("Any", self.store),
            IdentityConfig("web", "prod", name, mode="enforce"),
            "",
            clock=loop.time,
            wall=lambda: 1_700_000_000.0 + loop.time(),
            rng=rng,
            sample=lambda cause: f"a sample of {cause}" if cause else "",
            observe=self.outcomes.append,
            on_failure=self.failures.append,
        )
        self.messengers.append(messenger)
        self.watches.append(FleetWatch())
        self.tasks.append(loop.create_task(messenger.run()))

    async def beats(self, answer: Fleet | Unknown, seconds: float, every_s: float = 10.0) -> None:
        """Let every sidecar beat, one after the other, as long as that takes."""
        self.store.is_away = isinstance(answer, Unknown)
        for _ in range(round(seconds / every_s)):
            for messenger, watch in zip(self.messengers, self.watches, strict=True):
                messenger.beaten(watch.record(answer, 0.0))
                await asyncio.sleep(every_s / len(self.messengers))

    def fail(self, *details: str, number: int = 0) -> None:
        """Let the action of a sidecar fail, for which it needs no claim."""
        for detail in details:
            self.messengers[number].acted(Entry("action_failed", 1.0, reason="command", detail=detail))

    @property
    def sent(self) -> list[Mapping[str, str]]:
        return self.webhook.taken

    @property
    def words(self) -> list[str]:
        return [message["word"] for message in self.sent]

    @property
    def details(self) -> list[str]:
        """Of the failed actions, in the order of their messages."""
        return [re.findall(r"failed: (.*?)\. The", message["sentence"])[0] for message in self.sent]

    async def end(self) -> None:
        for task in self.tasks:
            task.cancel()
        await settle()


@in_virtual_time
async def test_alert_is_one_message_of_the_fleet_and_each_further_one_another() -> None:
    fleet = MessengerFleet(5)
    await fleet.beats(CALM, 30)
    await fleet.beats(ON, 600)
    fleet.join("late")
    await fleet.beats(ON, 60)
    assert fleet.words == ["paused"]
    await fleet.beats(AGAIN, 60)
    assert fleet.words == ["paused"] * 2
    assert fleet.failures == []
    await fleet.end()


@in_virtual_time
async def test_message_names_the_containers_with_the_cause_suspects_first() -> None:
    fleet = MessengerFleet(1)
    await fleet.beats(CALM, 10)
    await fleet.beats(ON, 20)
    (message,) = fleet.sent
    assert (message["containers"], message["cause"]) == ("n1, n0", "redis")
    assert (message["sample"], message["command"]) == ("a sample of redis", "health-arbiter why n1")
    await fleet.end()


@pytest.mark.parametrize(("away_s", "words"), [(10, ["paused"]), (30, [])], ids=["asked again", "given up"])
def test_claim_without_an_answer_is_asked_again_and_then_given_up(away_s: float, words: list[str]) -> None:
    @in_virtual_time
    async def story() -> None:
        fleet = MessengerFleet(3)
        await fleet.beats(CALM, 10)
        fleet.store.is_away = True
        for messenger, watch in zip(fleet.messengers, fleet.watches, strict=True):
            messenger.beaten(watch.record(ON, 0.0))
        await asyncio.sleep(away_s)
        fleet.store.is_away = False
        await asyncio.sleep(10)
        assert fleet.words == words, "another sidecar may have sent it, and its claim may be over"
        await fleet.end()

    story()


@pytest.mark.parametrize("calm_s", [30, LEADER_S - 10, LEADER_S + 30, 1000])
def test_redis_away_is_told_once_by_the_elected_sidecar(calm_s: float) -> None:
    @in_virtual_time
    async def outage() -> None:
        fleet = MessengerFleet(5)
        await fleet.beats(CALM, calm_s)
        await fleet.beats(AWAY, 600)
        assert fleet.words == ["redis_unknown"]
        assert fleet.sent[0]["command"] == "health-arbiter doctor"
        await fleet.end()

    outage()


@in_virtual_time
async def test_fleet_that_never_reached_redis_sends_nothing() -> None:
    fleet = MessengerFleet(3)
    await fleet.beats(AWAY, 1000)
    assert fleet.words == []
    await fleet.end()


@in_virtual_time
async def test_failed_action_is_told_by_its_own_sidecar_without_redis() -> None:
    fleet = MessengerFleet(3)
    await fleet.beats(CALM, 10)
    await fleet.beats(AWAY, 10)
    fleet.fail("exit code 5", number=2)
    await asyncio.sleep(5)
    (message,) = fleet.sent
    assert (message["word"], message["instance"], message["sender"]) == ("action_failed", "n2", "n2")
    assert message["command"] == "health-arbiter why n2"
    fleet.messengers[2].acted(Entry("acted", 2.0, reason="command"))
    await asyncio.sleep(5)
    assert len(fleet.sent) == 1
    await fleet.end()


@in_virtual_time
async def test_failure_of_ours_ends_nothing() -> None:
    fleet = MessengerFleet(1)
    fleet.store.is_broken = True
    await fleet.beats(CALM, 10)
    assert fleet.failures
    fleet.store.is_broken = False
    await fleet.beats(ON, 20)
    assert fleet.words == ["paused"]
    await fleet.end()


@in_virtual_time
async def test_message_does_not_wait_long_for_the_containers() -> None:
    fleet = MessengerFleet(1)
    fleet.store.hangs = True
    await fleet.beats(CALM, 10)
    fleet.messengers[0].beaten(fleet.watches[0].record(ON, 0.0))
    await asyncio.sleep(LOOK_S + 2.5)
    (message,) = fleet.sent
    assert (message["containers"], message["cause"]) == ("", "redis")
    await fleet.end()


# -- the queue --------------------------------------------------------------------------------------------------------


@in_virtual_time
async def test_messages_are_sent_in_order_and_tried_again_after_growing_pauses() -> None:
    fleet = MessengerFleet(1)
    fleet.webhook.refusals = [UndeliveredError("status 500") for _ in range(8)]
    begun = asyncio.get_running_loop().time()
    fleet.fail("one", "two")
    await asyncio.sleep(1000)
    assert fleet.details == ["one", "two"]
    assert 0.5 * (1 + 2 + 4 + 8 + 16 + 32 + 60 + 60) <= fleet.webhook.times[0] - begun <= 1.5 * 183
    assert fleet.outcomes == [
        *[Delivery("failed", "action_failed", "status 500")] * 8,
        *[Delivery("sent", "action_failed", "host")] * 2,
    ]
    await fleet.end()


@in_virtual_time
async def test_message_is_given_up_after_its_time_or_at_once_if_it_will_never_be_taken() -> None:
    fleet = MessengerFleet(1)
    fleet.webhook.refusals = [UndeliveredError("status 400", is_final=True), *[UndeliveredError("x")] * 300]
    fleet.fail("bad", "late")
    await asyncio.sleep(GIVE_UP_S - 200)
    assert [delivery.outcome for delivery in fleet.outcomes if delivery.outcome != "failed"] == ["dropped"]
    assert len(fleet.messengers[0]) == 1, "it is still tried"
    await asyncio.sleep(250)
    assert len(fleet.messengers[0]) == 0
    assert [delivery.outcome for delivery in (fleet.outcomes[0], fleet.outcomes[-1])] == ["dropped"] * 2
    await fleet.end()


@in_virtual_time
async def test_oldest_message_is_dropped_when_too_many_wait() -> None:
    fleet = MessengerFleet(1)
    fleet.webhook.refusals = [UndeliveredError("x")]
    fleet.fail("first")
    await settle()
    fleet.fail(*map(str, range(MOST_WAITING + 1)))
    assert len(fleet.messengers[0]) == MOST_WAITING + 1, "and one that is being sent"
    await asyncio.sleep(10)
    assert fleet.details == ["first", *map(str, range(1, MOST_WAITING + 1))], "but the oldest, all are sent once"
    assert Delivery("dropped", "action_failed", "too many wait") in fleet.outcomes
    assert len(fleet.messengers[0]) == 0
    await fleet.end()


@in_virtual_time
async def test_alert_that_waits_behind_a_message_is_sent_by_another_sidecar() -> None:
    fleet = MessengerFleet(2)
    await fleet.beats(CALM, 10)
    fleet.webhook.refused_sender = "n0"
    fleet.fail("exit code 5", number=0)
    await fleet.beats(ON, 30)
    assert [(message["word"], message["sender"]) for message in fleet.sent] == [("paused", "n1")]
    fleet.webhook.refused_sender = ""
    await asyncio.sleep(90)
    assert fleet.words == ["paused", "action_failed"]
    await fleet.end()
