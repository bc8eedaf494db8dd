"""The shipped tests of the Prometheus rules fail when a rule is changed."""

from __future__ import annotations

from pathlib import Path
from typing import Final

import pytest
import yaml

from deploy.prometheus_rules import ALERT_TESTS, ALERTS, RECORDING, cases_of, copied, names
from harness.prometheus import promtool

RECORDING_MUTATIONS: Final = [
    ("max by (namespace, service) (arbiter_fleet_alive)", "sum by (namespace, service) (arbiter_fleet_alive)"),
    ("max by (namespace, service) (arbiter_fleet_suspect)", "sum by (namespace, service) (arbiter_fleet_suspect)"),
    (
        "max by (namespace, service, cause) (\n            arbiter_cause",
        "min by (namespace, service, cause) (\n            arbiter_cause",
    ),
    (
        "arbiter_cause_paused_seconds and on (namespace, service, instance) arbiter_budget_reachable == 1",
        "arbiter_cause_paused_seconds",
    ),
    (', "kind", "(.+)")', ', "phase", "(.+)")'),
    ("sum by (namespace, service) (increase(arbiter_culls", "max by (namespace, service) (increase(arbiter_culls"),
    ("round(sum by (namespace, service) (increase(arbiter_culls_total[10m])))", "sum(arbiter_culls_total)"),
    ("(arbiter_budget_capacity_tokens > 0)", "(arbiter_budget_capacity_tokens)"),
    (" and on (namespace, service, instance) arbiter_budget_reachable == 1", ""),
    ("arbiter_budget_reachable == 1", "arbiter_budget_reachable"),
    (
        "max by (namespace, service) (\n            arbiter_budget_used",
        "sum by (namespace, service) (\n            arbiter_budget_used",
    ),
    ("or service:arbiter_budget_capacity:tokens * 0", ""),
    ("max by (namespace, service, outcome)", "sum by (namespace, service, outcome)"),
    ("(arbiter_lifetime_due_timestamp_seconds > 0)", "arbiter_lifetime_due_timestamp_seconds"),
    ('(up{job="health-arbiter"})', "(up)"),
]

ALERT_MUTATIONS: Final = [
    ("ArbiterCulls", "increase10m > 0", "increase10m >= 0"),
    ("ArbiterBudgetHalf", "ratio >= 0.5 < 0.8", "ratio >= 0.4 < 0.8"),
    ("ArbiterBudgetHalf", "ratio >= 0.5 < 0.8", "ratio >= 0.5"),
    ("ArbiterBudgetHalf", "tokens > 1", "tokens > 0"),
    ("ArbiterBudgetLow", "ratio >= 0.8 < 1", "ratio >= 0.7 < 1"),
    ("ArbiterBudgetLow", "ratio >= 0.8 < 1", "ratio >= 0.8"),
    ("ArbiterBudgetEmpty", "ratio >= 1", "ratio >= 0.9"),
    ("ArbiterBudgetEmpty", "tokens > 1", "tokens > 0"),
    ("ArbiterCullsPaused", "seconds > 0", "seconds >= 0"),
    ("ArbiterCullsPaused", "unless on (namespace, service, cause)", "unless on (namespace, service)"),
    ("ArbiterCullsPaused", "unless on (namespace, service, cause) service:arbiter_cause_shared:max == 1", ""),
    ("ArbiterCullsPausedForMost", "seconds > 0", "seconds >= 0"),
    ("ArbiterCullsPausedForMost", "and on (namespace, service, cause)", "and on (namespace, service)"),
    ("ArbiterCullsDoNotHelp", '{outcome="unhelped"}) >= 2', '{outcome="unhelped"}) >= 1'),
    ("ArbiterCullsDoNotHelp", ">= on (namespace, service)", "> on (namespace, service)"),
    ("ArbiterNotHonoured", "seconds) > 600", "seconds) > 60"),
    ("ArbiterNotHonoured", "== 1\n            or", ">= 0\n            or"),
    ("ArbiterNotReplaced", "for: 8m", "for: 4m"),
    ("ArbiterNotReplaced", "max > 0", "max >= 0"),
    ("ArbiterActionFailed", '(increase(arbiter_actions_total{outcome="failed"}[10m]))', "(arbiter_actions_total)"),
    ("ArbiterActionFailed", '{outcome="failed"}', ""),
    ("ArbiterSuspectsWithoutToken", "count > 0.2", "count > 0.1"),
    ("ArbiterSuspectsWithoutToken", "sum >= 2", "sum >= 1"),
    ("ArbiterSuspectsWithoutToken", "for: 5m", "for: 2m"),
    ("ArbiterHeldLong", "for: 4h", "for: 2h"),
    ("ArbiterRetirementBehind", "seconds > 1800", "seconds > 1200"),
    ("ArbiterRedisUnreachable", "ratio < 0.5", "ratio <= 0.5"),
    ("ArbiterRedisUnreachable", "for: 5m", "for: 2m"),
    ("ArbiterRedisUnreachableForSome", "ratio >= 0.5 < 1", "ratio < 1"),
    ("ArbiterRedisUnreachableForSome", "for: 5m", "for: 2m"),
    ("ArbiterDataLoss", "(increase(arbiter_data_losses_total[10m]))", "(arbiter_data_losses_total)"),
    ("ArbiterPoliciesDiffer", "for: 15m", "for: 5m"),
    ("ArbiterSidecarAbsent", "[2m]", "[30s]"),
    ("ArbiterSidecarAbsent", "offset 2m) == 0", "offset 15s) == 0"),
    ("ArbiterSidecarAbsent", '{job="health-arbiter"}', ""),
    ("ArbiterSidecarsUnknown", 'absent(up{job="health-arbiter"})', 'absent(up{job="health-arbiter"} == 1)'),
    ("ArbiterSidecarStuck", "seconds) > 90", "seconds) > 30"),
    ("ArbiterSidecarStuck", "for: 1m", "for: 0m"),
    ("ArbiterNobodyPolls", ") > 600", ") > 60"),
    ("ArbiterNobodyPolls", "increase5m > 0", "increase5m >= 0"),
    ("ArbiterAppScrapeFails", "ratio10m > 0.5", "ratio10m >= 0.5"),
    ("ArbiterAppScrapeFails", "for: 5m", "for: 1m"),
    ("ArbiterEventsDropped", "(increase(arbiter_events_dropped_total[10m]))", "(arbiter_events_dropped_total)"),
    ("ArbiterMessagesFail", "offset 10m", "offset 1h"),
    ("ArbiterMessagesFail", 'outcome="dropped"', 'outcome=~"failed|dropped"'),
    ("ArbiterCertificateExpires", "7 * 86400", "8 * 86400"),
    ("ArbiterCertificateExpires", " > 0)", ")"),
    ("ArbiterStandbyMissing", "== 0\n", "<= 1\n"),
    ("ArbiterStandbyMissing", "[5m]", "[2m]"),
    ("ArbiterInternalFailures", "(increase(arbiter_failures_total[10m]))", "(arbiter_failures_total)"),
]
"""Alert, a part of its rule, and a change of that part after which the tests of the alert must fail."""


@pytest.mark.site
@pytest.mark.parametrize(("as_shipped", "changed"), RECORDING_MUTATIONS, ids=[row[1] for row in RECORDING_MUTATIONS])
def test_shipped_tests_fail_with_a_changed_recording_rule(as_shipped: str, changed: str, tmp_path: Path) -> None:
    directory = copied(tmp_path)
    copy = directory / RECORDING.name
    assert as_shipped in copy.read_text()
    copy.write_text(copy.read_text().replace(as_shipped, changed))
    assert _is_seen(promtool("test", "rules", directory / "recording.test.yml"))


@pytest.mark.site
@pytest.mark.parametrize(
    ("alert", "as_shipped", "changed"), ALERT_MUTATIONS, ids=[f"{row[0]}: {row[2]}" for row in ALERT_MUTATIONS]
)
def test_shipped_tests_fail_with_a_changed_alert(alert: str, as_shipped: str, changed: str, tmp_path: Path) -> None:
    directory = copied(tmp_path)
    copy, tests = directory / ALERTS.name, directory / "alerts.test.yml"
    before, head, after = copy.read_text().partition(f"- alert: {alert}\n")
    rule, next_one, rest = after.partition("- alert:")
    assert as_shipped in rule
    text = before + head + rule.replace(as_shipped, changed) + next_one + rest
    groups = [
        {**group, "rules": [each for each in group["rules"] if each["alert"] == alert]}  # the others only take time
        for group in yaml.safe_load(text)["groups"]
    ]
    copy.write_text(yaml.safe_dump({"groups": groups}))
    tests.write_text(ALERT_TESTS.partition("  - name: ")[0] + cases_of(alert))
    assert _is_seen(promtool("test", "rules", tests))


def _is_seen(complaints: str) -> bool:
    """Whether the tests found another result than the expected one, and not a rule that cannot be read."""
    return "FAILED" in complaints and "exp:" in complaints


def test_every_alert_has_a_mutation() -> None:
    assert {alert for alert, _, _ in ALERT_MUTATIONS} == set(names(ALERTS, "alert"))
