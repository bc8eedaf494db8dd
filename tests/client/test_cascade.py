"""Which nodes are called, what the caller gets back, how ends are counted, and what the sidecar is told."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Awaitable
from itertools import permutations
from pathlib import Path
from random import Random
from typing import Any

import pytest

from client.conftest import Listener, Totals
from sidecar.client import BusyError, Cascade, ExhaustedError, cascade
from sidecar.client.cascade import CallSlots, Figures


class Servers:
    """Answers by node: a value to return or an exception to raise. ``called`` has the nodes in order."""

    def __init__(self, **answers: object) -> None:
        self.answers = answers
        self.called: list[str] = []

    async def __call__(self, node: str) -> object:
        self.called.append(node)
        answer = self.answers.get(node, f"pong of {node}")
        if isinstance(answer, BaseException):
            raise answer
        return answer


def cascade_of(*nodes: str, timeout_s: float = 3600.0) -> Cascade[str]:
    """A cascade over these nodes, or over ``a``, ``b`` and ``c``. Its clock stands still."""
    return Cascade(nodes or ("a", "b", "c"), rng=Random(4), clock=lambda: 0.0, timeout_s=timeout_s)


@pytest.fixture
def _one_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cascade, "FIRST", 1)
    monkeypatch.setattr(cascade, "HIGHEST", 1)


# -- one run ----------------------------------------------------------------------------------------------------


async def test_first_answer_is_the_result_and_no_other_node_is_called() -> None:
    servers = Servers()
    result = await cascade_of().run(servers)
    assert [result] == [f"pong of {node}" for node in servers.called]


async def test_call_that_fails_before_it_can_be_awaited_is_a_failure_of_its_node() -> None:
    def call(node: str) -> Awaitable[str]:
        raise OSError(node)

    cascade = cascade_of("a")
    with pytest.raises(ExhaustedError):
        await cascade.run(call)
    assert cascade.figures()["a"] == Figures(success_rate=0, weight=0, limit=10, in_flight=0)


async def test_errors_of_all_nodes_are_in_the_order_of_the_run_and_the_last_is_the_cause() -> None:
    servers = Servers(a=OSError("gone"), b=TimeoutError("late"), c=ValueError("odd"))
    with pytest.raises(ExhaustedError) as caught:
        await cascade_of().run(servers)
    assert sorted(servers.called) == ["a", "b", "c"]
    assert list(caught.value.errors) == servers.called
    assert caught.value.errors == servers.answers
    assert caught.value.__cause__ is servers.answers[servers.called[-1]]
    assert "a: OSError('gone')" in str(caught.value)


# -- the choice -------------------------------------------------------------------------------------------------


async def test_places_fall_by_the_share_of_the_weights() -> None:
    """By the cube: of a node that fails one call in five the weight is 0.512. One that only fails comes last."""
    cascade = cascade_of("well", "fails one in five", "fails half", "fails")
    for node, rates in (("fails one in five", (4, 1)), ("fails half", (1, 1)), ("fails", (0, 1))):
        cascade._histories[node].count(0.0, *rates)
    weights = {"well": 1.0, "fails one in five": 0.8**3, "fails half": 0.5**3}
    draws = 5_000
    orders = Counter(tuple(cascade.order()) for _ in range(draws))
    for order in permutations(weights):
        chance, left = 1.0, dict(weights)
        for node in order:
            chance *= left[node] / sum(left.values())
            del left[node]
        assert orders[*order, "fails"] / draws == pytest.approx(chance, abs=4 * (chance * (1 - chance) / draws) ** 0.5)


async def test_dead_node_comes_last_until_the_ring_has_forgotten_it_and_has_its_share_again_with_an_answer() -> None:
    now_s = 0.0
    cascade = Cascade(("a", "b"), rng=Random(4), clock=lambda: now_s)

    async def part_of_first_places(servers: Servers) -> float:
        """What ``a`` has of 400 runs."""
        firsts = 0
        for _ in range(400):
            servers.called.clear()
            await cascade.run(servers)
            firsts += servers.called[0] == "a"
        return firsts / 400

    dead, well = Servers(a=OSError("gone")), Servers()
    assert await part_of_first_places(dead) == 1 / 400, "the call that shows it"
    now_s = 29.0
    assert await part_of_first_places(dead) == 0, "its failure is in the ring"
    now_s = 30.0
    assert cascade.figures()["a"][:2] == (0, 0.01)
    assert await part_of_first_places(dead) == 1 / 400, "one call tries it"
    now_s = 60.0
    assert await part_of_first_places(well) > 0, "one answer is enough"
    assert cascade.figures()["a"][:2] == (1, 1)
    assert await part_of_first_places(well) == pytest.approx(1 / 2, abs=0.1)


@pytest.mark.parametrize("nodes", [[], ["a", "b", "a"]], ids=["none", "twice"])
def test_nodes_that_are_no_choice_are_refused(nodes: list[str]) -> None:
    with pytest.raises(ValueError, match="each of them once"):
        Cascade(nodes)


# -- how the end of a call is counted, and what the sidecar is told -----------------------------------------------

OK = {"ok": 1}
RECOVERED = "recovered "
LOST = "server_error ExhaustedError"

ENDS: list[tuple[str, object, float, int, dict[str, int]]] = [
    ("a result", "pong", 1, 11, OK),
    ("a time-out is lost load", TimeoutError(), 0, 9, {f"{RECOVERED}TimeoutError": 1, "failed": 1, LOST: 1}),
    ("an error leaves the limit alone", OSError(), 0, 10, {f"{RECOVERED}OSError": 1, "failed": 1, LOST: 1}),
    ("a cancellation says nothing of the node", asyncio.CancelledError(), 1, 10, {}),
]


@pytest.mark.parametrize(
    ("answer", "rate", "limit", "reported"), [row[1:] for row in ENDS], ids=[row[0].replace(" ", "-") for row in ENDS]
)
async def test_end_of_a_call_is_counted_and_told(
    answer: object, rate: float, limit: int, reported: dict[str, int], totals: Totals
) -> None:
    cascade, servers = cascade_of("a"), Servers(a=answer)
    release = asyncio.Event()
    waiting = [asyncio.create_task(cascade.run(lambda _: release.wait())) for _ in range(4)]
    await asyncio.sleep(0)  # each of them has taken a slot: half of the limit is in use
    try:
        result = await cascade.run(servers)
    except ExhaustedError as error:
        result = error.errors["a"]
    except BaseException as error:  # noqa: BLE001 - what is handed in comes out, exit and cancellation too
        result = error
    assert result is answer
    assert totals() == reported
    assert cascade.figures()["a"][::2] == (rate, limit)
    assert cascade.figures()["a"].in_flight == 4
    release.set()
    await asyncio.gather(*waiting)


async def test_failure_that_the_next_node_made_good_is_told_as_recovered_with_its_node(
    totals: Totals, listener: Listener
) -> None:
    cascade = cascade_of("a", "b")
    for _ in range(10):
        await cascade.run(Servers(a=OSError("gone")))
    assert totals() == {"ok": 10, "failed": 1, "recovered OSError": 1}
    assert listener.errors[0].fingerprint == "OSError@a"


async def test_call_that_hangs_is_cut_and_gives_its_slot_back() -> None:
    cascade = cascade_of("a", timeout_s=0)
    with pytest.raises(ExhaustedError) as caught:
        await cascade.run(lambda _: asyncio.Event().wait())
    assert isinstance(caught.value.errors["a"], TimeoutError)
    assert cascade.figures()["a"] == Figures(success_rate=0, weight=0, limit=9, in_flight=0)


async def test_example_of_the_page_falls_back_and_tells_the_sidecar(totals: Totals) -> None:
    page = (Path(__file__).parents[2] / "deploy/reporting.md").read_text()
    (example,) = (block for block in page.split("```python\n")[1:] if "Cascade(" in block)

    class Replica:
        def __init__(self, answer: bytes | None) -> None:
            self.answer = answer

        async def get(self, key: str) -> bytes:
            if self.answer is None:
                raise ConnectionError(key)
            return self.answer

    replicas = {"replica-1": Replica(b"apples"), "replica-2": Replica(None), "replica-3": Replica(None)}
    app: dict[str, Any] = {"replicas": replicas}
    exec(example.partition("```")[0].replace("health_arbiter_client", "sidecar.client"), app)
    assert [await app["cart"]("anna") for _ in range(20)] == [b"apples"] * 20
    counts = totals()
    assert (counts["ok"], counts["failed"]) == (20, 2)
    replicas["replica-1"].answer = None
    assert await app["cart"]("anna") is None
    assert totals()["server_error ExhaustedError"] == 1


# -- slots ------------------------------------------------------------------------------------------------------

MOVES = [
    ("half in use grows by one", 10, 5, 11),
    ("less than half in use proves nothing", 10, 4, 10),
    ("an odd limit rounds against growth", 9, 4, 9),
    ("the smallest limit can grow", 1, 1, 2),
    ("and not beyond the highest", 200, 200, 200),
    # A lost call shrinks it, whatever was in use.
    ("a tenth less", 100, None, 90),
    ("rounded down", 15, None, 13),
    ("at least one less", 2, None, 1),
    ("never below one", 1, None, 1),
]


@pytest.mark.parametrize(("before", "in_flight", "after"), [row[1:] for row in MOVES], ids=[row[0] for row in MOVES])
def test_limit_moves(before: int, in_flight: int | None, after: int) -> None:
    slots = CallSlots()
    slots.limit = before
    if in_flight is None:
        slots.shrink()
    else:
        slots.grow(in_flight)
    assert slots.limit == after


@pytest.mark.usefixtures("_one_at_a_time")
async def test_nodes_at_their_limit_are_passed_over_and_when_all_are_the_run_fails_at_once(totals: Totals) -> None:
    cascade, servers = cascade_of("a", "b"), Servers()
    release = asyncio.Event()
    first = asyncio.create_task(cascade.run(lambda _: release.wait()))
    await asyncio.sleep(0)
    (free,) = (node for node, figures in cascade.figures().items() if not figures.in_flight)
    assert [await cascade.run(servers) for _ in range(5)] == [f"pong of {free}"] * 5
    second = asyncio.create_task(cascade.run(lambda _: release.wait()))
    await asyncio.sleep(0)
    with pytest.raises(BusyError, match="any of 2 nodes"):
        await cascade.run(servers)
    assert servers.called == [free] * 5
    assert totals() == {"ok": 5, "server_error BusyError": 1}
    release.set()
    await asyncio.gather(first, second)
    assert {figures.success_rate for figures in cascade.figures().values()} == {1}, "to be busy is no failure"
