"""``--fail-if``: limits of figures as text."""

from __future__ import annotations

from typing import Any

import pytest

from sidecar.cli.figure_limits import FigureLimit, broken

COLUMN: dict[str, Any] = {
    "rules": "yours",
    "culls": 4,
    "budget_use": 0.7,
    "time_to_cull_s": None,
    "culls_by_need": {"healthy": 2},
}


@pytest.mark.parametrize(
    ("text", "sentences"),
    [
        ("culls > 4", []),
        ("culls>=4", ["yours: culls is 4 (--fail-if 'culls>=4')"]),
        ("budget_use < 0.75", ["yours: budget_use is 0.7 (--fail-if 'budget_use < 0.75')"]),
        ("culls_by_need.healthy == 2", ["yours: culls_by_need.healthy is 2 (--fail-if 'culls_by_need.healthy == 2')"]),
        ("culls <= 3", []),
        ("time_to_cull_s > 1", []),
    ],
)
def test_limit_is_compared_with_the_figure(text: str, sentences: list[str]) -> None:
    assert broken([FigureLimit.parse(text)], [COLUMN]) == sentences


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("culls", "'culls' is no limit: write a figure of --json, a comparison and a number"),
        ("culls > many", "is no limit"),
        ("cull > 3", "cull: no such figure; there are culls, budget_use"),
        ("rules > 3", "rules: is no number"),
    ],
)
def test_unusable_limit_is_named(text: str, sentence: str) -> None:
    with pytest.raises(ValueError, match=sentence):
        broken([FigureLimit.parse(text)], [COLUMN])
