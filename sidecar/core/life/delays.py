"""How long a container waits before it asks again, and how long a cull may take; jitter is an argument."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from sidecar.core.types import Verdict

UNKNOWN_FIRST_S: Final = 1.0
UNKNOWN_CAP_S: Final = 30.0
JITTER: Final = 0.25
"""A claim is delayed by up to this fraction, so that containers that become sick together do not claim together."""

CHECK_JITTER: Final = 0.1
"""A check comes earlier or later by up to this fraction of its interval: not all sidecars check at the same moment."""
LIFETIME_JITTER: Final = 0.1
"""A retirement comes earlier or later by up to this fraction of the lifetime."""

HONOUR_S: Final = 300.0
HONOUR_DRAINS: Final = 3


def honour_s(drain_s: float) -> float:
    """Seconds after which a cull is not honoured, if the container is still there."""
    return max(HONOUR_S, HONOUR_DRAINS * drain_s)


def unknown_delay(unknowns: int) -> float:
    """Seconds to wait after the ``unknowns + 1``-th unclear answer in a row, before jitter."""
    return float(min(UNKNOWN_CAP_S, UNKNOWN_FIRST_S * 2 ** min(unknowns, 10)))


def spread(delay: float, jitter: float, verdict: Verdict | None) -> float:
    """Lengthen a delay by a random part that grows with health, so that the sickest container mostly claims first."""
    return delay * (1 + JITTER * jitter * _health(verdict))


def _health(verdict: Verdict | None) -> float:
    """The limit divided by the worst value: 1 at the limit, near 0 far beyond it."""
    reasons = verdict.reasons if verdict else ()
    return min((reason.limit / reason.value for reason in reasons if reason.value > reason.limit > 0), default=1.0)
