"""Evidence in, verdict out. One small function a rule; every rule has the same signature.

A detector judges a summary and never sees single errors, so it cannot depend on how they arrived.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from sidecar.core.words import Evidence, Judgement, Policy, Reason, Verdict

Detector = Callable[[Evidence, Policy], Reason | None]


def excessive_errors(evidence: Evidence, policy: Policy) -> Reason | None:
    """Speak when the window holds at least ``error_limit`` server errors (ClassDojo, "Culling Containers")."""
    if evidence.errors < policy.error_limit:
        return None
    return Reason(
        rule="errors",
        value=evidence.errors,
        limit=policy.error_limit,
        sentence=f"{_errors(evidence)} in {evidence.window_s} s{_mostly(evidence)}, the limit is {policy.error_limit}",
    )


def _errors(evidence: Evidence) -> str:
    return "1 server error" if evidence.errors == 1 else f"{evidence.errors} server errors"


def _mostly(evidence: Evidence) -> str:
    kind, count = min(evidence.kinds.items(), key=lambda item: (-item[1], item[0]), default=("", 0))
    if kind in ("", "unknown"):
        return ""
    return f" ({count} of them {kind})"


DETECTORS: Final[tuple[Detector, ...]] = (excessive_errors,)


def judge(evidence: Evidence, policy: Policy) -> Verdict:
    """Ask every detector; one reason is enough for ``excessive``."""
    reasons = tuple(reason for detect in DETECTORS if (reason := detect(evidence, policy)))
    return Verdict(Judgement.EXCESSIVE if reasons else Judgement.FINE, reasons)
