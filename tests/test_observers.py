"""Both hear of everything: the metrics count it, the log says it."""

from __future__ import annotations

import asyncio

import pytest

from sidecar.answer.log import Log
from sidecar.answer.metrics import Metrics
from sidecar.core.words import Unknown
from sidecar.observers import Observers


class Told(Log):
    """A log that keeps what it is told."""

    def __init__(self) -> None:
        super().__init__()
        self.failures: list[tuple[str, str]] = []
        self.away: list[Unknown] = []

    def failed(self, where: str, error: Exception) -> None:
        self.failures.append((where, repr(error)))

    def unreachable(self, unknown: Unknown) -> None:
        self.away.append(unknown)


@pytest.fixture
def told() -> Told:
    return Told()


@pytest.fixture
def observers(told: Told) -> Observers:
    return Observers(Metrics("enforce", 5, 10), told)


def counted(observers: Observers, where: str) -> float | None:
    return observers.metrics.registry.get_sample_value("arbiter_failures_total", {"where": where})


def test_failure_is_counted_and_said(observers: Observers, told: Told) -> None:
    observers.failed("budget", ValueError("lost"))
    assert counted(observers, "budget") == 1
    assert told.failures == [("budget", "ValueError('lost')")]


def test_failure_of_the_journal_is_said_with_its_operation(observers: Observers, told: Told) -> None:
    observers.journal_failed("read", TimeoutError())
    observers.journal_failed("write", OSError("disk full"))
    assert counted(observers, "journal") == 2
    assert told.failures == [("journal read", "TimeoutError()"), ("journal write", "OSError('disk full')")]


def test_budget_that_is_away_is_said_and_shown_until_it_is_back(observers: Observers, told: Told) -> None:
    reachable = []
    for answer in (None, Unknown("timeout"), None):
        observers.budget_warm(answer)
        reachable.append(observers.metrics.registry.get_sample_value("arbiter_budget_reachable"))
    assert reachable == [1, 0, 1]
    assert told.away == [Unknown("timeout")]


@pytest.mark.parametrize(
    ("context", "said"),
    [
        ({"exception": KeyError("x"), "message": "unhandled"}, "KeyError('x')"),
        ({"message": "something odd"}, "RuntimeError('something odd')"),
        ({"exception": KeyboardInterrupt(), "message": "interrupted"}, "RuntimeError('interrupted')"),
    ],
    ids=["exception", "message alone", "no plain exception"],
)
def test_what_asyncio_could_tell_nobody_is_told(
    observers: Observers, told: Told, context: dict[str, object], said: str
) -> None:
    with asyncio.Runner() as runner:
        observers.unhandled(runner.get_loop(), context)
    assert told.failures == [("door", said)]
