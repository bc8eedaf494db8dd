"""What each report adds to the measurements, and what neither time nor one more error may do to the verdict."""

from __future__ import annotations

from collections.abc import Iterable

from hypothesis import example, given, settings
from hypothesis import strategies as st

from harness.cases import cases
from harness.strategies import built
from sidecar.core.app_reports import (
    ErrorLevel,
    ErrorReport,
    Heartbeat,
    Load,
    Report,
    Results,
    Sample,
)
from sidecar.core.life.detectors import judge
from sidecar.core.measure.measurements import Measurements
from sidecar.core.measure.window import OTHER
from sidecar.core.types import Evidence, Policy

Told = tuple[float, Report]
"""Seconds that pass, and then what is reported."""


def measurements_of(
    story: Iterable[Told], *, window_s: int = 60, limits: tuple[str, ...] = ()
) -> tuple[Measurements, float]:
    """The measurements after the story, and the second at its end."""
    measurements, now = Measurements(window_s, 0, known_kinds=limits, ignored_kinds=["cache"]), 0.0
    for seconds, report in story:
        now += seconds
        measurements.turn(int(now))
        measurements.take(report, now)
    return measurements, now


def evidence_of(*reports: Report) -> Evidence:
    measurements, now = measurements_of((0.0, report) for report in reports)
    return measurements.evidence(now)


NOTHING = Evidence(60)


def just_now(evidence: Evidence) -> Evidence:
    """The evidence with errors of the current second."""
    return evidence._replace(newest_age_s=0)


@cases(
    "reports, evidence",
    {
        "nothing": ([], NOTHING),
        "ping": ([ErrorReport()], just_now(Evidence(60, 1, {"unknown": 1}))),
        "announcement": ([ErrorReport(0, app_start="b")], NOTHING),
        "several of a kind": ([ErrorReport(3, kind="redis")] * 2, just_now(Evidence(60, 6, {"redis": 6}))),
        "another level": ([ErrorReport(2, ErrorLevel.RECOVERED)], Evidence(60, levels={"recovered": 2})),
        "fatal": ([ErrorReport(2, fatal=True)], just_now(Evidence(60, 2, {"unknown": 2}, fatal=2))),
        "none that are fatal": ([ErrorReport(0, fatal=True)], NOTHING),
        "level is stronger": (
            [ErrorReport(1, ErrorLevel.INVESTIGATION, fatal=True)],
            Evidence(60, levels={"investigation": 1}),
        ),
        "ignored kind is shown": ([ErrorReport(4, kind="cache")], Evidence(60, levels={"ignored": 4})),
        "ignored kind is never fatal": (
            [ErrorReport(4, kind="cache", fatal=True)],
            Evidence(60, levels={"ignored": 4}),
        ),
        "results": ([Results(3, 2)], Evidence(60, requests=5, failed=2, failed_age_s=0)),
        "results of nothing": ([Results()], NOTHING),
        "heartbeat": ([Heartbeat()], Evidence(60, heartbeat_age_s=0.0)),
        "sample: ignored kinds are no failed requests": (
            [Sample({"redis": 2, "cache": 3}, requests=10)],
            just_now(Evidence(60, 2, {"redis": 2}, {"ignored": 3}, requests=10, failed=2, failed_age_s=0)),
        ),
        "sample: no more requests failed than there were": (
            [Sample({"redis": 9}, requests=4)],
            just_now(Evidence(60, 9, {"redis": 9}, requests=4, failed=4, failed_age_s=0)),
        ),
        "sample: errors without requests": ([Sample({"redis": 9})], just_now(Evidence(60, 9, {"redis": 9}))),
        "sample: what is unknown counts nothing": ([Sample({"redis": 0}, unknown=7)], NOTHING),
    },
)
def test_report_becomes_evidence(reports: list[Report], evidence: Evidence) -> None:
    assert evidence_of(*reports) == evidence


@cases(
    "story, idle_at",
    {
        "never told": ([], None),
        "less than one is some": ([(1, Sample({}, in_flight=0.5))], None),
        "a broken gauge is not idle": ([(1, Sample({}, in_flight=-1.0))], None),
        "a page without it says nothing": ([(1, Sample({}, in_flight=0.0)), (1, Sample({}))], 1.0),
        "told by the app": ([(1, Results(0, 0, 3)), (1, Results(in_flight=0))], 2.0),
        "the newest word counts": ([(1, Sample({}, in_flight=0.0)), (1, Results(1, 0, 2))], None),
    },
)
def test_app_is_idle_since_it_last_said_that_nothing_is_in_flight(story: list[Told], idle_at: float | None) -> None:
    measurements, _ = measurements_of(story)
    assert measurements.idle_at == idle_at
    measurements.clear()
    assert measurements.idle_at is None


@cases(
    "story, load",
    {
        "never told": ([], None),
        "told by the app": ([(1, Results(load=0.7))], Load(0.7, 10.0)),
        "requests in flight stand for it": ([(1, Results(in_flight=3))], Load(3, 10.0)),
        "unless it was ever told": ([(1, Results(load=0.7)), (1, Results(in_flight=3))], Load(0.7, 11.0)),
        "idle again": ([(1, Results(load=0.7, in_flight=3)), (1, Results(load=0.0))], Load(0.0, 10.0)),
    },
)
def test_load_is_what_was_last_said_of_it_and_grows_old(story: list[Told], load: Load | None) -> None:
    measurements, now = measurements_of(story)
    assert measurements.load(now + 10.0) == load
    measurements.clear()
    assert measurements.load(now + 10.0) is None


# -- the success rate -----------------------------------------------------------------------------------------


@cases(
    "story, rate",
    {
        "nothing": ([], None),
        "errors alone are no share of anything": ([(1, ErrorReport(500))], None),
        "nor are those of a page without requests": ([(1, Sample({"redis": 9}))], None),
        "results of no request": ([(1, Results()), (1, Results(in_flight=3))], None),
        "results": ([(1, Results(30, 10))], 0.75),
        "sample, without ignored kinds": ([(1, Sample({"redis": 10, "cache": 50}, requests=40))], 0.75),
        "sample with more errors than requests": ([(1, Sample({"redis": 50}, requests=40))], 0.0),
        "remembered while nobody calls": ([(1, Results(30, 10)), (60, Heartbeat())], 0.75),
        "for five minutes": ([(1, Results(30, 10)), (300, Heartbeat())], 0.75),
        "and no longer: the reports have stopped": ([(1, Results(30, 10)), (300.5, Heartbeat())], None),
    },
)
def test_success_rate_is_of_requests(story: list[Told], rate: float | None) -> None:
    measurements, now = measurements_of(story)
    assert measurements.success_rate(now) == rate


EVERYTHING: list[Told] = [
    (1.0, ErrorReport(2, fatal=True)),
    (1.0, ErrorReport(2, ErrorLevel.RECOVERED)),
    (1.0, Results(0, 3)),
    (1.0, Heartbeat()),
]


def test_cleared_measurements_are_empty_and_keep_the_counts_since_the_beginning() -> None:
    measurements, now = measurements_of(EVERYTHING)
    measurements.clear()
    assert measurements.evidence(now) == NOTHING
    assert (measurements.errors.ever(), measurements.others.ever()) == ({"unknown": 2}, {"recovered": 2})


def test_kinds_with_a_limit_are_told_apart_whatever_comes_before_them() -> None:
    flood = [(0.0, ErrorReport(kind=f"made-up-{number}")) for number in range(100)]
    measurements, now = measurements_of([*flood, (0.0, ErrorReport(3, kind="redis"))], limits=("redis", "mysql"))
    evidence = measurements.evidence(now)
    assert evidence.kinds["redis"] == 3
    assert evidence.kinds[OTHER] == 100 - 30
    assert judge(evidence, Policy(error_limit=0, kind_limits=(("mysql", 1), ("redis", 3)))).reasons[0].value == 3


# -- two properties -------------------------------------------------------------------------------------------

KINDS = ["redis", "mysql", "cache", "unknown"]
WINDOW_S = 10
few = st.integers(0, 4)
requests = st.sampled_from([0, 1, 4, 9, 10, 20])
reports = st.one_of(
    st.builds(ErrorReport, few, st.sampled_from(ErrorLevel), st.sampled_from(KINDS), fatal=st.booleans()),
    st.builds(Results, requests, requests),
    st.builds(Heartbeat),
    built(Sample, st.dictionaries(st.sampled_from(KINDS), few), requests),
)
pauses = st.sampled_from([0.0, 0.25, 1.0, 5.0, WINDOW_S - 1, WINDOW_S, 3 * WINDOW_S])
stories = st.lists(st.tuples(pauses, reports), max_size=12)
"""Short and rich in edges: a rule is met or missed by one."""

policies = built(
    Policy,
    error_limit=st.sampled_from([0, 1, 5]),
    kind_limits=st.sampled_from([(), (("redis", 3), ("mysql", 2))]),
    error_ratio=st.sampled_from([0.0, 0.3, 0.5, 1.0]),
)
strict_policies = st.builds(Policy._replace, policies, heartbeat_timeout_s=st.sampled_from([0.0, 5.0]))

OLD_SUCCESSES = [(0.0, Results(40, 0)), (5.0, Results(0, 20))]
RATIO_ALONE = Policy(error_limit=0, error_ratio=0.5)
KEPT_SUCCESSES = [(0.0, Results(10, 0)), (5.0, Results(0, 10))]
STALE_FAILURES = [(0.0, Results(0, 15)), (5.0, Results(0, 5))]


def is_excessive(measurements: Measurements, now: float, policy: Policy) -> bool:
    measurements.turn(int(now))
    return not judge(measurements.evidence(now), policy).is_fine


@settings(max_examples=100, deadline=None)
@given(story=stories, policy=policies, waits=st.lists(pauses, min_size=1, max_size=4))
@example(story=OLD_SUCCESSES, policy=RATIO_ALONE, waits=[6.0])  # forgotten by the clock, they leave a ratio of 1
def test_time_alone_never_makes_the_verdict_worse(story: list[Told], policy: Policy, waits: list[float]) -> None:
    measurements, now = measurements_of(story, window_s=WINDOW_S, limits=("redis", "mysql"))
    was = is_excessive(measurements, now, policy)
    for seconds in waits:
        now += seconds
        still = is_excessive(measurements, now, policy)
        assert still <= was
        was = still


errors = st.sampled_from(
    [
        ErrorReport(),
        ErrorReport(fatal=True),
        ErrorReport(kind="redis"),
        ErrorReport(kind="new"),
        Results(0, 1),
    ]
)


@settings(max_examples=100, deadline=None)
@given(story=stories, policy=strict_policies, error=errors, data=st.data(), wait=pauses)
@example(story=KEPT_SUCCESSES, policy=RATIO_ALONE, error=Results(0, 1), data=None, wait=6.0)
@example(story=STALE_FAILURES, policy=RATIO_ALONE, error=Results(0, 1), data=None, wait=6.0)
def test_one_more_error_never_makes_the_verdict_better(
    story: list[Told], policy: Policy, error: Report, data: st.DataObject | None, wait: float
) -> None:
    """Wherever in the story it comes, and however long ago that is; last of all in the example."""
    place = data.draw(st.integers(0, len(story))) if data else len(story)
    after = wait if place == len(story) else 0.0
    more = [*story[:place], (after, error), *story[place:]]
    limits = ("redis", "mysql")
    (fewer_of, _), (more_of, _) = (measurements_of(told, window_s=WINDOW_S, limits=limits) for told in (story, more))
    now = sum(seconds for seconds, _ in story) + wait
    assert is_excessive(more_of, now, policy) >= is_excessive(fewer_of, now, policy)


def test_silence_is_not_forgotten() -> None:
    policy = Policy(heartbeat_timeout_s=5.0)
    measurements, _ = measurements_of([(0.0, Heartbeat())])
    assert is_excessive(measurements, 5.0, policy)
    assert is_excessive(measurements, 5_000.0, policy)
