"""The detectors: evidence in, verdict out.

Each rule is one small function, and all have the same signature. A detector judges a summary and never sees single
errors, so it does not depend on how they arrived. All detectors are level-triggered (``>=``, judged every time): one
more error never makes a verdict better, and time alone never makes it worse, except for the rule that judges silence
(heartbeat).

Errors, and errors of one kind, have a limit, and also have to be more than chance explains (``outlier``). The other
rules need no such comparison, because a healthy container has none of these: a fatal error, missing heartbeats, half of
twenty requests failed.

Errors of the past need no restart: while the last one is old, the app is suspect and claims nothing. Conditions that
still stand do not get old: missing heartbeats, and a fatal error, from which the app said that it cannot recover.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from sidecar.core.measure.outlier import EffectiveLimit, effective_limit, limit_of_errors, scaled
from sidecar.core.measure.usual import NO_BASELINE, Baseline
from sidecar.core.types import Evidence, Policy, Reason, Verdict

RECENT_S: Final = 10.0
"""An error is recent for so long, or for one check interval if that is longer."""

RATIO_MIN_REQUESTS: Final = 20
"""Least number of requests in the window of which a ratio is judged."""

STANDING: Final = frozenset({"fatal", "heartbeat"})
"""The rules whose condition still stands, however old the last error is."""

Detector = Callable[[Evidence, Policy, Baseline], Reason | None]


def excessive_errors(evidence: Evidence, policy: Policy, baseline: Baseline) -> Reason | None:
    """Fire when the window holds at least ``error_limit`` server errors (ClassDojo, "Culling Containers")."""
    limit = policy.error_limit
    if not limit or evidence.errors < scaled(limit, baseline.share):
        return None
    sentence = f"{_errors(evidence.errors)} in {evidence.window_s} s{_mostly(evidence)}, the limit is"
    return _reason("errors", evidence.errors, limit_of_errors(evidence, policy, baseline), sentence)


def excessive_kind(evidence: Evidence, policy: Policy, baseline: Baseline) -> Reason | None:
    """Fire when one kind has reached its own limit; the first in the order of the setting.

    Its errors are compared with the usual errors of all kinds, because there is no median by kind.
    """
    for kind, limit in policy.kind_limits:
        count = evidence.kinds.get(kind, 0)
        if limit > 0 and count >= scaled(limit, baseline.share):
            sentence = f"{_errors(count)} of kind {kind} in {evidence.window_s} s, its limit is"
            if reason := _reason("kind", count, effective_limit(limit, evidence, policy, baseline), sentence):
                return reason
    return None


def _reason(rule: str, count: int, effective: EffectiveLimit, sentence: str) -> Reason | None:
    if count < effective.limit:
        return None
    why = f"; {effective.why}" if effective.why else ""
    return Reason(rule, count, effective.limit, f"{sentence} {effective.limit}{why}")


def fatal(evidence: Evidence, _policy: Policy, _baseline: Baseline) -> Reason | None:
    """Fire when the app reported an error that it cannot recover from."""
    if not evidence.fatal:
        return None
    return Reason("fatal", evidence.fatal, 1, "the app reported a fatal error, one is enough")


def failing_ratio(evidence: Evidence, policy: Policy, _baseline: Baseline) -> Reason | None:
    """Fire when too large a part of the requests failed, if there were enough of them."""
    if not policy.error_ratio or evidence.requests < RATIO_MIN_REQUESTS:
        return None
    ratio = evidence.failed / (evidence.requests + evidence.kept_ok)
    if ratio < policy.error_ratio:
        return None
    before = f", {evidence.kept_ok} went well before" if evidence.kept_ok else ""
    sentence = (
        f"{evidence.failed} of {evidence.requests} requests failed in {evidence.window_s} s{before}, "
        f"that is {100 * ratio:.3g} %, the limit is {100 * policy.error_ratio:.3g} %"
    )
    return Reason("ratio", ratio, policy.error_ratio, sentence)


def missing_heartbeats(evidence: Evidence, policy: Policy, _baseline: Baseline) -> Reason | None:
    """Fire when the app has sent heartbeats and has stopped for too long."""
    age, timeout = evidence.heartbeat_age_s, policy.heartbeat_timeout_s
    if not timeout or age is None or age < timeout:
        return None
    return Reason("heartbeat", age, timeout, f"no heartbeat for {age:.1f} s, the limit is {timeout:g} s")


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
    missing_heartbeats,
)


def judge(evidence: Evidence, policy: Policy, baseline: Baseline = NO_BASELINE) -> Verdict:
    """Run every detector; one reason is enough for ``excessive``."""
    reasons = tuple(reason for detect in DETECTORS if (reason := detect(evidence, policy, baseline)))
    if reasons:
        return Verdict(reasons, is_old=_is_old(reasons, evidence, policy), cause=_cause(reasons, evidence))
    return Verdict(spared=_spared(evidence, policy, baseline))


def _is_old(reasons: tuple[Reason, ...], evidence: Evidence, policy: Policy) -> bool:
    """Whether only errors speak against the app, and all of them are old."""
    if any(reason.rule in STANDING for reason in reasons):
        return False
    ages = [age_s for age_s in (evidence.newest_age_s, evidence.failed_age_s) if age_s is not None]
    return bool(ages) and min(ages) > max(RECENT_S, policy.check_interval_s)


def _spared(evidence: Evidence, policy: Policy, baseline: Baseline) -> str:
    """Which errors have reached a configured limit, and why they do not count; empty if none have."""
    counts = [(evidence.errors, policy.error_limit, "")]
    counts += [(evidence.kinds.get(kind, 0), limit, f" of kind {kind}") for kind, limit in policy.kind_limits]
    for count, limit, what in counts:
        if count >= limit > 0:
            of_all = (evidence, policy, baseline)
            effective = effective_limit(limit, *of_all) if what else limit_of_errors(*of_all)
            sentence = f"{_errors(count)}{what} in {evidence.window_s} s reach the limit of {limit}"
            return f"{sentence}, but here the limit is {effective.limit}: {effective.why}"
    return ""


def _cause(reasons: tuple[Reason, ...], evidence: Evidence) -> str:
    """The cause in one word: the kind of most errors, or without errors the first detector that fired."""
    if evidence.kinds:
        return max(evidence.kinds, key=lambda kind: (evidence.kinds[kind], kind))
    return reasons[0].rule
