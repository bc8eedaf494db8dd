"""The limit that errors have to reach, so that chance does not explain them."""

from __future__ import annotations

from harness.cases import cases
from sidecar.core.measure.outlier import EffectiveLimit, effective_limit
from sidecar.core.measure.usual import NO_BASELINE, Baseline, FleetUsual, Rates
from sidecar.core.types import Evidence, Policy

NINE = Evidence(60, 9, {"redis": 9})


def fleet_has(median: int, smooth: float) -> Baseline:
    return Baseline(FleetUsual(median, smooth_errors=smooth))


@cases(
    "policy, baseline, limit, least",
    {
        "nothing known": (Policy(), NO_BASELINE, 5, 5),
        "a little is usual": (Policy(), fleet_has(0, 0.2), 5, 6),
        "three are usual": (Policy(), fleet_has(3, 3.0), 5, 17),
        "a limit far above": (Policy(), fleet_has(3, 3.0), 50, 50),
        "just below the limit": (Policy(), fleet_has(4, 4.0), 5, 19),
        "nobody stands out": (Policy(), fleet_has(5, 0.0)._replace(own=Rates(9.0)), 5, 5),
        "chance explains the median": (Policy(), fleet_has(16, 3.0), 5, 42),
        "and now it does not": (Policy(), fleet_has(17, 3.0), 5, 5),
        "nobody stands out by a kind": (Policy(), fleet_has(5, 0.0), 2, 2),
        "a kind with a low limit": (Policy(), fleet_has(3, 3.0), 2, 17),
        "the limit of a kind alone": (Policy(error_limit=0), fleet_has(3, 0.0), 2, 2),
        "off": (Policy(outlier=False), fleet_has(3, 3.0), 5, 5),
    },
)
def test_limit_is_what_chance_does_not_explain(policy: Policy, baseline: Baseline, limit: int, least: int) -> None:
    assert effective_limit(limit, NINE, policy, baseline).limit == least


OWN_3 = "raised from 5, because this container has about 3 when it is well"


@cases(
    "baseline, limit, why",
    {
        "as set": (NO_BASELINE, 5, ""),
        "fleet": (
            fleet_has(3, 3.0),
            17,
            "raised from 5, because containers of this fleet have about 3 when they are well",
        ),
        "own past": (Baseline(own=Rates(3.0)), 17, OWN_3),
        "many": (
            fleet_has(1, 100.4),
            158,
            "raised from 5, because containers of this fleet have about 100 when they are well",
        ),
        "nobody stands out": (fleet_has(5, 0.0), 5, "the whole fleet has as many (median 5)"),
        "half of its load": (
            Baseline(share=0.5),
            3,
            "a soft drain leaves it 50 % of its load; at full load the limit is 5",
        ),
        "never 0": (Baseline(share=0.0), 1, "a soft drain leaves it 0 % of its load; at full load the limit is 5"),
        "nearly all of it": (Baseline(share=0.95), 5, ""),
        "chance alone": (fleet_has(0, 0.1), 5, ""),
        "both": (
            Baseline(own=Rates(3.0), share=0.5),
            9,
            f"a soft drain leaves it 50 % of its load; at full load the limit is 17; {OWN_3}",
        ),
    },
)
def test_limit_that_differs_says_why(baseline: Baseline, limit: int, why: str) -> None:
    assert effective_limit(5, NINE, Policy(), baseline) == EffectiveLimit(limit, why)
