"""Evidence in, verdict out: a table, and what must hold for every number."""

from __future__ import annotations

from math import ceil

import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness.cases import cases
from harness.strategies import built
from sidecar.core.life.detectors import judge
from sidecar.core.measure.usual import Baseline, FleetUsual, Rates
from sidecar.core.types import Evidence, Policy, Verdict


def holding(kinds: dict[str, int]) -> Evidence:
    return Evidence(60, sum(kinds.values()), kinds, newest_age_s=0 if kinds else None)


# -- every rule, alone ----------------------------------------------------------------------------------------

OFF = Policy(error_limit=0, error_ratio=0.0)
"""No rule speaks of anything but a fatal error."""


def requests(failed: int, of: int, kept_ok: int = 0) -> Evidence:
    return Evidence(60, requests=of, failed=failed, kept_ok=kept_ok)


RATIO = OFF._replace(error_ratio=0.5)
SILENT = OFF._replace(heartbeat_timeout_s=15.0)
LIMITED = OFF._replace(kind_limits=(("redis", 3), ("mysql", 5)))

Told = tuple[str, float, float] | None
"""Rule, number and limit of the one reason; None: the rule is silent."""


@cases(
    "evidence, policy, told",
    {
        "errors: no limit": (holding({"redis": 9_999}), OFF, None),
        "errors: below": (holding({"redis": 4}), OFF._replace(error_limit=5), None),
        "errors: at the limit": (holding({"redis": 5}), OFF._replace(error_limit=5), ("errors", 5, 5)),
        "kind: below": (holding({"redis": 2}), LIMITED, None),
        "kind: at the limit": (holding({"redis": 3}), LIMITED, ("kind", 3, 3)),
        "kind: together they are more": (holding({"redis": 2, "mysql": 4}), LIMITED, None),
        "kind: another": (holding({"disk": 100}), LIMITED, None),
        "kind: first of the setting": (holding({"mysql": 9, "redis": 3}), LIMITED, ("kind", 3, 3)),
        "kind: second of the setting": (holding({"mysql": 9, "redis": 2}), LIMITED, ("kind", 9, 5)),
        "kind: a limit of none": (holding({}), OFF._replace(kind_limits=(("redis", 0),)), None),
        "fatal: one is enough": (Evidence(60, fatal=1), OFF, ("fatal", 1, 1)),
        "fatal: several": (Evidence(60, fatal=7), OFF, ("fatal", 7, 1)),
        "ratio: too few to tell": (requests(19, of=19), RATIO, None),
        "ratio: at the limit": (requests(10, of=20), RATIO, ("ratio", 0.5, 0.5)),
        "ratio: below": (requests(9, of=20), RATIO, None),
        "ratio: all": (requests(20, of=20), RATIO, ("ratio", 1.0, 0.5)),
        "ratio: what went well before": (requests(20, of=20, kept_ok=20), RATIO, ("ratio", 0.5, 0.5)),
        "ratio: what went well before weighs": (requests(20, of=20, kept_ok=21), RATIO, None),
        "ratio: but is no request of the window": (requests(19, of=19, kept_ok=1), RATIO, None),
        "ratio: off": (requests(99, of=99), OFF, None),
        "ratio: none failed": (requests(0, of=99), RATIO._replace(error_ratio=0.001), None),
        "heartbeat: off": (Evidence(60, heartbeat_age_s=9_999.0), OFF, None),
        "heartbeat: never heard": (Evidence(60), SILENT, None),
        "heartbeat: in time": (Evidence(60, heartbeat_age_s=14.999), SILENT, None),
        "heartbeat: missed": (Evidence(60, heartbeat_age_s=15.0), SILENT, ("heartbeat", 15, 15)),
    },
)
def test_rule_speaks_from_its_limit_on_and_names_its_number(evidence: Evidence, policy: Policy, told: Told) -> None:
    verdict = judge(evidence, policy)
    assert [(reason.rule, reason.value, reason.limit) for reason in verdict.reasons] == ([told] if told else [])
    assert verdict.word == ("excessive" if told else "fine")


@pytest.mark.parametrize(
    ("evidence", "policy", "sentence"),
    [
        (
            holding({"redis": 1}),
            OFF._replace(kind_limits=(("redis", 1),)),
            "1 server error of kind redis in 60 s, its limit is 1",
        ),
        (Evidence(60, fatal=1), OFF, "the app reported a fatal error, one is enough"),
        (
            requests(20, of=20, kept_ok=10),
            RATIO,
            "20 of 20 requests failed in 60 s, 10 went well before, that is 66.7 %, the limit is 50 %",
        ),
        (
            requests(3, of=1_000),
            RATIO._replace(error_ratio=0.0025),
            "3 of 1000 requests failed in 60 s, that is 0.3 %, the limit is 0.25 %",
        ),
        (Evidence(60, heartbeat_age_s=16.25), SILENT, "no heartbeat for 16.2 s, the limit is 15 s"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_rule_says_its_number_and_limit_to_a_person(evidence: Evidence, policy: Policy, sentence: str) -> None:
    (reason,) = judge(evidence, policy).reasons
    assert reason.sentence == sentence


# -- more than chance -----------------------------------------------------------------------------------------


def fleet_has(median: int, smooth: float) -> Baseline:
    return Baseline(FleetUsual(median, smooth_errors=smooth))


THREE = fleet_has(3, 3.0)
HAVE_3 = "raised from 5, because containers of this fleet have about 3 when they are well"
HAVE_1 = "raised from 2, because containers of this fleet have about 1 when they are well"
SPARED = "in 60 s reach the limit of"
KINDS = Policy(error_limit=0, kind_limits=(("redis", 2),))


@cases(
    "kinds, policy, baseline, sentence",
    {
        "outlier": (
            {"redis": 17},
            Policy(),
            THREE,
            f"17 server errors in 60 s (17 of them redis), the limit is 17; {HAVE_3}",
        ),
        "nobody stands out": (
            {"unknown": 6},
            Policy(),
            fleet_has(7, 0.0),
            "6 server errors in 60 s, the limit is 5; the whole fleet has as many (median 7)",
        ),
        "off": ({"unknown": 6}, Policy(outlier=False), THREE, "6 server errors in 60 s, the limit is 5"),
        "kind": (
            {"redis": 12},
            KINDS,
            fleet_has(1, 1.0),
            f"12 server errors of kind redis in 60 s, its limit is 11; {HAVE_1}",
        ),
    },
)
def test_sentence_says_which_limit_spoke_and_why(
    kinds: dict[str, int], policy: Policy, baseline: Baseline, sentence: str
) -> None:
    (reason, *_) = judge(holding(kinds), policy, baseline).reasons
    assert reason.sentence == sentence


@cases(
    "kinds, policy, spared",
    {
        "below the limit": ({"redis": 4}, Policy(), ""),
        "over it": ({"redis": 16}, Policy(), f"16 server errors {SPARED} 5, but here the limit is 17: {HAVE_3}"),
        "kind": (
            {"redis": 2},
            KINDS,
            f"2 server errors of kind redis {SPARED} 2, but here the limit is 17: {HAVE_3.replace('from 5', 'from 2')}",
        ),
        "no limit": ({"redis": 0}, Policy(error_limit=0), ""),
    },
)
def test_errors_that_chance_explains_are_fine_and_said_so(kinds: dict[str, int], policy: Policy, spared: str) -> None:
    baseline = fleet_has(1 if policy is KINDS else 3, 3.0)
    assert judge(holding(kinds), policy, baseline) == Verdict(spared=spared)


@cases(
    "errors, requests, failed, outlier, share, limit",
    {
        "1 % is the limit": (5, 500, 5, True, 1.0, 5),
        "less than 1 %": (5, 501, 5, True, 1.0, None),
        "much traffic": (359, 36_000, 359, True, 1.0, None),
        "1 % of it": (360, 36_000, 360, True, 1.0, 360),
        "errors are no requests": (5, 36_000, 0, True, 1.0, 5),
        "few errors beside the requests": (14, 36_000, 10, True, 1.0, None),
        "errors beside the requests": (15, 36_000, 10, True, 1.0, 5),
        "compared with nothing": (5, 36_000, 5, False, 1.0, 5),
        "softly drained": (35, 3_600, 35, True, 0.1, None),
        "1 % of what it still gets": (36, 3_600, 36, True, 0.1, 36),
    },
)
def test_errors_below_one_percent_of_the_requests_are_not_too_many(
    errors: int, requests: int, failed: int, limit: int | None, share: float, *, outlier: bool
) -> None:
    evidence = holding({"redis": errors})._replace(requests=requests, failed=failed)
    verdict = judge(evidence, Policy(outlier=outlier), Baseline(share=share))
    assert [reason.limit for reason in verdict.reasons] == ([] if limit is None else [limit])
    if limit is None:
        assert verdict.spared.endswith(f"{ceil(requests / 100)}: 1 % of its {requests} requests")


def test_limit_by_kind_is_not_a_part_of_the_requests() -> None:
    evidence = holding({"redis": 3})._replace(requests=36_000, failed=3)
    assert [reason.rule for reason in judge(evidence, KINDS).reasons] == ["kind"]


def test_what_is_no_count_of_errors_speaks_whatever_is_usual() -> None:
    everything = Evidence(60, fatal=1, requests=20, failed=20, heartbeat_age_s=99.0)
    policy = Policy(heartbeat_timeout_s=1.0)
    reasons = judge(everything, policy, Baseline(FleetUsual(4, 1.0, 1_000.0, 1.0), Rates(1_000.0, 1.0))).reasons
    assert [reason.rule for reason in reasons] == ["fatal", "ratio", "heartbeat"]


# -- the cause ------------------------------------------------------------------------------------------------


@cases(
    "kinds, heartbeat_age_s, cause",
    {
        "most errors": ({"redis": 4, "http": 1}, 0, "redis"),
        "tie": ({"redis": 3, "http": 3}, 0, "redis"),
        "tie the other way round": ({"http": 3, "redis": 3}, 0, "redis"),
        "errors below the limit": ({"http": 1}, 3, "http"),
        "no errors": ({}, 3, "heartbeat"),
        "fine": ({"http": 1}, 0, ""),
    },
)
def test_cause_is_the_kind_of_most_errors_or_the_rule_that_spoke(
    kinds: dict[str, int], heartbeat_age_s: int, cause: str
) -> None:
    evidence = holding(kinds)._replace(heartbeat_age_s=heartbeat_age_s)
    assert judge(evidence, Policy(error_limit=5, heartbeat_timeout_s=3)).cause == cause


# -- every number that a rule judges by -----------------------------------------------------------------------

whole = st.integers(0, 30)
evidences = built(
    Evidence,
    st.just(60),
    errors=whole,
    kinds=st.dictionaries(st.sampled_from(["redis", "mysql"]), whole),
    fatal=whole,
    requests=st.integers(15, 60),
    failed=whole,
    kept_ok=whole,
    heartbeat_age_s=st.none() | st.floats(0, 100),
)
policies = built(
    Policy,
    error_limit=whole,
    kind_limits=st.dictionaries(st.sampled_from(["redis", "mysql"]), whole).map(lambda limits: tuple(limits.items())),
    error_ratio=st.floats(0, 1),
    heartbeat_timeout_s=st.floats(0, 50),
)


baselines = built(
    Baseline,
    built(FleetUsual, st.none() | whole, st.none() | st.floats(0, 1), st.none() | st.floats(0, 30)),
    st.builds(Rates, st.floats(0, 30), st.floats(0, 1)),
)


@given(evidences, policies, baselines)
def test_reason_never_comes_without_a_limit_that_was_met(
    evidence: Evidence, policy: Policy, baseline: Baseline
) -> None:
    verdict = judge(evidence, policy, baseline)
    assert not (verdict.reasons and verdict.spared)
    for reason in verdict.reasons:
        assert reason.value >= reason.limit > 0
        assert reason.sentence


@given(evidences, policies, baselines)
def test_comparing_never_makes_a_verdict_worse(evidence: Evidence, policy: Policy, baseline: Baseline) -> None:
    rules = {reason.rule for reason in judge(evidence, policy, baseline).reasons}
    assert rules <= {reason.rule for reason in judge(evidence, policy).reasons}


# -- old errors -------------------------------------------------------------------------------------------------

OLD = holding({"redis": 5})._replace(newest_age_s=11)


@cases(
    "evidence, policy, is_old",
    {
        "the last error is over ten seconds old": (OLD, Policy(), True),
        "it is not": (OLD._replace(newest_age_s=10), Policy(), False),
        "a longer check interval": (OLD._replace(newest_age_s=20), Policy(check_interval_s=20.0), False),
        "older than that, too": (OLD._replace(newest_age_s=21), Policy(check_interval_s=20.0), True),
        "failed requests": (Evidence(60, requests=20, failed=20, failed_age_s=11), Policy(), True),
        "recent failed requests": (Evidence(60, requests=20, failed=20, failed_age_s=10), Policy(), False),
        "a recent failed request beside old errors": (
            OLD._replace(requests=9, failed=1, failed_age_s=3),
            Policy(),
            False,
        ),
        "errors of one kind": (
            OLD._replace(kinds={"redis": 2}, errors=2),
            Policy(error_limit=0, kind_limits=(("redis", 2),)),
            True,
        ),
        "no heartbeat": (OLD._replace(heartbeat_age_s=40.0), Policy(heartbeat_timeout_s=30.0), False),
        "a fatal error": (OLD._replace(fatal=1), Policy(), False),
        "nothing": (holding({}), Policy(), False),
    },
)
def test_verdict_is_old_while_only_old_errors_speak_against_the_app(
    evidence: Evidence, policy: Policy, *, is_old: bool
) -> None:
    assert judge(evidence, policy).is_old is is_old
