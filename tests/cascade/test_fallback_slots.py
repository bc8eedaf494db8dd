"""How the end of a call is counted, and the slots that concurrent walks share."""

from __future__ import annotations

import asyncio

import pytest

from harness.nodes import Clock, Servers, Waiting, cascade_of
from sidecar.cascade.adaptive_limit import AdaptiveLimit
from sidecar.cascade.fallback import BusyError, ExhaustedError, Figures


def one_at_a_time() -> AdaptiveLimit:
    return AdaptiveLimit(1, highest=1)


# -- what is counted -------------------------------------------------------------------------------------------

COUNTED = [
    ("a result", "pong", 1, 11),
    ("nothing at all is a result", None, 1, 11),
    ("a time-out is lost load", TimeoutError(), 0, 9),
    ("an error leaves the limit alone", OSError(), 0, 10),
    ("a cancellation says nothing of the node", asyncio.CancelledError(), 1, 10),
    ("nor does the end of the process", SystemExit(), 1, 10),
]


@pytest.mark.parametrize(
    ("answer", "rate", "limit"), [row[1:] for row in COUNTED], ids=[row[0].replace(" ", "-") for row in COUNTED]
)
async def test_end_of_a_call_is_counted(answer: object, rate: float, limit: int) -> None:
    cascade = cascade_of("a")
    release, others = asyncio.Event(), Waiting()
    waiting = [asyncio.create_task(cascade.attempt("a", others.until(release))) for _ in range(4)]
    await others.reach(4)
    try:
        result = await cascade.attempt("a", Servers(a=answer))
    except BaseException as error:  # noqa: BLE001 - what is handed in comes out, exit and cancellation too
        result = error
    figures = cascade.figures()["a"]
    release.set()
    await asyncio.gather(*waiting)
    assert result is answer
    assert (figures.success_rate, figures.limit, figures.in_flight) == (rate, limit, 4)


async def test_call_is_counted_when_it_ends() -> None:
    clock = Clock()
    cascade = cascade_of("a", clock=clock)
    release, others = asyncio.Event(), Waiting()
    task = asyncio.create_task(cascade.attempt("a", others.until(release, OSError("gone"))))
    await others.reach(1)
    clock.now_s = 31  # more than the ring remembers
    assert cascade.figures()["a"] == Figures(success_rate=1, weight=1, limit=10, in_flight=1)
    release.set()
    with pytest.raises(OSError, match="gone"):
        await task
    clock.now_s += 28  # the ring remembers from the end on, not from the beginning
    assert cascade.figures()["a"] == Figures(success_rate=0, weight=0, limit=10, in_flight=0)


async def test_cancelled_walk_gives_its_slot_back_and_calls_no_other_node() -> None:
    cascade = cascade_of(limit=one_at_a_time)
    others = Waiting()
    task = asyncio.create_task(cascade.run(others.until(asyncio.Event())))
    await others.reach(1)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert others.reached == 1
    assert set(cascade.figures().values()) == {Figures(success_rate=1, weight=1, limit=1, in_flight=0)}


async def test_deadline_of_the_caller_is_a_time_out_of_the_node() -> None:
    async def call(node: str) -> str:
        async with asyncio.timeout(0):
            await asyncio.Event().wait()
        return node

    cascade = cascade_of("a")
    with pytest.raises(ExhaustedError):
        await cascade.run(call)
    assert cascade.figures()["a"] == Figures(success_rate=0, weight=0, limit=9, in_flight=0)


async def test_judge_of_results_that_breaks_keeps_no_slot() -> None:
    def is_final(result: object) -> bool:
        raise LookupError(result)

    cascade = cascade_of("a")
    with pytest.raises(LookupError):
        await cascade.run(Servers(), is_final)
    assert cascade.figures()["a"].in_flight == 0


# -- slots shared by walks ------------------------------------------------------------------------------------


async def test_walks_at_once_share_the_slots() -> None:
    cascade = cascade_of(limit=one_at_a_time)
    release, others = asyncio.Event(), Waiting()
    tasks = [asyncio.create_task(cascade.run(others.until(release))) for _ in range(3)]
    await others.reach(3)
    assert [figures.in_flight for figures in cascade.figures().values()] == [1, 1, 1]
    release.set()
    assert await asyncio.gather(*tasks) == ["pong"] * 3
    assert [figures.in_flight for figures in cascade.figures().values()] == [0, 0, 0]


async def test_without_a_free_slot_a_walk_fails_at_once_without_a_call() -> None:
    cascade = cascade_of(limit=one_at_a_time)
    release, others, servers = asyncio.Event(), Waiting(), Servers()
    tasks = [asyncio.create_task(cascade.run(others.until(release))) for _ in range(3)]
    await others.reach(3)
    with pytest.raises(BusyError, match="any of 3 nodes"):
        await cascade.run(servers)
    assert servers.called == []
    release.set()
    await asyncio.gather(*tasks)
    assert {figures.success_rate for figures in cascade.figures().values()} == {1}, "to be busy is no failure"


async def test_node_without_a_free_slot_is_passed_over() -> None:
    cascade = cascade_of("a", "b", limit=one_at_a_time)
    release, others = asyncio.Event(), Waiting()
    task = asyncio.create_task(cascade.attempt("a", others.until(release)))
    await others.reach(1)
    for _ in range(5):
        assert await cascade.run(Servers()) == "pong of b"
    with pytest.raises(BusyError, match="free at a"):
        await cascade.attempt("a", Servers())
    release.set()
    await task


async def test_busy_node_is_among_the_errors() -> None:
    cascade = cascade_of("a", "b", limit=one_at_a_time)
    release, others = asyncio.Event(), Waiting()
    task = asyncio.create_task(cascade.attempt("a", others.until(release)))
    await others.reach(1)
    with pytest.raises(ExhaustedError) as caught:
        await cascade.run(Servers(b=OSError("gone")))
    assert {node: type(error) for node, error in caught.value.errors.items()} == {"a": BusyError, "b": OSError}
    release.set()
    await task
