"""Call one of several equal nodes, preferring those that have served well, and fall back to the next.

After timmc's gist "Success-prioritized, concurrency-limited stochastic fallback cascade". Each walk shuffles the nodes
by weight (``weighted_shuffle``, ``core.measure.success_rate``), takes a slot at one after the other
(``adaptive_limit``), and stops at the first answer::

    cascade = Cascade(["redis-a", "redis-b", "redis-c"], random.Random(), time.monotonic)
    pong = await cascade.run(lambda node: clients[node].ping())

The end of a call decides what the cascade remembers about its node:

======================================= ============ ===========
the call                                success rate the limit
======================================= ============ ===========
returns, whatever the result            success      success
raises ``TimeoutError``                 failure      dropped
raises any other ``Exception``          failure      ignored
is cancelled, or any ``BaseException``  not counted  ignored
======================================= ============ ===========

A quick error shows a broken node, not an overloaded one: it costs weight and leaves the limit alone. The caller has to
turn a library's own kind of time-out into ``TimeoutError``.

The cascade awaits what the caller gives it and knows no event loop. Any number of walks may share one cascade on one
thread, because nothing is half done between two awaits; several threads may not.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Hashable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Generic, NamedTuple, TypeVar

from sidecar.cascade.adaptive_limit import AdaptiveLimit, CallSlot, Ending
from sidecar.cascade.weighted_shuffle import Random, weighted_shuffle
from sidecar.core.measure.success_rate import DEFAULT_FLOOR, Floor, SuccessHistory

Node = TypeVar("Node", bound=Hashable)
Result = TypeVar("Result")


class BusyError(Exception):
    """No slot is free, so no node was called. A later attempt may succeed."""


class ExhaustedError(Exception):
    """No node answered. ``errors`` has the reasons by node, in the order of the attempts."""

    def __init__(self, errors: Mapping[Any, Exception]) -> None:
        super().__init__("; ".join(f"{node}: {error!r}" for node, error in errors.items()))
        self.errors = errors


class Figures(NamedTuple):
    """One node at an instant, for metrics: rate and weight within [0, 1], limit and calls in flight."""

    success_rate: float
    weight: float
    limit: int
    in_flight: int


@dataclass(frozen=True, slots=True)
class Walk(Generic[Node, Result]):
    """The outcome of one walk: the results and the errors by node, each in the order in which they came.

    ``settled``: the last result was final; otherwise every node has been tried. A node without a free slot
    has a ``BusyError`` among the errors.
    """

    results: Mapping[Node, Result]
    errors: Mapping[Node, Exception]
    settled: bool

    def result(self) -> Result:
        """Return the final result, or else the first one, which comes from the most trusted node.

        Raises BusyError if there is none because no slot was free at any node, ExhaustedError otherwise.
        """
        results = list(self.results.values())
        if results:
            return results[-1] if self.settled else results[0]
        if all(isinstance(error, BusyError) for error in self.errors.values()):
            raise BusyError(f"no slot is free at any of {len(self.errors)} nodes")
        raise ExhaustedError(self.errors)


def _always_final(_: object) -> bool:
    return True


class Cascade(Generic[Node]):
    """A choice among equal nodes that learns from the outcomes of the calls.

    ``nodes`` are names or objects, distinct and at least one (else ValueError). ``rng`` is a ``random.Random``.
    ``clock`` returns monotonic seconds. ``floor`` sets how often a node that failed is tried again, and ``limit`` makes
    the limit of one node.
    """

    def __init__(
        self,
        nodes: Iterable[Node],
        rng: Random,
        clock: Callable[[], float],
        *,
        floor: Floor = DEFAULT_FLOOR,
        limit: Callable[[], AdaptiveLimit] = AdaptiveLimit,
    ) -> None:
        names = list(nodes)
        if not names or len(set(names)) < len(names):
            raise ValueError(f"a cascade needs nodes, each of them once, not {names}")
        self._rng = rng
        self._clock = clock
        self._limits = {node: limit() for node in names}
        self._histories = {node: SuccessHistory(clock(), floor) for node in names}

    async def run(
        self, call: Callable[[Node], Awaitable[Result]], is_final: Callable[[Result], bool] = _always_final
    ) -> Result:
        """Return the result of the first node that answers: short for ``walk`` and its ``Walk.result``.

        Raises BusyError at once if no slot is free at any node, ExhaustedError if no node answered.
        """
        return (await self.walk(call, is_final)).result()

    async def walk(
        self, call: Callable[[Node], Awaitable[Result]], is_final: Callable[[Result], bool] = _always_final
    ) -> Walk[Node, Result]:
        """Await ``call(node)`` for one node after the other until a result is final, and return all outcomes.

        A result that is not final is a success of its node, and the walk goes on. Each node is tried at most once. It
        raises only what is not an ``Exception``, such as a cancellation, and what ``is_final`` raises.
        """
        results: dict[Node, Result] = {}
        errors: dict[Node, Exception] = {}
        for node in self.order():
            try:
                result = results[node] = await self.attempt(node, call)
            except Exception as error:  # noqa: BLE001 - every error is a reason to try the next node
                errors[node] = error
            else:
                if is_final(result):
                    return Walk(results, errors, settled=True)
        return Walk(results, errors, settled=False)

    async def attempt(self, node: Node, call: Callable[[Node], Awaitable[Result]]) -> Result:
        """Await ``call(node)`` once in a slot and learn from its end: for a caller that must reach every node.

        Raises BusyError without a call if no slot is free, what the call raises, and KeyError for an unknown node.
        """
        slot = self._limits[node].acquire()
        if slot is None:
            raise BusyError(f"no slot is free at {node}")
        try:
            result = await call(node)
        except BaseException as error:
            self._end(node, slot, error)
            raise
        self._end(node, slot, None)
        return result

    def _end(self, node: Node, slot: CallSlot, error: BaseException | None) -> None:
        slot.end(_ending(error))
        if error is None or isinstance(error, Exception):
            self._histories[node].record(self._clock(), succeeded=error is None)

    def order(self) -> list[Node]:
        """Return all nodes, shuffled by weight: nodes that succeed tend to come first."""
        now_s = self._clock()
        weights = {node: history.weight(now_s) for node, history in self._histories.items()}
        return weighted_shuffle(weights, self._rng)

    def figures(self) -> dict[Node, Figures]:
        """Return the present figures of every node, in the order of ``nodes``."""
        now_s = self._clock()
        return {
            node: Figures(history.rate(now_s), history.weight(now_s), limit.limit, limit.in_flight)
            for (node, history), limit in zip(self._histories.items(), self._limits.values(), strict=True)
        }


def _ending(error: BaseException | None) -> Ending:
    if error is None:
        return Ending.SUCCESS
    return Ending.DROPPED if isinstance(error, TimeoutError) else Ending.IGNORED
