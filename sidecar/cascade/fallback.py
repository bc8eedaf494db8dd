"""Call one of several equal nodes, preferring those that have served well, and fall back to the next.

After timmc's gist "Success-prioritized, concurrency-limited stochastic fallback cascade". Each walk shuffles the nodes
by weight (``shuffle.py``, ``success.py``), takes a lease at one after the other (``limits.py``), and stops at the first
answer::

    cascade = Cascade(["redis-a", "redis-b", "redis-c"], random.Random(), time.monotonic)
    pong = await cascade.run(lambda node: clients[node].ping())

How a call ends decides what is remembered of its node:

======================================= ============ ===========
the call                                success rate the lease
======================================= ============ ===========
returns, whatever the result            success      success
raises ``TimeoutError``                 failure      dropped
raises any other ``Exception``          failure      ignored
is cancelled, or any ``BaseException``  not counted  ignored
======================================= ============ ===========

An error that comes back quickly tells of a broken node, not of a crowded one; hence it costs weight and leaves the
limit alone. A library's own kind of time-out is for the caller to turn into ``TimeoutError``.

This room awaits whatever it is handed and knows no event loop. Between two awaits nothing is half done, so any number
of walks may share one cascade on one thread; several threads may not.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Hashable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Generic, NamedTuple, TypeVar

from sidecar.cascade.adaptive_limit import AdaptiveLimit, Ending, Lease
from sidecar.cascade.weighted_shuffle import Random, weighted_shuffle
from sidecar.core.life.success_rate import DEFAULT_FLOOR, Floor, SuccessHistory

Node = TypeVar("Node", bound=Hashable)
Result = TypeVar("Result")


class BusyError(Exception):
    """No lease is free: nobody was called. Trying again later may go well."""


class ExhaustedError(Exception):
    """No node gave an answer. ``errors`` tells why, by node, in the order they were tried."""

    def __init__(self, errors: Mapping[Any, Exception]) -> None:
        super().__init__("; ".join(f"{node}: {error!r}" for node, error in errors.items()))
        self.errors = errors


class Figures(NamedTuple):
    """One node at an instant, for metrics: rate and weight within [0, 1], limit and leases in calls at once."""

    success_rate: float
    weight: float
    limit: int
    in_flight: int


@dataclass(frozen=True, slots=True)
class Walk(Generic[Node, Result]):
    """What came of one walk: the results and the errors by node, each in the order they came.

    ``settled`` tells whether the last result was final; else every node has been tried. A node without a free lease
    stands among the errors with a ``BusyError``.
    """

    results: Mapping[Node, Result]
    errors: Mapping[Node, Exception]
    settled: bool

    def result(self) -> Result:
        """Return the final result; else the first one, for it is from the node that was trusted most.

        Raises BusyError if there is none because no lease was free at any node, ExhaustedError otherwise.
        """
        results = list(self.results.values())
        if results:
            return results[-1] if self.settled else results[0]
        if all(isinstance(error, BusyError) for error in self.errors.values()):
            raise BusyError(f"no lease is free at any of {len(self.errors)} nodes")
        raise ExhaustedError(self.errors)


def _any_will_do(_: object) -> bool:
    return True


class Cascade(Generic[Node]):
    """A choice among equal nodes that learns from how the calls end.

    ``nodes`` are names or objects, distinct and at least one (else ValueError). ``rng`` is a ``random.Random``.
    ``clock`` returns seconds of a clock that does not jump, as ``time.monotonic``. ``floor`` says how often a node is
    looked at again that ended badly, and ``limit`` makes the limit of one node.
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
        self, call: Callable[[Node], Awaitable[Result]], is_final: Callable[[Result], bool] = _any_will_do
    ) -> Result:
        """Return the result of the first node that answers: short for ``walk`` and its ``Walk.result``.

        Raises BusyError at once if no lease is free anywhere, ExhaustedError if nobody answered.
        """
        return (await self.walk(call, is_final)).result()

    async def walk(
        self, call: Callable[[Node], Awaitable[Result]], is_final: Callable[[Result], bool] = _any_will_do
    ) -> Walk[Node, Result]:
        """Await ``call(node)`` for one node after the other until a result is final, and tell all that came of it.

        A result that is not final is a success of its node, and the walk goes on. Each node is tried at most once. Only
        what is no ``Exception`` is raised, such as a cancellation, and what ``is_final`` raises.
        """
        results: dict[Node, Result] = {}
        errors: dict[Node, Exception] = {}
        for node in self.order():
            try:
                result = results[node] = await self.attempt(node, call)
            except Exception as error:  # noqa: BLE001 - whatever a call raises is a reason to try the next node
                errors[node] = error
            else:
                if is_final(result):
                    return Walk(results, errors, settled=True)
        return Walk(results, errors, settled=False)

    async def attempt(self, node: Node, call: Callable[[Node], Awaitable[Result]]) -> Result:
        """Await ``call(node)`` once under a lease and count how it ends: for those who must reach each of the nodes.

        Raises BusyError without a call if no lease is free, whatever the call raises, and KeyError for a stranger.
        """
        lease = self._limits[node].lease()
        if lease is None:
            raise BusyError(f"no lease is free at {node}")
        try:
            result = await call(node)
        except BaseException as error:
            self._end(node, lease, error)
            raise
        self._end(node, lease, None)
        return result

    def _end(self, node: Node, lease: Lease, error: BaseException | None) -> None:
        lease.end(_ending(error))
        if error is None or isinstance(error, Exception):
            self._histories[node].record(self._clock(), succeeded=error is None)

    def order(self) -> list[Node]:
        """Shuffle all nodes by their weights, those that serve well first."""
        now_s = self._clock()
        weights = {node: history.weight(now_s) for node, history in self._histories.items()}
        return weighted_shuffle(weights, self._rng)

    def figures(self) -> dict[Node, Figures]:
        """Return the present figures of every node, in the order the nodes were handed in."""
        now_s = self._clock()
        return {
            node: Figures(history.rate(now_s), history.weight(now_s), limit.limit, limit.in_flight)
            for (node, history), limit in zip(self._histories.items(), self._limits.values(), strict=True)
        }


def _ending(error: BaseException | None) -> Ending:
    if error is None:
        return Ending.SUCCESS
    return Ending.DROPPED if isinstance(error, TimeoutError) else Ending.IGNORED
