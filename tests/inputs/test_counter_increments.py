"""Pages of an app that restarts, has workers and loses series: never negative, never more than what has happened."""

from __future__ import annotations

import math
import random
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import count
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sidecar.core.types import Sample
from sidecar.inputs.app_incarnation import SETTLED_PAGES
from sidecar.inputs.counter_increments import MAX_COUNT, MOST_PROCESSES, SLICE, Counters, Reading, Role, SeriesUse

T0 = 1_700_000_000.0
INTERVAL_S = 10.0
BEFORE, SINCE = T0 - 1000, T0 + 5


@dataclass
class Scrapes:
    """Scrapes the pages it is given, ten seconds apart; ``a`` to ``c`` are counters of the kind of their name."""

    counters: Counters = field(default_factory=Counters)
    at: float = T0

    def __call__(self, start: float | None = None, *, complete: bool = True, **values: float) -> Sample:
        page = [_counter(name, value) for name, value in values.items()]
        if start is not None:
            page.append((SeriesUse(0, Role.START), start))
        sample = _taken(self.counters, page, self.at, complete=complete)
        self.at += INTERVAL_S
        return sample


def _taken(counters: Counters, page: Sequence[Reading], at: float, *, complete: bool = True) -> Sample:
    """What comes of all slices."""
    taking = counters.take([use for use, _ in page], [value for _, value in page], at, complete=complete)
    while True:
        try:
            next(taking)
        except StopIteration as end:
            sample: Sample = end.value
            return sample


def _counter(name: str, value: float) -> Reading:
    return SeriesUse(hash(name), Role.COUNTER, name, requests=True), value


# -- one process --------------------------------------------------------------------------------------------


def test_first_scrape_counts_nothing() -> None:
    assert Scrapes()(BEFORE, a=50) == Sample({}, app_start=repr(BEFORE))


@pytest.mark.parametrize("start", [None, BEFORE])
def test_increase_is_counted_by_kind_and_as_requests(start: float | None) -> None:
    scrape = Scrapes()
    scrape(start, a=50, b=7, c=1)
    sample = scrape(start, a=52, b=7, c=2)
    assert (sample.errors, sample.requests) == ({"a": 2, "c": 1}, 3)


def test_series_that_only_counts_requests_is_no_error() -> None:
    counters = Counters()
    use = SeriesUse(1, Role.COUNTER, None, requests=True)
    _taken(counters, [(use, 10)], T0)
    assert _taken(counters, [(use, 15)], T0 + 10) == Sample({}, requests=5)


def test_new_series_counts_from_zero_if_its_process_was_seen_without_it() -> None:
    scrape = Scrapes()
    scrape(BEFORE, a=1)
    assert scrape(BEFORE, a=1, b=3).errors == {"b": 3}


def test_new_series_counts_nothing_if_the_process_is_unknown() -> None:
    scrape = Scrapes()
    scrape(a=1)
    assert scrape(a=1, b=3).errors == {}
    assert scrape(a=1, b=5).errors == {"b": 2}


def test_new_series_counts_nothing_if_the_last_page_was_cut_off() -> None:
    scrape = Scrapes()
    scrape(BEFORE, complete=False, a=1)
    assert scrape(BEFORE, a=1, b=3).errors == {}
    assert scrape(BEFORE, a=1, b=4, c=2).errors == {"b": 1, "c": 2}


def test_series_that_comes_back_counts_from_its_last_value() -> None:
    scrape = Scrapes()
    scrape(BEFORE, a=10, b=1)
    scrape(BEFORE, b=1)
    assert scrape(BEFORE, a=12, b=1).errors == {"a": 2}


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf, -1.0, 1e308, 2 * MAX_COUNT])
def test_value_that_is_no_count_is_ignored(value: float) -> None:
    scrape = Scrapes()
    scrape(BEFORE, a=10)
    assert scrape(BEFORE, a=value) == Sample({}, app_start=repr(BEFORE))
    assert scrape(BEFORE, a=11).errors == {"a": 1}


def test_sum_of_huge_counters_is_bounded() -> None:
    scrape = Scrapes()
    scrape(BEFORE, a=0, b=0, c=0)
    sample = scrape(BEFORE, a=MAX_COUNT, b=MAX_COUNT, c=MAX_COUNT)
    assert (sample.errors, sample.requests) == (dict.fromkeys("abc", MAX_COUNT), MAX_COUNT)


def test_fraction_of_an_error_is_none() -> None:
    scrape = Scrapes()
    scrape(BEFORE, a=0.0)
    assert [scrape(BEFORE, a=value).errors for value in (0.4, 1.9, 3.9)] == [{}, {"a": 1}, {"a": 2}]


def test_last_reading_of_a_series_counts() -> None:
    counters = Counters()
    _taken(counters, [_counter("a", 1)], T0)
    assert _taken(counters, [_counter("a", 2), _counter("a", 3)], T0 + 10).errors == {"a": 2}


def test_levels_are_summed_from_the_first_scrape_on() -> None:
    levels = [(SeriesUse(1, Role.LEVEL), 2.0), (SeriesUse(2, Role.LEVEL), 3.5), (SeriesUse(3, Role.LEVEL), math.nan)]
    assert _taken(Counters(), levels, T0) == Sample({}, in_flight=5.5)
    assert _taken(Counters(), [], T0).in_flight is None


# -- restarts -----------------------------------------------------------------------------------------------


def test_new_process_counts_from_zero_and_is_a_new_incarnation() -> None:
    scrape = Scrapes()
    scrape(BEFORE, a=50)
    assert scrape(SINCE, a=3, b=1) == Sample({"a": 3, "b": 1}, requests=4, app_start=repr(SINCE))


def test_process_with_higher_counters_is_still_a_new_one() -> None:
    scrape = Scrapes()
    scrape(BEFORE, a=5)
    assert scrape(SINCE, a=7).errors == {"a": 7}


def test_new_process_is_known_after_lost_scrapes() -> None:
    scrape = Scrapes()
    scrape(BEFORE, a=50)
    scrape.at += 10 * INTERVAL_S
    assert scrape(SINCE, a=7) == Sample({"a": 7}, requests=7, app_start=repr(SINCE))


# -- several processes --------------------------------------------------------------------------------------


def test_counter_that_decreases_is_unknown_and_its_page_counts_nothing() -> None:
    scrape = Scrapes()
    scrape(BEFORE, a=50, b=10)
    assert scrape(BEFORE, a=20, b=30) == Sample({}, app_start=repr(BEFORE), unknown=1)
    assert scrape(BEFORE, a=23, b=30).errors == {"a": 3}


def test_indistinguishable_workers_are_followed_side_by_side() -> None:
    scrape = Scrapes()
    scrape(a=1000)
    assert scrape(a=50).unknown == 1
    assert [scrape(a=value).errors for value in (1001, 51, 1001, 53)] == [{"a": 1}, {"a": 1}, {}, {"a": 2}]


def test_workers_with_the_same_start_have_no_new_series() -> None:
    scrape = Scrapes()
    for value in (1000, 50, 1001):
        scrape(BEFORE, a=value)
    assert scrape(BEFORE, a=51, b=500).errors == {"a": 1}


def test_workers_with_different_starts_are_compared_with_themselves() -> None:
    scrape = Scrapes()
    first, second = BEFORE, BEFORE + 0.3
    scrape(first, a=10)
    assert scrape(second, a=5000) == Sample({}, app_start=repr(first), unknown=1)
    assert [scrape(start, a=value).errors for start, value in ((first, 11), (second, 5002), (first, 11))] == [
        {"a": 1},
        {"a": 2},
        {},
    ]


def test_workers_that_answer_in_turns_are_no_new_incarnation() -> None:
    scrape = Scrapes()
    starts = (BEFORE, BEFORE + 0.3, BEFORE, BEFORE - 5)
    assert {scrape(start, a=1).app_start for start in starts * 20} == {repr(BEFORE)}


def test_replaced_worker_is_no_new_incarnation() -> None:
    scrape = Scrapes()
    for start in (BEFORE, BEFORE + 1, BEFORE):
        scrape(start, a=1)
    assert scrape(scrape.at - 5, a=2) == Sample({"a": 2}, requests=2, app_start=repr(BEFORE))


def test_restart_of_all_workers_is_believed_in_the_end() -> None:
    scrape = Scrapes()
    for start in (BEFORE, BEFORE + 1, BEFORE):
        scrape(start, a=1)
    starts = [scrape.at - 5, scrape.at - 4]
    seen = [scrape(starts[turn % 2], a=1).app_start for turn in range(SETTLED_PAGES)]
    assert set(seen[:-1]) == {repr(BEFORE)}
    assert seen[-1] in {repr(start) for start in starts}


def test_page_that_loses_its_start_counts_nothing_twice() -> None:
    scrape = Scrapes()
    scrape(BEFORE, a=10)
    assert [scrape(start, a=value).errors for start, value in ((None, 12), (BEFORE, 15), (BEFORE, 16))] == [
        {},
        {},
        {"a": 1},
    ]


# -- bounds -------------------------------------------------------------------------------------------------


def test_memory_is_bounded_and_a_forgotten_series_does_not_count_as_new() -> None:
    scrape = Scrapes(Counters(most_series=100))
    scrape(BEFORE, a=1000)
    for number in range(20):
        others = [_counter(f"x{number}_{index}", 1) for index in range(50)]
        _taken(scrape.counters, [*others, (SeriesUse(0, Role.START), BEFORE)], scrape.at)
    assert len(scrape.counters._processes[BEFORE].values) <= 100
    assert scrape(BEFORE, a=1001).errors == {}


def test_processes_are_bounded() -> None:
    scrape = Scrapes()
    for number in range(50):
        scrape(BEFORE + number, a=1)
    assert len(scrape.counters._processes) == MOST_PROCESSES


def test_long_page_is_processed_in_slices() -> None:
    uses = [_counter(str(number), 1)[0] for number in range(5 * SLICE)]
    taking = Counters().take(uses, [1.0] * len(uses), T0)
    assert sum(1 for _ in taking) == 10


# -- properties ---------------------------------------------------------------------------------------------

SERIES = ("a", "b", "c")


class App:
    """Worker processes that count errors; ``happened`` is what they have counted in all."""

    def __init__(self, *, tells: bool, workers: int) -> None:
        self._tells = tells
        self.happened = 0
        self.now = T0
        self._births = count()
        self.workers = [self._worker() for _ in range(workers)]

    def _worker(self) -> dict[str, float]:
        return {"start": self.now + next(self._births) / 1000}

    def restart(self, index: int) -> None:
        self.workers[index % len(self.workers)] = self._worker()

    def fail(self, index: int, name: str, errors: int) -> None:
        worker = self.workers[index % len(self.workers)]
        worker[name] = worker.get(name, 0) + errors
        self.happened += errors

    def page(self, index: int, hidden: str | None) -> list[Reading]:
        worker = self.workers[index % len(self.workers)]
        page = [_counter(name, worker[name]) for name in SERIES if name in worker and name != hidden]
        return [*page, (SeriesUse(0, Role.START), worker["start"])] if self._tells else page


Steps = list[tuple[Any, ...]]
STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("fail"), st.integers(0, 3), st.sampled_from(SERIES), st.integers(1, 1000)),
        st.tuples(st.just("restart"), st.integers(0, 3)),
        st.tuples(st.just("scrape"), st.integers(0, 3), st.sampled_from([None, None, *SERIES])),
        st.tuples(st.just("scrape"), st.integers(0, 3), st.none()),
    ),
    max_size=60,
)


def _tell(app: App, steps: Steps) -> list[tuple[int, int]]:
    """What was counted and what had happened since the first scrape, scrape by scrape."""
    counters, counted, before, history = Counters(), 0, None, []
    for step, *details in steps:
        app.now += 3
        if step != "scrape":
            getattr(app, step)(*details)
            continue
        worker, hidden = details
        sample = _taken(counters, app.page(worker, hidden), app.now, complete=hidden is None)
        assert all(errors > 0 for errors in sample.errors.values())
        assert sum(sample.errors.values()) == sample.requests
        counted += sample.requests
        before = app.happened if before is None else before
        history.append((counted, app.happened - before))
    return history


@settings(max_examples=100, deadline=None)
@given(STEPS, st.booleans(), st.integers(1, 4))
def test_never_more_is_counted_than_has_happened(
    steps: Steps,
    tells: bool,  # noqa: FBT001 - drawn
    workers: int,
) -> None:
    app = App(tells=tells, workers=workers if tells else 1)
    assert all(counted <= happened for counted, happened in _tell(app, steps))


@settings(max_examples=100, deadline=None)
@given(STEPS, st.integers(2, 4))
def test_indistinguishable_workers_count_no_more_than_has_happened(steps: Steps, workers: int) -> None:
    app = App(tells=False, workers=workers)
    history = _tell(app, steps)
    assert all(counted <= app.happened for counted, _ in history)


def test_nothing_is_lost_of_one_process_that_is_scraped_often_enough() -> None:
    rng = random.Random(3)
    app, counters, counted = App(tells=True, workers=1), Counters(), 0
    _taken(counters, app.page(0, None), app.now)
    for _ in range(500):
        app.now += 10
        if rng.random() < 0.05:
            app.restart(0)
        app.fail(0, rng.choice(SERIES), rng.randrange(1, 50))
        counted += _taken(counters, app.page(0, None), app.now + 1).requests
    assert counted == app.happened
