from __future__ import annotations

import asyncio
import threading

from sidecar.budget.later import Later
from sidecar.core.words import Answer, Granted, Unknown

GRANTED = Granted(1, 10)


class OpenBucket:
    """Grants everything, and remembers what it was asked."""

    def __init__(self) -> None:
        self.asked: list[str] = []
        self.closed = 0

    async def claim(self, claim_id: str) -> Answer:
        self.asked.append(claim_id)
        return GRANTED

    async def warm(self) -> Unknown | None:
        self.asked.append("warm")
        return Unknown("timeout")

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
    answers = await asyncio.gather(*(later.claim(f"app/{number}") for number in range(5)), later.warm())
    assert answers == [GRANTED] * 5 + [Unknown("timeout")]
    assert sorted(maker.bucket.asked) == [*(f"app/{number}" for number in range(5)), "warm"]
    (thread,) = maker.threads
    assert thread is not threading.current_thread()


async def test_failing_make_is_told_answers_unknown_and_is_tried_again() -> None:
    maker = Maker(failures=2)
    later = maker.later()
    assert await later.claim("app") == Unknown("internal")
    assert await later.warm() == Unknown("internal")
    assert [str(error) for error in maker.told] == ["no such client"] * 2
    assert await later.claim("app") == GRANTED
    assert len(maker.threads) == 3


async def test_claim_that_is_given_up_while_the_bucket_is_made_does_not_stop_the_next_one() -> None:
    release = threading.Event()
    maker = Maker()

    def slow() -> OpenBucket:
        release.wait(10)
        return maker.make()

    later = Later(slow, maker.told.append)
    given_up = asyncio.create_task(later.claim("old"))
    await asyncio.sleep(0)
    given_up.cancel()
    next_one = asyncio.create_task(later.claim("new"))
    await asyncio.sleep(0)
    release.set()
    assert await next_one == GRANTED
    assert maker.bucket.asked == ["new"]


async def test_closing_closes_the_bucket_that_was_made() -> None:
    maker = Maker()
    later = maker.later()
    await later.warm()
    await later.aclose()
    assert maker.bucket.closed == 1


async def test_closing_before_anything_was_made_makes_nothing() -> None:
    maker = Maker()
    await maker.later().aclose()
    assert maker.threads == []
    assert maker.bucket.closed == 0
