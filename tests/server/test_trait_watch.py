"""A suspect in company looks what the suspects have in common; nobody else looks."""

from __future__ import annotations

import asyncio
from random import Random

from harness.virtual_time import in_virtual_time
from sidecar.core.fleet.fleet_events import BeatRecord
from sidecar.core.fleet.members import About, Member, MemberList
from sidecar.core.types import Fleet, Presence, State, Unknown
from sidecar.server.trait_watch import EVERY_S, TraitWatch

ABOUT = About(State.UP, 0, "", 100, 0, 5, "0.3.0")
SICK = [Member(f"s{number}", Presence.SUSPECT, "redis", 1.0, ABOUT._replace(node="n7")) for number in range(3)]
LISTED = MemberList(Fleet(4, 3), 0, (*SICK, Member("w", Presence.WELL, "", 1.0, ABOUT._replace(node="n1"))))
OUTAGE, CALM = BeatRecord(Fleet(4, 3)), BeatRecord(Fleet(4, 2))


class Company:
    """A container, suspect or not, and the fleet's list, which counts its readers."""

    def __init__(self) -> None:
        self.is_suspect = True
        self.answer: MemberList | Unknown | Exception = LISTED
        self.reads = 0
        self.failures: list[Exception] = []
        self.watch = TraitWatch(
            self.member_list, lambda: self.is_suspect, rng=Random(1), on_failure=self.failures.append
        )

    async def member_list(self) -> MemberList | Unknown:
        self.reads += 1
        if isinstance(self.answer, Exception):
            raise self.answer
        return self.answer

    @property
    def node(self) -> str:
        return self.watch.value.value if self.watch.value else ""


@in_virtual_time
async def test_suspect_among_three_looks_at_once_and_then_twice_a_minute() -> None:
    it = Company()
    task = asyncio.create_task(it.watch.run())
    it.watch.beaten(CALM)
    await asyncio.sleep(3600)
    assert (it.reads, it.node) == (0, "")
    it.watch.beaten(OUTAGE)
    await asyncio.sleep(1)
    assert (it.reads, it.node) == (1, "n7")
    await asyncio.sleep(10 * EVERY_S)
    assert 8 <= it.reads <= 13
    it.watch.beaten(CALM)
    assert it.node == ""
    task.cancel()


@in_virtual_time
async def test_healthy_container_never_looks() -> None:
    it = Company()
    it.is_suspect = False
    task = asyncio.create_task(it.watch.run())
    it.watch.beaten(OUTAGE)
    await asyncio.sleep(3600)
    assert it.reads == 0
    task.cancel()


@in_virtual_time
async def test_without_an_answer_the_last_look_stays_and_a_failure_ends_nothing() -> None:
    it = Company()
    task = asyncio.create_task(it.watch.run())
    it.watch.beaten(OUTAGE)
    for answer in (Unknown("timeout"), RuntimeError("broken")):
        await asyncio.sleep(2 * EVERY_S)
        it.answer = answer
        it.watch.beaten(BeatRecord(Unknown("timeout")))
    await asyncio.sleep(2 * EVERY_S)
    assert it.node == "n7"
    assert it.failures
    it.answer = MemberList(Fleet(4, 3), 0)
    await asyncio.sleep(2 * EVERY_S)
    assert it.node == ""
    task.cancel()
