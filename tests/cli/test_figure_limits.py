"""``--fail-if``: limits of figures as text."""

from __future__ import annotations

from typing import Any

import pytest

from sidecar.cli.figure_limits import FigureLimit, broken, check
from sidecar.simulation import day_report, sweep

COLUMN: dict[str, Any] = {
    "rules": "yours",
    "culls": 4,
    "budget_use": 0.7,
    "time_to_cull_s": None,
    "culls_by_need": {"healthy": 2},
    "culls_by_cause": {"502": 3},
    "refused_claims": {"trial": 1},
    "avoidable_less_than": {"do nothing": 7},
}


@pytest.mark.parametrize(
    ("text", "sentences"),
    [
        ("culls > 4", []),
        ("culls>=4", ["yours: culls is 4 (--fail-if 'culls>=4')"]),
        ("budget_use < 0.75", ["yours: budget_use is 0.7 (--fail-if 'budget_use < 0.75')"]),
        ("culls_by_need.healthy == 2", ["yours: culls_by_need.healthy is 2 (--fail-if 'culls_by_need.healthy == 2')"]),
        ("culls <= 3", []),
        ("time_to_cull_s.max > 1", []),
        ("culls_by_cause.502 > 2", ["yours: culls_by_cause.502 is 3 (--fail-if 'culls_by_cause.502 > 2')"]),
        ("culls_by_cause.db-main.timeout > 0", []),
        ("refused_claims.window > 0", []),
        ("refused_claims.window == 0", ["yours: refused_claims.window is 0 (--fail-if 'refused_claims.window == 0')"]),
        (
            "avoidable_less_than.do nothing<8",
            ["yours: avoidable_less_than.do nothing is 7 (--fail-if 'avoidable_less_than.do nothing<8')"],
        ),
    ],
)
def test_limit_is_compared_with_the_figure(text: str, sentences: list[str]) -> None:
    assert broken([FigureLimit.parse(text)], [COLUMN]) == sentences


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("culls", "'culls' is no limit: write a figure of --json, a comparison and a number"),
        ("culls > many", "is no limit"),
        ("cull > 3", "cull: no such figure; did you mean culls"),
        ("culls_by_need.healty > 3", "culls_by_need.healty: no such figure; did you mean healthy"),
        ("refused_claims.windw > 3", "refused_claims.windw: no such figure; did you mean window"),
        ("culls_by_need > 3", "culls_by_need: is no number: write one of its keys behind a point; there are healthy"),
        ("rules > 3", "rules: is no number"),
        ("culls.x > 3", "culls: has no keys such as x"),
    ],
)
def test_unusable_limit_is_named(text: str, sentence: str) -> None:
    with pytest.raises(ValueError, match=sentence):
        broken([FigureLimit.parse(text)], [COLUMN])


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("time_to_cull_s.maximum > 3", "time_to_cull_s.maximum: no such figure; did you mean max"),
        ("each_cull > 3", "each_cull: is no number"),
        ("culls_of_healthy > 3", "culls_of_healthy: no such figure"),
    ],
)
def test_unknown_name_is_refused_without_a_run(text: str, sentence: str) -> None:
    """Neither a run without culls nor one of a single column has all names."""
    known = ["time_to_cull_s.max > 30", "refused_claims.window > 0", "avoidable_less_than.do nothing < 1"]
    check([FigureLimit.parse(one) for one in known], day_report.example())
    with pytest.raises(ValueError, match=sentence):
        check([FigureLimit.parse(text)], day_report.example())


def test_figures_of_a_sweep_are_others() -> None:
    check([FigureLimit.parse("culls_of_healthy > 3")], sweep.flat(day_report.example()))
