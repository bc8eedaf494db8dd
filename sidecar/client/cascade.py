"""Calls one of several equal nodes, such as an app's replicas, and falls back to the next: ``Cascade``.

After timmc's gist "Success-prioritized, concurrency-limited stochastic fallback cascade". Each run shuffles the nodes
by the cube of their success rate (``success_rate``), takes a slot at one after the other (``CallSlots``), and stops at
the first answer. Every end of a call is reported to the sidecar at once:

======================================= ============ =========== ==================================================
the call                                success rate the limit   the sidecar
======================================= ============ =========== ==================================================
returns, whatever the result            success      success     a result that went well
takes longer, raises ``TimeoutError``   failure      lost        an error that was ``recovered``, and a failed result
raises any other ``Exception``          failure      ignored     the same
is cancelled, or any ``BaseException``  not counted  ignored     nothing
======================================= ============ =========== ==================================================

A ``recovered`` error is shown and does not count, because the next node may answer. A run that no node answers is a
``server_error``, which counts.
"""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Awaitable, Callable, Hashable, Iterable, Mapping
from math import inf
from typing import Any, Final, Generic, NamedTuple, TypeVar

from . import exceptions
from .exchange import report_exception
from .reporting import report, results
from .success_rate import SuccessHistory

Node = TypeVar("Node", bound=Hashable)
Result = TypeVar("Result")

TIMEOUT_S: Final = 1.0
FIRST: Final = 10
HIGHEST: Final = 200
BACKOFF: Final = 0.9
"""Part of the limit that is left when a call is lost: one that is more than halved would forget what it learned."""


class BusyError(Exception):
    """No slot is free at any node, so no node was called. A later attempt may succeed."""


class ExhaustedError(Exception):
    """No node answered. ``errors`` has the reasons by node, in the order of the attempts; the last is the cause."""

    def __init__(self, errors: Mapping[Any, Exception]) -> None:
        super().__init__("; ".join(f"{node}: {error!r}" for node, error in errors.items()))
        self.errors = errors


class CallSlots:
    """How many calls one node may serve at once: slots under a limit that learns, so that callers do not pile up.

    After Netflix concurrency-limits (``AIMDLimit``): additive increase while calls succeed and the limit is in use,
    multiplicative decrease when a call is lost. An error that a node answers says nothing about the load that it can
    bear. ``limit`` is never less than 1: a limit of 0 could never learn again.
    """

    __slots__ = ("in_flight", "limit")

    def __init__(self) -> None:
        self.limit = FIRST
        self.in_flight = 0

    def acquire(self) -> int | None:
        """Take a slot and return the number of calls in flight, this one included; None if no slot is free."""
        if self.in_flight >= self.limit:
            return None
        self.in_flight += 1
        return self.in_flight

    def release(self) -> None:
        """Give a slot back, once for each ``acquire``."""
        self.in_flight -= 1

    def grow(self, in_flight: int) -> None:
        """Note that the ``in_flight``-th call succeeded. A node that is idle proves nothing about its limit."""
        if in_flight * 2 >= self.limit:
            self.limit = min(HIGHEST, self.limit + 1)

    def shrink(self) -> None:
        """Note that a call was lost: no answer in time."""
        self.limit = max(1, min(self.limit - 1, int(self.limit * BACKOFF)))


class Figures(NamedTuple):
    """One node at an instant, for metrics."""

    success_rate: float  # within [0, 1]
    weight: float  # within [0, 1]
    limit: int  # of calls at once
    in_flight: int


class Cascade(Generic[Node]):
    """A choice among equal nodes that learns from the ends of the calls. For one event loop of asyncio.

    ``nodes`` are names or objects, distinct and at least one (else ValueError). A call that takes longer than
    ``timeout_s`` seconds is cancelled and gives its slot back. ``clock`` returns monotonic seconds.
    """

    def __init__(
        self,
        nodes: Iterable[Node],
        *,
        timeout_s: float = TIMEOUT_S,
        rng: random.Random | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        names = list(nodes)
        if not names or len(set(names)) < len(names):
            raise ValueError(f"a cascade needs nodes, each of them once, not {names}")
        self._timeout_s = timeout_s
        self._rng = rng or random.Random()  # noqa: S311 - spreads load; nobody gains by guessing it
        self._clock = clock
        self._slots = {node: CallSlots() for node in names}
        self._histories = {node: SuccessHistory(clock()) for node in names}

    async def run(self, call: Callable[[Node], Awaitable[Result]]) -> Result:
        """Await ``call(node)`` for one node after the other, each at most once, and return the first result.

        A node at its limit is passed over. Raises BusyError at once if all are, ExhaustedError if no node answered, and
        what is no ``Exception``, such as a cancellation.
        """
        errors: dict[Node, Exception] = {}
        for node in self.order():
            in_flight = self._slots[node].acquire()
            if in_flight is None:
                continue
            try:
                return await self._attempt(node, in_flight, call)
            except Exception as error:  # noqa: BLE001 - every error is a reason to try the next node
                errors[node] = error
        busy = BusyError(f"no slot is free at any of {len(self._slots)} nodes")
        failure = ExhaustedError(errors) if errors else busy
        failure.__cause__ = next(reversed(errors.values()), None)
        report_exception(failure)
        raise failure

    async def _attempt(self, node: Node, in_flight: int, call: Callable[[Node], Awaitable[Result]]) -> Result:
        slots = self._slots[node]
        try:
            async with asyncio.timeout(self._timeout_s):
                result = await call(node)
        except Exception as error:
            if isinstance(error, TimeoutError):
                slots.shrink()
            self._histories[node].count(self._clock(), 0, 1)
            _report_failure(node, error)
            raise
        else:
            slots.grow(in_flight)
            self._histories[node].count(self._clock(), 1, 0)
            results(ok=1)
            return result
        finally:
            slots.release()

    def order(self) -> list[Node]:
        """Return all nodes in a random order, in which nodes that succeed tend to come first.

        A node comes first with the probability weight / sum of weights, the next one likewise among the others, and so
        on: each node waits for an exponential time of the rate ``weight``, and the shortest wait wins (Efraimidis and
        Spirakis, "Weighted random sampling with a reservoir", 2006). Nodes without weight come last.
        """
        now_s = self._clock()
        waits = {}
        for node, history in self._histories.items():
            weight, wait = history.weight(now_s), self._rng.expovariate(1.0)
            waits[node] = (wait / weight, wait) if weight else (inf, wait)
        return sorted(waits, key=waits.__getitem__)

    def figures(self) -> dict[Node, Figures]:
        """Return the present figures of every node, in the order of ``nodes``."""
        now_s = self._clock()
        return {
            node: Figures(history.rate(now_s), history.weight(now_s), slots.limit, slots.in_flight)
            for (node, history), slots in zip(self._histories.items(), self._slots.values(), strict=True)
        }


def _report_failure(node: Hashable, error: Exception) -> None:
    kind = exceptions.kind(error)
    message = f"{node}: {exceptions.text(error)}"
    report(level="recovered", kind=kind, fingerprint=exceptions.shortened(f"{kind}@{node}"), message=message)
    results(failed=1)
