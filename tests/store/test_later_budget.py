from __future__ import annotations

import asyncio
import threading
from collections.abc import Sequence
from typing import Any

import pytest

from harness.claims import beat, claim, lease
from sidecar.core.types import Answer, Beat, Claim, Entry, Fleet, Granted, Hold, Lease, Roll, Unknown
from sidecar.store.later_budget import Later

GRANTED = Granted(1, 10)
ENTRY = Entry("culled", 1.0, "a")


class OpenBucket:
    """Grants everything, and remembers what it was asked."""

    def __init__(self) -> None:
        self.asked: list[Any] = []
        self.closed = 0

    async def claim(self, claim: Claim) -> Answer:
        self.asked.append(claim)
        return GRANTED

    async def retire(self, lease: Lease) -> Answer:
        self.asked.append(lease)
        return GRANTED

    async def resign(self, instance: str, holder: str) -> bool | Unknown:
        self.asked.append((instance, holder))
        return True

    async def beat(self, beat: Beat) -> Fleet | Unknown:
        self.asked.append(beat)
        return Unknown("timeout")

    async def hold(self, instance: str, author: str, reason: str, for_s: float) -> Hold | Unknown:
        self.asked.append((instance, author, reason, for_s))
        return Hold(author, reason, for_s, instance)

    async def release(self, instance: str) -> bool | Unknown:
        self.asked.append(instance)
        return True

    async def roll(self) -> Roll | Unknown:
        self.asked.append("roll")
        return Roll(Fleet(1), 0)

    async def note(self, entries: Sequence[Entry]) -> int | Unknown:
        self.asked.append(entries)
        return len(entries)

    async def entries(self, since: float, after: str, most: int) -> Sequence[Entry] | Unknown:
        self.asked.append((since, after, most))
        return [ENTRY]

    async def first(self, word: str, for_s: float) -> bool | Unknown:
        self.asked.append((word, for_s))
        return True

    async def aclose(self) -> None:
        self.closed += 1


class Maker:
    """Makes one bucket, in a thread that it remembers; fails as often as it is told to."""

    def __init__(self, failures: int = 0) -> None:
        self.bucket = OpenBucket()
        self.threads: list[threading.Thread] = []
        self.told: list[Exception] = []
        self._failures = failures

    def make(self) -> OpenBucket:
        self.threads.append(threading.current_thread())
        if len(self.threads) <= self._failures:
            raise ImportError("no such client")
        return self.bucket

    def later(self) -> Later:
        return Later(self.make, self.told.append)


async def test_bucket_is_not_made_before_it_is_needed() -> None:
    maker = Maker()
    maker.later()
    assert maker.threads == []


async def test_bucket_is_made_once_for_all_who_ask_at_once_and_not_in_the_loops_thread() -> None:
    maker = Maker()
    later = maker.later()
    claims = [claim(str(number)) for number in range(5)]
    answers = await asyncio.gather(*map(later.claim, claims), later.beat(beat("a")))
    assert answers == [GRANTED] * 5 + [Unknown("timeout")]
    assert sorted(maker.bucket.asked, key=str) == sorted([*claims, beat("a")], key=str)
    (thread,) = maker.threads
    assert thread is not threading.current_thread()


async def test_what_people_ask_reaches_the_bucket_too() -> None:
    maker = Maker()
    later = maker.later()
    assert await later.hold("a", "ops", "a deploy", 60) == Hold("ops", "a deploy", 60, "a")
    assert await later.release("a") is True
    assert await later.roll() == Roll(Fleet(1), 0)
    assert maker.bucket.asked == [("a", "ops", "a deploy", 60), "a", "roll"]


async def test_leases_reach_the_bucket_too() -> None:
    maker = Maker()
    later = maker.later()
    assert await later.retire(lease("a")) == GRANTED
    assert await later.resign("a", "a's") is True
    assert maker.bucket.asked == [lease("a"), ("a", "a's")]


async def test_ledger_reaches_the_bucket_too() -> None:
    maker = Maker()
    later = maker.later()
    assert await later.note([ENTRY]) == 1
    assert await later.entries(5.0, "1-0", 10) == [ENTRY]
    assert await later.first("word", 60) is True
    assert maker.bucket.asked == [[ENTRY], (5.0, "1-0", 10), ("word", 60)]


async def test_failing_make_is_told_answers_unknown_and_is_tried_again() -> None:
    maker = Maker(failures=10)
    later = maker.later()
    assert await later.claim(claim("a")) == Unknown("internal")
    assert await later.retire(lease("a")) == Unknown("internal")
    assert await later.resign("a", "a's") == Unknown("internal")
    assert await later.beat(beat("a")) == Unknown("internal")
    assert await later.hold("", "ops", "a deploy", 60) == Unknown("internal")
    assert await later.release("") == Unknown("internal")
    assert await later.roll() == Unknown("internal")
    assert await later.note([ENTRY]) == Unknown("internal")
    assert await later.entries(0, "", 1) == Unknown("internal")
    assert await later.first("word", 60) == Unknown("internal")
    assert [str(error) for error in maker.told] == ["no such client"] * 10
    assert await later.claim(claim("a")) == GRANTED
    assert len(maker.threads) == 11


async def test_claim_that_is_given_up_while_the_bucket_is_made_does_not_stop_the_next_one() -> None:
    release = threading.Event()
    maker = Maker()

    def slow() -> OpenBucket:
        release.wait(10)
        return maker.make()

    later = Later(slow, maker.told.append)
    given_up = asyncio.create_task(later.claim(claim("old")))
    await asyncio.sleep(0)
    given_up.cancel()
    next_one = asyncio.create_task(later.claim(claim("new")))
    await asyncio.sleep(0)
    release.set()
    assert await next_one == GRANTED
    assert maker.bucket.asked == [claim("new")]
    with pytest.raises(asyncio.CancelledError):
        await given_up


async def test_closing_closes_the_bucket_that_was_made() -> None:
    maker = Maker()
    later = maker.later()
    await later.beat(beat("a"))
    await later.aclose()
    assert maker.bucket.closed == 1


async def test_closing_before_anything_was_made_makes_nothing() -> None:
    maker = Maker()
    await maker.later().aclose()
    assert maker.threads == []
    assert maker.bucket.closed == 0
