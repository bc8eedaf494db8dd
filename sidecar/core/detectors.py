"""Evidence in, verdict out. One small function a rule; every rule has the same signature.

A detector judges a summary and never sees single errors, so it cannot depend on how they arrived. All are
level-triggered (``>=``, judged every time): one more error never makes a verdict better, and time alone, in which the
window forgets, never makes it worse but for the two rules that judge silence (heartbeat, scrape).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from sidecar.core.words import Evidence, Judgement, Policy, Reason, Verdict

Detector = Callable[[Evidence, Policy], Reason | None]


def excessive_errors(evidence: Evidence, policy: Policy) -> Reason | None:
    """Speak when the window holds at least ``error_limit`` server errors (ClassDojo, "Culling Containers")."""
    if not policy.error_limit or evidence.errors < policy.error_limit:
        return None
    said = f"{_errors(evidence.errors)} in {evidence.window_s} s{_mostly(evidence)}, the limit is {policy.error_limit}"
    return Reason("errors", evidence.errors, policy.error_limit, said)


def excessive_kind(evidence: Evidence, policy: Policy) -> Reason | None:
    """Speak when one kind has reached the limit that was set for it; the first in the order of the setting."""
    for kind, limit in policy.kind_limits:
        count = evidence.kinds.get(kind, 0)
        if count >= limit > 0:
            said = f"{_errors(count)} of kind {kind} in {evidence.window_s} s, its limit is {limit}"
            return Reason("kind", count, limit, said)
    return None


def fatal(evidence: Evidence, _policy: Policy) -> Reason | None:
    """Speak when the app said of one error that it cannot recover from it."""
    if not evidence.fatal:
        return None
    return Reason("fatal", evidence.fatal, 1, "the app reported a fatal error, one is enough")


def failing_ratio(evidence: Evidence, policy: Policy) -> Reason | None:
    """Speak when too large a part of the requests failed, once there were enough of them to tell."""
    if not policy.error_ratio or evidence.requests < max(1, policy.ratio_min_requests):
        return None
    ratio = evidence.failed / (evidence.requests + evidence.kept_ok)
    if ratio < policy.error_ratio:
        return None
    before = f", {evidence.kept_ok} went well before" if evidence.kept_ok else ""
    said = (
        f"{evidence.failed} of {evidence.requests} requests failed in {evidence.window_s} s{before}, "
        f"that is {100 * ratio:.3g} %, the limit is {100 * policy.error_ratio:.3g} %"
    )
    return Reason("ratio", ratio, policy.error_ratio, said)


def consecutive_failures(evidence: Evidence, policy: Policy) -> Reason | None:
    """Speak when requests failed in a row with no success between them."""
    if not policy.consecutive_limit or evidence.consecutive < policy.consecutive_limit:
        return None
    said = f"{evidence.consecutive} requests failed in a row, the limit is {policy.consecutive_limit}"
    return Reason("consecutive", evidence.consecutive, policy.consecutive_limit, said)


def silent_heart(evidence: Evidence, policy: Policy) -> Reason | None:
    """Speak when a heart that has been heard beats no more."""
    age, timeout = evidence.heartbeat_age_s, policy.heartbeat_timeout_s
    if not timeout or age is None or age < timeout:
        return None
    return Reason("heartbeat", age, timeout, f"no heartbeat for {age:.1f} s, the limit is {timeout:g} s")


def unanswered_scrapes(evidence: Evidence, policy: Policy) -> Reason | None:
    """Speak when the app's metrics page could not be had so many times in a row."""
    if not policy.scrape_down_after or evidence.missed_scrapes < policy.scrape_down_after:
        return None
    said = f"the app did not answer {evidence.missed_scrapes} scrapes in a row, the limit is {policy.scrape_down_after}"
    return Reason("scrape", evidence.missed_scrapes, policy.scrape_down_after, said)


def _errors(count: int) -> str:
    return "1 server error" if count == 1 else f"{count} server errors"


def _mostly(evidence: Evidence) -> str:
    kind, count = min(evidence.kinds.items(), key=lambda item: (-item[1], item[0]), default=("", 0))
    if kind in ("", "unknown"):
        return ""
    return f" ({count} of them {kind})"


DETECTORS: Final[tuple[Detector, ...]] = (
    fatal,
    excessive_errors,
    excessive_kind,
    failing_ratio,
    consecutive_failures,
    silent_heart,
    unanswered_scrapes,
)


def judge(evidence: Evidence, policy: Policy) -> Verdict:
    """Ask every detector; one reason is enough for ``excessive``."""
    reasons = tuple(reason for detect in DETECTORS if (reason := detect(evidence, policy)))
    return Verdict(Judgement.EXCESSIVE if reasons else Judgement.FINE, reasons)


def complaint(verdict: Verdict | None, evidence: Evidence) -> str:
    """What the app suffers from, in one word: the kind of most errors, or the rule that spoke if there are none."""
    if evidence.kinds:
        return max(evidence.kinds, key=lambda kind: (evidence.kinds[kind], kind))
    return verdict.reasons[0].rule if verdict and verdict.reasons else "unknown"
