"""The limit that errors have to reach, so that chance does not explain them."""

from __future__ import annotations

from harness.cases import cases
from sidecar.core.measure.outlier import EffectiveLimit, effective_limit
from sidecar.core.measure.usual import NO_BASELINE, Baseline, FleetUsual, Rates
from sidecar.core.types import Evidence, Policy

NINE = Evidence(60, 9, {"redis": 9})


def fleet_has(median: int, smooth: float) -> Baseline:
    return Baseline(FleetUsual(median, smooth_errors=smooth))


FLEET_3 = "raised from 5, because containers of this fleet have about 3 when they are well"
OWN_3 = "raised from 5, because this container has about 3 when it is well"
HALF = "a soft drain leaves it 50 % of its load; at full load the limit is"


@cases(
    "baseline, limit, why",
    {
        "nothing known": (NO_BASELINE, 5, ""),
        "chance alone": (fleet_has(0, 0.1), 5, ""),
        "a little is usual": (fleet_has(0, 0.2), 6, FLEET_3.replace("3", "0.2")),
        "three are usual": (fleet_has(3, 3.0), 17, FLEET_3),
        "many are usual": (fleet_has(1, 100.4), 158, FLEET_3.replace("3", "100")),
        "own past": (Baseline(own=Rates(3.0)), 17, OWN_3),
        "just below the limit": (fleet_has(4, 4.0), 19, FLEET_3.replace("3", "4")),
        "nobody stands out": (
            fleet_has(5, 0.0)._replace(own=Rates(9.0)),
            5,
            "the whole fleet has as many (median 5)",
        ),
        "chance explains the median": (fleet_has(16, 3.0), 42, FLEET_3.replace("3", "16")),
        "and now it does not": (fleet_has(17, 3.0), 5, "the whole fleet has as many (median 17)"),
        "half of its load": (Baseline(share=0.5), 3, f"{HALF} 5"),
        "never 0": (Baseline(share=0.0), 1, f"{HALF.replace('50', '0')} 5"),
        "nearly all of it": (Baseline(share=0.95), 5, ""),
        "both": (Baseline(own=Rates(3.0), share=0.5), 9, f"{HALF} 17; {OWN_3}"),
    },
)
def test_limit_of_five_is_what_chance_does_not_explain_and_says_why(baseline: Baseline, limit: int, why: str) -> None:
    assert effective_limit(5, NINE, Policy(), baseline) == EffectiveLimit(limit, why)


@cases(
    "policy, baseline, limit, least",
    {
        "a limit far above": (Policy(), fleet_has(3, 3.0), 50, 50),
        "nobody stands out by a kind": (Policy(), fleet_has(5, 0.0), 2, 2),
        "a kind with a low limit": (Policy(), fleet_has(3, 3.0), 2, 17),
        "the limit of a kind alone": (Policy(error_limit=0), fleet_has(3, 0.0), 2, 2),
        "off": (Policy(outlier=False), fleet_has(3, 3.0), 5, 5),
    },
)
def test_other_limits(policy: Policy, baseline: Baseline, limit: int, least: int) -> None:
    assert effective_limit(limit, NINE, policy, baseline).limit == least
