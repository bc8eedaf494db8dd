"""Any mixture of calls at once, driven step by step without an event loop: the slots always add up."""

from __future__ import annotations

import types
from asyncio import CancelledError
from collections import Counter
from collections.abc import Coroutine, Generator
from contextlib import suppress
from random import Random
from typing import Any

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from sidecar.cascade.adaptive_limit import AdaptiveLimit
from sidecar.cascade.fallback import BusyError, Cascade, ExhaustedError

NODES = ("a", "b", "c")
FAILURES = (OSError, ValueError, TimeoutError)
INTERRUPTIONS = (CancelledError, KeyboardInterrupt)


@types.coroutine
def suspended(node: str) -> Generator[str, str, str]:
    """Yield the name of the node to the driver of the coroutine, and wait for the answer."""
    return (yield node)


class Walks(RuleBasedStateMachine):
    """Up to any number of walks and attempts under way, each of them suspended in one call."""

    def __init__(self) -> None:
        super().__init__()
        self.now_s = 0.0
        self.cascade = Cascade(NODES, Random(4), lambda: self.now_s, limit=lambda: AdaptiveLimit(2, highest=5))
        self.under_way: list[tuple[Coroutine[str, str, str], str]] = []

    @rule()
    def walk(self) -> None:
        free = [node for node, figures in self.cascade.figures().items() if figures.in_flight < figures.limit]
        before = len(self.under_way)
        self._start(self.cascade.run(suspended))
        assert len(self.under_way) - before == bool(free), "a walk begins where a slot is free, else it fails at once"

    @rule(node=st.sampled_from(NODES))
    def attempt(self, node: str) -> None:
        self._start(self.cascade.attempt(node, suspended))

    @rule(seconds=st.sampled_from([0.0, 1.0, 5.0, 31.0, -3.0, -1e9, 1e9]))
    def clock_moves(self, seconds: float) -> None:
        self.now_s += seconds

    @precondition(lambda self: self.under_way)
    @rule(place=st.integers(0, 99))
    def call_succeeds(self, place: int) -> None:
        coroutine, node = self._pick(place)
        with pytest.raises(StopIteration) as ended:
            coroutine.send(f"pong of {node}")
        assert ended.value.value == f"pong of {node}"

    @precondition(lambda self: self.under_way)
    @rule(place=st.integers(0, 99), failure=st.sampled_from(FAILURES))
    def call_fails(self, place: int, failure: type[Exception]) -> None:
        coroutine, _ = self._pick(place)
        with suppress(ExhaustedError, failure):  # never BusyError: somebody was called
            self.under_way.append((coroutine, coroutine.throw(failure())))

    @precondition(lambda self: self.under_way)
    @rule(place=st.integers(0, 99), interruption=st.sampled_from(INTERRUPTIONS))
    def call_is_interrupted(self, place: int, interruption: type[BaseException]) -> None:
        coroutine, _ = self._pick(place)
        with pytest.raises(interruption):
            coroutine.throw(interruption())

    @precondition(lambda self: self.under_way)
    @rule(place=st.integers(0, 99))
    def caller_is_dropped(self, place: int) -> None:
        coroutine, _ = self._pick(place)
        coroutine.close()

    @invariant()
    def slots_are_those_of_the_calls_under_way(self) -> None:
        calls = Counter(node for _, node in self.under_way)
        assert {node: figures.in_flight for node, figures in self.cascade.figures().items()} == {
            node: calls[node] for node in NODES
        }

    @invariant()
    def figures_stay_within_their_bounds(self) -> None:
        for figures in self.cascade.figures().values():
            assert 0 <= figures.success_rate <= 1
            assert 0 <= figures.weight <= 1
            assert 1 <= figures.limit <= 5

    @invariant()
    def order_is_a_permutation(self) -> None:
        assert sorted(self.cascade.order()) == list(NODES)

    def teardown(self) -> None:
        for coroutine, _ in self.under_way:
            coroutine.close()
        assert {figures.in_flight for figures in self.cascade.figures().values()} == {0}

    def _start(self, coroutine: Coroutine[Any, Any, str]) -> None:
        try:
            self.under_way.append((coroutine, coroutine.send(None)))
        except BusyError:
            coroutine.close()

    def _pick(self, place: int) -> tuple[Coroutine[str, str, str], str]:
        return self.under_way.pop(place % len(self.under_way))


TestWalks = Walks.TestCase
TestWalks.settings = settings(max_examples=100, stateful_step_count=40, deadline=None)
