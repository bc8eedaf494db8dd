"""Whether an app's errors are more than chance: the limit that they have to reach.

A container is an outlier if a healthy one would have as many errors in one of ten million windows (``noise.quantile``).
"""

from __future__ import annotations

from math import ceil
from typing import Final, NamedTuple

from sidecar.core.measure.noise import quantile
from sidecar.core.measure.usual import Baseline
from sidecar.core.types import Evidence, Policy

LEAST_RATIO: Final = 0.01
"""Errors that are failed requests are too many only from this part of the requests on."""


class EffectiveLimit(NamedTuple):
    """The limit that errors have to reach, and why it differs from the one that was set, or does not in an outage."""

    limit: int
    why: str = ""


def effective_limit(limit: int, evidence: Evidence, policy: Policy, baseline: Baseline) -> EffectiveLimit:
    """The limit of errors in this window; a softly drained container has the same part of the limit as of its load."""
    whole = _whole_limit(limit, evidence, policy, baseline)
    part = scaled(whole.limit, baseline.share)
    if part == whole.limit:
        return whole
    why = f"a soft drain leaves it {100 * baseline.share:.0f} % of its load; at full load the limit is {whole.limit}"
    return EffectiveLimit(part, f"{why}; {whole.why}" if whole.why else why)


def limit_of_errors(evidence: Evidence, policy: Policy, baseline: Baseline) -> EffectiveLimit:
    """The limit of errors of all kinds: where they are failed requests, also a part of the requests.

    Five errors are a twentieth of a hundred requests, and nothing of a hundred thousand. Errors beside the requests, as
    of a worker in the app, count as ever.
    """
    met = effective_limit(policy.error_limit, evidence, policy, baseline)
    are_requests = evidence.errors - evidence.failed < met.limit
    least = ceil(LEAST_RATIO * evidence.requests) if policy.outlier and are_requests else 0
    if met.limit >= least:
        return met
    return EffectiveLimit(least, f"{100 * LEAST_RATIO:.0f} % of its {evidence.requests} requests")


def scaled(limit: int, share: float) -> int:
    """The part of a limit that belongs to this share of the load, one at least."""
    return max(1, ceil(limit * share))


def _whole_limit(limit: int, evidence: Evidence, policy: Policy, baseline: Baseline) -> EffectiveLimit:
    """The limit of errors in this window, where ``limit`` was set.

    If the fleet's median itself has reached the limit there are no outliers, and the limit alone decides. A median that
    chance explains does not count: in a small fleet with errors in every window it reaches the limit now and then.
    """
    if not policy.outlier:
        return EffectiveLimit(limit)
    median = baseline.fleet.errors
    if median is not None and median >= max(policy.error_limit or limit, quantile(baseline.fleet.smoothed())):
        return EffectiveLimit(limit, f"the whole fleet has as many (median {median})")
    usual = baseline.usual(evidence)
    effective = quantile(usual.errors)
    if effective <= limit:
        return EffectiveLimit(limit)
    whose, well = ("this container has", "it is") if usual.is_own else ("containers of this fleet have", "they are")
    rate = f"{float(f'{usual.errors:.2g}'):g}"
    return EffectiveLimit(effective, f"raised from {limit}, because {whose} about {rate} when {well} well")
