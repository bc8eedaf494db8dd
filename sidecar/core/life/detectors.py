"""Evidence in, verdict out. One small function a rule; every rule has the same signature.

A detector judges a summary and never sees single errors, so it cannot depend on how they arrived. All are
level-triggered (``>=``, judged every time): one more error never makes a verdict better, and time alone, in which the
window forgets, never makes it worse but for the two rules that judge silence (heartbeat, scrape).

Errors are counted against a limit, and have to be more than chance explains as well (``outlier``); so has one kind of
them. The other rules need no such comparison. A fatal error, a heart that fell silent and scrapes without an answer are
no counts of what every healthy container has some of. Nor is half of twenty requests, or failures in a row: no fleet
that is well has a rate at which these come by chance, and in one that has nobody stands out, so that the limit alone
decides anyway.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from sidecar.core.life.outlier import NO_BASELINE, Bar, Baseline, bar, scaled
from sidecar.core.types import Evidence, Judgement, Policy, Reason, Verdict

Detector = Callable[[Evidence, Policy, Baseline], Reason | None]


def excessive_errors(evidence: Evidence, policy: Policy, baseline: Baseline) -> Reason | None:
    """Speak when the window holds at least ``error_limit`` server errors (ClassDojo, "Culling Containers")."""
    limit = policy.error_limit
    if not limit or evidence.errors < scaled(limit, baseline.share):
        return None
    said = f"{_errors(evidence.errors)} in {evidence.window_s} s{_mostly(evidence)}, the limit is"
    return _reason("errors", evidence.errors, bar(limit, evidence, policy, baseline), said)


def excessive_kind(evidence: Evidence, policy: Policy, baseline: Baseline) -> Reason | None:
    """Speak when one kind has reached the limit that was set for it; the first in the order of the setting.

    It is compared with what is usual of all kinds together: the medians are not told by kind.
    """
    for kind, limit in policy.kind_limits:
        count = evidence.kinds.get(kind, 0)
        if limit > 0 and count >= scaled(limit, baseline.share):
            said = f"{_errors(count)} of kind {kind} in {evidence.window_s} s, its limit is"
            if reason := _reason("kind", count, bar(limit, evidence, policy, baseline), said):
                return reason
    return None


def _reason(rule: str, count: int, met: Bar, said: str) -> Reason | None:
    if count < met.limit:
        return None
    return Reason(rule, count, met.limit, f"{said} {met.limit}{f': {met.why}' if met.why else ''}")


def fatal(evidence: Evidence, _policy: Policy, _baseline: Baseline) -> Reason | None:
    """Speak when the app said of one error that it cannot recover from it."""
    if not evidence.fatal:
        return None
    return Reason("fatal", evidence.fatal, 1, "the app reported a fatal error, one is enough")


def failing_ratio(evidence: Evidence, policy: Policy, _baseline: Baseline) -> Reason | None:
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


def consecutive_failures(evidence: Evidence, policy: Policy, _baseline: Baseline) -> Reason | None:
    """Speak when requests failed in a row with no success between them."""
    if not policy.consecutive_limit or evidence.consecutive < policy.consecutive_limit:
        return None
    said = f"{evidence.consecutive} requests failed in a row, the limit is {policy.consecutive_limit}"
    return Reason("consecutive", evidence.consecutive, policy.consecutive_limit, said)


def silent_heart(evidence: Evidence, policy: Policy, _baseline: Baseline) -> Reason | None:
    """Speak when a heart that has been heard beats no more."""
    age, timeout = evidence.heartbeat_age_s, policy.heartbeat_timeout_s
    if not timeout or age is None or age < timeout:
        return None
    return Reason("heartbeat", age, timeout, f"no heartbeat for {age:.1f} s, the limit is {timeout:g} s")


def unanswered_scrapes(evidence: Evidence, policy: Policy, _baseline: Baseline) -> Reason | None:
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


def judge(evidence: Evidence, policy: Policy, baseline: Baseline = NO_BASELINE) -> Verdict:
    """Ask every detector; one reason is enough for ``excessive``."""
    reasons = tuple(reason for detect in DETECTORS if (reason := detect(evidence, policy, baseline)))
    if reasons:
        return Verdict(Judgement.EXCESSIVE, reasons)
    return Verdict(Judgement.FINE, spared=_spared(evidence, policy, baseline))


def _spared(evidence: Evidence, policy: Policy, baseline: Baseline) -> str:
    """Which errors have reached a limit that was set, and why they are no reason; empty if none have."""
    counts = [(evidence.errors, policy.error_limit, "")]
    counts += [(evidence.kinds.get(kind, 0), limit, f" of kind {kind}") for kind, limit in policy.kind_limits]
    for count, limit, what in counts:
        if count >= limit > 0:
            least = bar(limit, evidence, policy, baseline)
            said = f"{_errors(count)}{what} in {evidence.window_s} s reach the limit of {limit}"
            return f"{said}, but up to {least.limit - 1} would be chance: {least.why}"
    return ""


def complaint(verdict: Verdict | None, evidence: Evidence) -> str:
    """What the app suffers from, in one word: the kind of most errors, or the rule that spoke if there are none."""
    if evidence.kinds:
        return max(evidence.kinds, key=lambda kind: (evidence.kinds[kind], kind))
    return verdict.reasons[0].rule if verdict and verdict.reasons else "unknown"
