"""Both hear of everything: the metrics count it, the log says it."""

from __future__ import annotations

import asyncio

import pytest

from sidecar.core.life import transitions
from sidecar.core.life.snapshot import Record
from sidecar.core.life.transitions import Stopped
from sidecar.core.types import Evidence, Fleet, Policy, Unknown
from sidecar.telemetry.log import Log
from sidecar.telemetry.metrics import Metrics
from sidecar.telemetry.observers import Observers


class Told(Log):
    """A log that keeps what it is told."""

    def __init__(self) -> None:
        super().__init__()
        self.failures: list[tuple[str, str]] = []
        self.away: list[Unknown] = []
        self.fleets: list[Fleet] = []

    def failed(self, where: str, error: Exception) -> None:
        self.failures.append((where, repr(error)))

    def unreachable(self, unknown: Unknown) -> None:
        self.away.append(unknown)

    def fleet(self, fleet: Fleet) -> None:
        self.fleets.append(fleet)


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
    for answer in (Fleet(1), Unknown("timeout"), Fleet(2)):
        observers.beaten(answer)
        reachable.append(observers.metrics.registry.get_sample_value("arbiter_budget_reachable"))
    assert reachable == [1, 0, 1]
    assert told.away == [Unknown("timeout")]
    assert told.fleets == [Fleet(1), Fleet(2)]


@pytest.mark.parametrize(
    ("answer", "shown"),
    [(Fleet(3, used=2, capacity=4), (2, 4)), (Fleet(3), (0, 10)), (Unknown("timeout"), (0, 10))],
    ids=["told", "not told", "away"],
)
def test_beat_tells_of_the_tokens(observers: Observers, answer: Fleet | Unknown, shown: tuple[float, float]) -> None:
    observers.beaten(answer)
    value = observers.metrics.registry.get_sample_value
    assert (value("arbiter_budget_used_tokens"), value("arbiter_budget_capacity_tokens")) == shown


def test_whoever_else_wants_to_know_hears_of_every_step(observers: Observers) -> None:
    container = transitions.start("web/a", 0.0, Policy())
    records = [Record(Stopped(), container, container, Evidence(60)) for _ in range(2)]
    heard: list[tuple[str, Record]] = []
    observers.step(records[0])
    for name in ("one", "other"):
        observers.also(lambda record, name=name: heard.append((name, record)))  # type: ignore[misc]  # bound now
    observers.step(records[1])
    assert heard == [("one", records[1]), ("other", records[1])]


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
