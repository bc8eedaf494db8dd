"""Fleets of messengers around one bucket, in virtual time: who tells what, and how often."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import pairwise
from random import Random
from typing import Any, cast

import pytest

from harness.virtual_time import in_virtual_time, settle
from sidecar.core.life import transitions
from sidecar.core.life.container import Container
from sidecar.core.life.events import Answered, Judged
from sidecar.core.life.snapshot import Record
from sidecar.core.types import (
    Answer,
    CauseTrial,
    Denied,
    Evidence,
    Fleet,
    Granted,
    Judgement,
    Latch,
    Policy,
    Roll,
    State,
    Unknown,
    Verdict,
)
from sidecar.notify.episodes import Occasion, Occasions
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
class FakeBucket:
    """Says who was first, on the loop's clock; or nothing, while it is away."""

    is_away: bool = False
    is_broken: bool = False
    used: int = 0
    said: dict[str, tuple[str, float]] = field(default_factory=dict)

    def by(self, caller: str) -> Any:
        return _Caller(self, caller)


@dataclass
class _Caller:
    bucket: FakeBucket
    name: str

    async def first(self, word: str, for_s: float) -> bool | Unknown:
        await asyncio.sleep(0.01)
        if self.bucket.is_broken:
            raise RuntimeError("bug")
        if self.bucket.is_away:
            return AWAY
        now = asyncio.get_running_loop().time()
        _, until = self.bucket.said.get(word, ("", 0.0))
        if now < until:
            return False
        self.bucket.said[word] = self.name, now + for_s
        return True

    async def roll(self) -> Roll | Unknown:
        return AWAY if self.bucket.is_away else Roll(CALM, self.bucket.used)


class FakeReceiver:
    """Takes everything; ``repeats`` as an Alertmanager wants it."""

    def __init__(self, taken: list[Message], name: str, is_deaf: Callable[[], bool], *, repeats: bool = False) -> None:
        self.name = name
        self.repeats = repeats
        self.taken = taken
        self.is_deaf = is_deaf

    def wants(self, _: Occasion) -> bool:
        return True

    async def send(self, message: Message) -> str:
        if self.is_deaf():
            raise UndeliveredError("status 503")
        self.taken.append(message)
        return "host"


class Crew:
    """So many messengers of one fleet. ``told`` has what any of them sent, ``alerts`` what was sent to who forgets."""

    def __init__(self, count: int, **options: Any) -> None:
        self.bucket = FakeBucket()
        self.told: list[Message] = []
        self.alerts: list[Message] = []
        self.failures: list[Exception] = []
        self.is_deaf = False
        self.messengers = [self._made(f"n{number}", **options) for number in range(count)]
        loop = asyncio.get_running_loop()
        self.tasks = [loop.create_task(one.run()) for one in self.messengers]

    def _made(self, name: str, *, scrapes: bool = False, **options: Any) -> Messenger:
        clock = asyncio.get_running_loop().time
        rng = Random(name)
        fakes = [
            FakeReceiver(taken, name, lambda: self.is_deaf, repeats=name == "alerts")
            for name, taken in (("fake", self.told), ("alerts", self.alerts))
        ]
        boxes = [
            Outbox(cast("Receiver", cast("Any", fake)), clock=clock, rng=rng, told=lambda _: None) for fake in fakes
        ]
        return Messenger(
            Occasions(name, honour_s=300.0),
            boxes,
            self.bucket.by(name),
            Watch(scrapes=scrapes),
            Context("web", "prod", name),
            clock=clock,
            wall=lambda: 1_700_000_000.0 + clock(),
            rng=rng,
            on_failure=self.failures.append,
            **options,
        )

    async def beats(self, answer: Fleet | Unknown, seconds: float, every_s: float = 10.0) -> None:
        """Let every sidecar beat, one after the other, as long as that takes."""
        for _ in range(round(seconds / every_s)):
            for messenger in self.messengers:
                messenger.beaten(answer)
                await asyncio.sleep(every_s / len(self.messengers))

    @property
    def words(self) -> list[str]:
        return [f"-{one.occasion.topic}" if one.occasion.is_over else one.occasion.word for one in self.told]

    async def end(self) -> None:
        for task in self.tasks:
            task.cancel()
        await settle()
        assert self.failures == []


def answered(answer: Answer) -> Record:
    container = Container(State.SUSPECT, 0.0, "web/a")
    return Record(Answered("id", answer, 0.0), container, container, Evidence(60))


def down(since: float, evidence: Evidence, *, lease: str = "") -> Record:
    container = Container(State.DOWN, since, "web/a", latch=Latch("id", 0.0, "why", lease))
    return Record(FINE, container, container, evidence)


@in_virtual_time
async def test_fleet_tells_once_and_its_recovery_once() -> None:
    crew = Crew(5)
    await crew.beats(CALM, 30)
    await crew.beats(ON, 200)
    await crew.beats(CALM, 120)
    assert crew.words == ["paused", "-paused"]
    await crew.end()


@in_virtual_time
async def test_two_incidents_are_told_twice() -> None:
    crew = Crew(5)
    await crew.beats(CALM, 10)
    for _ in range(2):
        await crew.beats(ON, 20)
        await crew.beats(CALM, 90)
    assert crew.words == ["paused", "-paused"] * 2
    await crew.end()


@in_virtual_time
async def test_replacement_that_comes_in_an_incident_tells_nothing_new() -> None:
    crew = Crew(3)
    await crew.beats(CALM, 10)
    await crew.beats(ON, 300)
    late = crew._made("late")
    crew.messengers.append(late)
    crew.tasks.append(asyncio.get_running_loop().create_task(late.run()))
    await crew.beats(ON, 120)
    assert crew.words == ["paused"]
    await crew.end()


@in_virtual_time
async def test_replacements_alone_still_tell_the_end() -> None:
    crew = Crew(3)
    await crew.beats(CALM, 10)
    await crew.beats(ON, 60)
    for messenger, task in zip(crew.messengers[:], crew.tasks[:], strict=True):
        task.cancel()
        crew.messengers.remove(messenger)
        fresh = crew._made(f"new{len(crew.tasks)}")
        crew.messengers.append(fresh)
        crew.tasks.append(asyncio.get_running_loop().create_task(fresh.run()))
    await crew.beats(ON, 60)
    await crew.beats(CALM, 120)
    assert crew.words == ["paused", "-paused"]
    await crew.end()


@in_virtual_time
async def test_alert_is_repeated_once_a_minute_by_one_of_the_fleet() -> None:
    crew = Crew(5)
    await crew.beats(CALM, 10)
    await crew.beats(ON, 600)
    at = [one.at for one in crew.alerts]
    assert 10 <= len(at) <= 13
    assert max(later - earlier for earlier, later in pairwise(at)) < 75
    assert crew.words == ["paused"]
    await crew.end()


@in_virtual_time
async def test_what_its_teller_could_not_send_before_it_ended_another_one_tells() -> None:
    crew = Crew(5)
    await crew.beats(CALM, 10)
    crew.is_deaf = True
    await crew.beats(ON, 10)
    (teller,) = (name for word, (name, _) in crew.bucket.said.items() if word == "message:paused:1")
    crew.tasks[int(teller[1:])].cancel()
    crew.is_deaf = False
    await crew.beats(ON, 120)
    assert crew.words == ["paused"]
    await crew.beats(CALM, 120)
    assert crew.words == ["paused", "-paused"]
    await crew.end()


@in_virtual_time
async def test_who_tries_for_long_to_tell_is_not_outrun_by_others() -> None:
    crew = Crew(5)
    await crew.beats(CALM, 10)
    crew.is_deaf = True
    await crew.beats(ON, 100)
    crew.is_deaf = False
    await crew.beats(ON, 60)
    assert crew.words == ["paused"]
    await crew.end()


@in_virtual_time
async def test_nothing_is_repeated_while_all_is_well() -> None:
    crew = Crew(3)
    await crew.beats(CALM, 600)
    assert (crew.alerts, crew.told) == ([], [])
    await crew.end()


# -- the budget ----------------------------------------------------------------------------------------------------


@in_virtual_time
async def test_each_level_is_told_by_who_reached_it() -> None:
    crew = Crew(5)
    await crew.beats(CALM, 10)
    for used in range(1, 6):
        crew.messengers[used - 1].notice(answered(Granted(used, 5)))
        await asyncio.sleep(2)
    assert crew.words == ["budget_50", "budget_80", "budget_empty"]
    await crew.end()


@in_virtual_time
async def test_single_cull_is_quiet() -> None:
    crew = Crew(3)
    await crew.beats(CALM, 10)
    crew.messengers[0].notice(answered(Granted(1, 10)))
    await crew.beats(CALM, 700)
    assert crew.told == []
    await crew.end()


@in_virtual_time
async def test_refused_container_does_not_tell_again_what_was_told() -> None:
    crew = Crew(3)
    await crew.beats(CALM, 10)
    crew.messengers[0].notice(answered(Granted(2, 2)))
    await asyncio.sleep(2)
    crew.messengers[1].notice(answered(Denied("window", 2, 2, 60.0)))
    crew.messengers[2].notice(answered(Granted(2, 2, replayed=True)))
    await asyncio.sleep(5)
    assert crew.words == ["budget_empty"]
    await crew.end()


@in_virtual_time
async def test_speaker_asks_how_many_tokens_are_back() -> None:
    crew = Crew(3, capacity=4)
    await crew.beats(CALM, 10)
    crew.bucket.used = 4
    crew.messengers[0].notice(answered(Granted(4, 4)))
    await crew.beats(CALM, 200)
    crew.bucket.used = 0
    await crew.beats(CALM, 700)
    assert crew.words == ["budget_empty", "-budget"]
    await crew.end()


# -- Redis away ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("count", [1, 5, 30])
def test_one_of_the_fleet_tells_that_redis_is_away(count: int) -> None:
    @in_virtual_time
    async def story() -> None:
        crew = Crew(count)
        await crew.beats(CALM, 700)
        crew.bucket.is_away = True
        await crew.beats(AWAY, 200)
        assert crew.words == []
        await crew.beats(AWAY, 400)
        assert crew.words == ["redis_unknown"]
        crew.bucket.is_away = False
        await crew.beats(CALM, 120)
        assert crew.words == ["redis_unknown", "-redis"]
        await crew.end()

    story()


@in_virtual_time
async def test_who_never_reached_redis_speaks_for_itself() -> None:
    crew = Crew(2)
    crew.bucket.is_away = True
    await crew.beats(AWAY, 400)
    assert crew.words == ["redis_unknown"] * 2
    assert len({one.key for one in crew.told}) == 1
    await crew.end()


@in_virtual_time
async def test_short_silence_of_redis_delays_a_message_and_loses_none() -> None:
    crew = Crew(5)
    await crew.beats(CALM, 100)
    crew.bucket.is_away = True
    for messenger in crew.messengers:
        messenger.beaten(ON)
    await asyncio.sleep(20)
    assert crew.words == []
    crew.bucket.is_away = False
    await asyncio.sleep(5)
    assert crew.words == ["paused"]
    await crew.end()


@in_virtual_time
async def test_speaker_tells_what_nobody_could_claim() -> None:
    crew = Crew(5)
    await crew.beats(CALM, 100)
    crew.bucket.is_away = True
    for messenger in crew.messengers:
        messenger.beaten(ON)
    await asyncio.sleep(100)
    assert crew.words == ["paused"]
    await crew.end()


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
        crew = Crew(1, **options)
        since = asyncio.get_running_loop().time()
        for _ in range(32):
            crew.messengers[0].notice(down(since, evidence))
            await asyncio.sleep(10)
        assert crew.words == (["not_honoured"] if is_told else [])
        await crew.end()

    story()


@in_virtual_time
async def test_many_that_are_not_replaced_are_one_message_and_its_end_is_told() -> None:
    crew = Crew(5)
    since = asyncio.get_running_loop().time()
    for _ in range(40):
        for messenger in crew.messengers:
            messenger.notice(down(since, Evidence(60, errors=1)))
        await crew.beats(CALM, 10)
    assert crew.words == ["not_honoured"]
    container = transitions.start("web/a", asyncio.get_running_loop().time(), Policy())
    for messenger in crew.messengers:
        messenger.notice(Record(FINE, container, container, Evidence(60)))
    await asyncio.sleep(3)
    assert crew.words == ["not_honoured", "-not_honoured"]
    assert crew.told[0].key == crew.told[1].key
    await crew.end()


@in_virtual_time
async def test_who_is_not_replaced_some_minutes_after_another_one_tells_nothing_more() -> None:
    crew = Crew(2)
    begun = asyncio.get_running_loop().time()
    for step in range(70):
        for messenger, late_s in zip(crew.messengers, (0, 300), strict=True):
            if step * 10 >= late_s:
                messenger.notice(down(begun + late_s, Evidence(60, errors=1)))
        await crew.beats(CALM, 10)
    assert crew.words == ["not_honoured"]
    await crew.end()


@in_virtual_time
async def test_process_that_takes_over_tells_the_end_of_what_the_one_before_told() -> None:
    crew = Crew(1)
    begun = asyncio.get_running_loop().time()
    for _ in range(35):
        crew.messengers[0].notice(down(begun, Evidence(60, errors=1)))
        await crew.beats(CALM, 10)
    (before,), crew.messengers[:] = crew.messengers, [crew._made("n0")]
    crew.tasks.pop().cancel()
    crew.messengers[0].go_on(before.own)
    crew.tasks.append(asyncio.get_running_loop().create_task(crew.messengers[0].run()))
    for _ in range(60):
        crew.messengers[0].notice(down(begun, Evidence(60, errors=1)))
        await crew.beats(CALM, 10)
    assert crew.words == ["not_honoured"]
    assert len(crew.alerts) > 10
    container = transitions.start("web/a", asyncio.get_running_loop().time(), Policy())
    crew.messengers[0].notice(Record(FINE, container, container, Evidence(60)))
    await asyncio.sleep(3)
    assert crew.words == ["not_honoured", "-not_honoured"]
    await crew.end()


@in_virtual_time
async def test_retirement_that_takes_long_is_no_cull() -> None:
    crew = Crew(1)
    since = asyncio.get_running_loop().time()
    for _ in range(40):
        crew.messengers[0].notice(down(since, Evidence(60, errors=1), lease="word"))
        await asyncio.sleep(10)
    assert crew.words == []
    await crew.end()


@in_virtual_time
async def test_failure_is_told_and_survived() -> None:
    crew = Crew(1)
    crew.bucket.is_broken = True
    await crew.beats(CALM, 10)
    crew.bucket.is_broken = False
    assert [str(error) for error in crew.failures][:1] == ["bug"]
    crew.failures.clear()
    await crew.beats(ON, 20)
    assert crew.words == ["paused"]
    await crew.end()
