"""How long who was refused waits before it asks again, and how long a cull may take: pure delays.

Where there is chance in them the caller hands it in.
"""

from __future__ import annotations

from typing import Final

from sidecar.core.types import Denied, Policy, Verdict

UNKNOWN_FIRST_S: Final = 1.0
UNKNOWN_CAP_S: Final = 30.0
DENIED_LEAST_S: Final = 1.0
JITTER: Final = 0.25
"""A claim comes up to this fraction later, so that a fleet that fell ill together does not ask together."""

HONOUR_S: Final = 300.0
HONOUR_DRAINS: Final = 3


def honour_s(drain_s: float) -> float:
    """How long after its cull a container may still be there before whoever should replace it has failed to."""
    return max(HONOUR_S, HONOUR_DRAINS * drain_s)


def denied_delay(answer: Denied, policy: Policy) -> float:
    """Seconds to wait after a refusal, before jitter: until the next check, or less if it is over sooner."""
    return min(policy.check_interval_s, max(DENIED_LEAST_S, answer.retry_after_s))


def unknown_delay(unknowns: int) -> float:
    """Seconds to wait after the ``unknowns + 1``-th unclear answer in a row, before jitter."""
    return float(min(UNKNOWN_CAP_S, UNKNOWN_FIRST_S * 2 ** min(unknowns, 10)))


def spread(delay: float, jitter: float, verdict: Verdict | None) -> float:
    """Lengthen a delay by a random part that grows with health, so that the sickest of a fleet mostly asks first."""
    return delay * (1 + JITTER * jitter * _health(verdict))


def _health(verdict: Verdict | None) -> float:
    """How close to its limit the worst number is: 1 is just there, near 0 is far beyond."""
    reasons = verdict.reasons if verdict else ()
    return min((reason.limit / reason.value for reason in reasons if reason.value > reason.limit > 0), default=1.0)
