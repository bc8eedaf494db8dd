"""Which nodes are called, and what the caller gets back."""

from __future__ import annotations

from collections.abc import Awaitable
from random import Random

import pytest

from harness.nodes import Clock, Servers, cascade_of
from sidecar.cascade.fallback import Cascade, ExhaustedError, Figures


async def prefer(cascade: Cascade[str], *nodes: str) -> None:
    """Give all other nodes a failure, so that these come first."""
    for node in cascade.figures():
        if node not in nodes:
            with pytest.raises(OSError, match="gone"):
                await cascade.attempt(node, Servers(**{node: OSError("gone")}))


# -- one walk --------------------------------------------------------------------------------------------------


async def test_first_answer_is_the_result_and_no_other_node_is_called() -> None:
    servers = Servers()
    result = await cascade_of().run(servers)
    assert [result] == [f"pong of {node}" for node in servers.called]


async def test_failing_nodes_are_passed_over() -> None:
    servers = Servers(a=OSError("gone"), b=TimeoutError())
    for _ in range(10):
        assert await cascade_of().run(servers) == "pong of c"


async def test_call_that_fails_before_it_can_be_awaited_is_a_failure_of_its_node() -> None:
    def call(node: str) -> Awaitable[str]:
        raise OSError(node)

    cascade = cascade_of("a")
    with pytest.raises(ExhaustedError):
        await cascade.run(call)
    assert cascade.figures()["a"] == Figures(success_rate=0, weight=0, limit=10, in_flight=0)


async def test_errors_of_all_nodes_are_in_the_order_of_the_walk() -> None:
    servers = Servers(a=OSError("gone"), b=TimeoutError("late"), c=ValueError("odd"))
    with pytest.raises(ExhaustedError) as caught:
        await cascade_of().run(servers)
    assert list(caught.value.errors) == servers.called
    assert caught.value.errors == servers.answers
    assert "a: OSError('gone')" in str(caught.value)


async def test_each_node_is_called_at_most_once_a_walk() -> None:
    servers = Servers(a=OSError(), b=OSError(), c=OSError())
    await cascade_of().walk(servers)
    assert sorted(servers.called) == ["a", "b", "c"]


# -- results that are not final --------------------------------------------------------------------------------


def is_grant(answer: object) -> bool:
    return answer == "granted"


async def test_result_that_is_not_final_is_a_success_and_the_walk_goes_on() -> None:
    cascade = cascade_of()
    servers = Servers(a="denied", b="denied", c="granted")
    for _ in range(5):
        assert await cascade.run(servers, is_final=is_grant) == "granted"
    assert {figures.success_rate for figures in cascade.figures().values()} == {1}
    assert "a" in servers.called


async def test_walk_shows_all_results_and_errors() -> None:
    cascade = cascade_of()
    await prefer(cascade, "a", "b")
    walk = await cascade.walk(Servers(a="denied", b=OSError(), c="granted"), is_final=is_grant)
    assert (walk.results, list(walk.errors), walk.settled) == ({"a": "denied", "c": "granted"}, ["b"], True)
    assert walk.result() == "granted"


async def test_without_a_final_result_the_one_of_the_most_trusted_node_counts() -> None:
    cascade = cascade_of()
    await prefer(cascade, "b")
    walk = await cascade.walk(Servers(a="first of a", b="first of b", c=OSError()), is_final=is_grant)
    assert not walk.settled
    assert sorted(walk.results) == ["a", "b"]
    assert walk.result() == "first of b"


# -- the choice ------------------------------------------------------------------------------------------------


async def test_node_that_fails_is_called_last_until_the_ring_has_forgotten() -> None:
    clock = Clock()
    cascade = cascade_of(clock=clock)
    await prefer(cascade, "a", "b")
    assert {cascade.order()[-1] for _ in range(50)} == {"c"}
    clock.now_s = 31  # the ring has forgotten
    assert cascade.figures()["c"] == Figures(success_rate=0, weight=0.01, limit=10, in_flight=0)


async def test_when_every_node_fails_all_are_tried_in_any_order() -> None:
    cascade = cascade_of()
    await prefer(cascade)
    assert {cascade.order()[0] for _ in range(50)} == {"a", "b", "c"}


def test_any_hashable_can_be_a_node() -> None:
    cascade = Cascade([("10.0.0.1", 6379), ("10.0.0.2", 6379)], Random(4), Clock())
    assert sorted(cascade.order()) == [("10.0.0.1", 6379), ("10.0.0.2", 6379)]


@pytest.mark.parametrize("nodes", [[], ["a", "b", "a"]], ids=["none", "twice"])
def test_nodes_that_are_no_choice_are_refused(nodes: list[str]) -> None:
    with pytest.raises(ValueError, match="each of them once"):
        Cascade(nodes, Random(4), Clock())


async def test_stranger_is_refused() -> None:
    with pytest.raises(KeyError):
        await cascade_of().attempt("d", Servers())
