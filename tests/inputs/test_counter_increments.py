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

from sidecar.core.app_reports import Sample
from sidecar.inputs.counter_increments import (
    MAX_COUNT,
    MOST_PROCESSES,
    SETTLED_PAGES,
    SLICE,
    Counters,
    Reading,
    Role,
    SeriesUse,
)

T0 = 1_700_000_000.0
INTERVAL_S = 10.0
BEFORE, SINCE = T0 - 1000, T0 + 5


@dataclass
class Scrapes:
    """Scrapes the pages it is given, ten seconds apart; ``a`` to ``c`` are counters of the kind of their name."""

    counters: Counters = field(default_factory=Counters)
    at: float = T0

    def __call__(self, start: float | None, counters: str, *, complete: bool = True) -> Sample:
        page = [_counter(name, float(value)) for name, value in (each.split("=") for each in counters.split())]
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


# -- page after page ----------------------------------------------------------------------------------------

MOST = str(int(MAX_COUNT))
PAGES: dict[str, list[tuple[float | None, str, str]]] = {
    "increase by kind": [(BEFORE, "a=50 b=7 c=1", ""), (BEFORE, "a=52 b=7 c=2", "a=2 c=1")],
    "without a start": [(None, "a=50 b=7", ""), (None, "a=52 b=7", "a=2")],
    "new series of a known process": [(BEFORE, "a=1", ""), (BEFORE, "a=1 b=3", "b=3")],
    "new series of an unknown one": [(None, "a=1", ""), (None, "a=1 b=3", ""), (None, "a=1 b=5", "b=2")],
    "series that comes back": [(BEFORE, "a=10 b=1", ""), (BEFORE, "b=1", ""), (BEFORE, "a=12 b=1", "a=2")],
    "fraction of an error": [(BEFORE, "a=0", ""), (BEFORE, "a=0.4", ""), (BEFORE, "a=1.9", "a=1")],
    "huge counters": [(BEFORE, "a=0 b=0", ""), (BEFORE, f"a={MOST} b={MOST}", f"a={MOST} b={MOST}")],
    **{
        f"{value} is no count": [(BEFORE, "a=10", ""), (BEFORE, f"a={value}", ""), (BEFORE, "a=11", "a=1")]
        for value in ("nan", "inf", "-inf", "-1", "1e308", f"{MOST}0")
    },
    "new process counts from zero": [(BEFORE, "a=50", ""), (SINCE, "a=3 b=1", "a=3 b=1")],
    "new process with higher counters": [(BEFORE, "a=5", ""), (SINCE, "a=7", "a=7")],
    "decrease": [(BEFORE, "a=50 b=10", ""), (BEFORE, "a=20 b=30", "?"), (BEFORE, "a=23 b=30", "a=3")],
    "workers that nothing tells apart": [
        *((None, "a=1000", ""), (None, "a=50", "?"), (None, "a=1001", "a=1")),
        *((None, "a=51", "a=1"), (None, "a=1001", ""), (None, "a=53", "a=2")),
    ],
    "workers with one start have no new series": [
        *((BEFORE, "a=1000", ""), (BEFORE, "a=50", "?"), (BEFORE, "a=1001", "a=1"), (BEFORE, "a=51 b=500", "a=1")),
    ],
    "workers with different starts": [
        *((BEFORE, "a=10", ""), (BEFORE + 0.3, "a=5000", "?"), (BEFORE, "a=11", "a=1")),
        *((BEFORE + 0.3, "a=5002", "a=2"), (BEFORE, "a=11", "")),
    ],
    "page that loses its start": [
        *((BEFORE, "a=10", ""), (None, "a=12", "?"), (BEFORE, "a=15", "?"), (BEFORE, "a=16", "a=1")),
    ],
}
"""The start of the process, its counters, and the errors that the page counts; ``?``: they are unknown."""


@pytest.mark.parametrize("pages", PAGES.values(), ids=PAGES)
def test_each_page_counts_what_has_surely_happened_since_the_last(pages: list[tuple[float | None, str, str]]) -> None:
    scrape = Scrapes()
    for start, counters, errors in pages:
        sample = scrape(start, counters)
        counted = " ".join(f"{kind}={count}" for kind, count in sample.errors.items())
        assert (counted or "?" * (sample.unknown > 0)) == errors
        assert sample.requests == min(sum(sample.errors.values()), MAX_COUNT)


def test_series_that_only_counts_requests_is_no_error() -> None:
    counters, use = Counters(), SeriesUse(1, Role.COUNTER, None, requests=True)
    _taken(counters, [(use, 10)], T0)
    assert _taken(counters, [(use, 12), (use, 15)], T0 + 10) == Sample({}, requests=5), "the last reading counts"


def test_new_series_counts_nothing_if_the_last_page_was_cut_off() -> None:
    scrape = Scrapes()
    scrape(BEFORE, "a=1", complete=False)
    assert scrape(BEFORE, "a=1 b=3").errors == {}
    assert scrape(BEFORE, "a=1 b=4 c=2").errors == {"b": 1, "c": 2}


def test_levels_are_summed_from_the_first_scrape_on() -> None:
    levels = [(SeriesUse(1, Role.LEVEL), 2.0), (SeriesUse(2, Role.LEVEL), 3.5), (SeriesUse(3, Role.LEVEL), math.nan)]
    assert _taken(Counters(), levels, T0) == Sample({}, in_flight=5.5)
    assert _taken(Counters(), [], T0).in_flight is None


# -- incarnations -------------------------------------------------------------------------------------------


def test_every_new_process_is_a_new_incarnation_after_lost_scrapes_too() -> None:
    scrape = Scrapes()
    assert scrape(BEFORE, "a=50").app_start == repr(BEFORE)
    scrape.at += 10 * INTERVAL_S
    assert scrape(SINCE, "a=7") == Sample({"a": 7}, requests=7, app_start=repr(SINCE))
    assert scrape(SINCE, "a=7").app_start == repr(SINCE)
    again = scrape.at - 1
    assert scrape(again, "a=1") == Sample({"a": 1}, requests=1, app_start=repr(again))


def test_workers_that_answer_in_turns_are_no_new_incarnation() -> None:
    scrape = Scrapes()
    starts = (BEFORE, BEFORE + 0.3, BEFORE, BEFORE - 5)
    assert {scrape(start, "a=1").app_start for start in starts * 20} == {repr(BEFORE)}


def test_replaced_worker_is_no_new_incarnation() -> None:
    scrape = Scrapes()
    for start in (BEFORE, BEFORE + 1, BEFORE):
        scrape(start, "a=1")
    assert scrape(scrape.at - 5, "a=2") == Sample({"a": 2}, requests=2, app_start=repr(BEFORE))


def test_restart_of_all_workers_is_believed_in_the_end() -> None:
    scrape = Scrapes()
    for start in (BEFORE, BEFORE + 1, BEFORE):
        scrape(start, "a=1")
    starts = [scrape.at - 5, scrape.at - 4]
    starts_reported = [scrape(starts[turn % 2], "a=1").app_start for turn in range(SETTLED_PAGES)]
    assert set(starts_reported[:-1]) == {repr(BEFORE)}
    assert starts_reported[-1] in {repr(start) for start in starts}


# -- bounds -------------------------------------------------------------------------------------------------


def test_memory_is_bounded_and_a_forgotten_series_does_not_count_as_new() -> None:
    scrape = Scrapes(Counters(most_series=100))
    scrape(BEFORE, "a=1000")
    for number in range(20):
        others = [_counter(f"x{number}_{index}", 1) for index in range(50)]
        _taken(scrape.counters, [*others, (SeriesUse(0, Role.START), BEFORE)], scrape.at)
    assert len(scrape.counters._processes[BEFORE].values) <= 100
    assert scrape(BEFORE, "a=1001").errors == {}


def test_processes_are_bounded() -> None:
    scrape = Scrapes()
    for number in range(50):
        scrape(BEFORE + number, "a=1")
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
