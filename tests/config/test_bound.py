"""The bound on culls has the same words wherever the budget is named, with the reader's own numbers if known."""

from __future__ import annotations

import re
import time
from pathlib import Path
from typing import Any, Final

import pytest

from sidecar.cli import application, fleet_command
from sidecar.config.load import declared, load
from sidecar.config.settings import BudgetConfig
from sidecar.core.fleet.fleet_settings import FleetSettings, limits

TOP: Final = Path(__file__).parents[2]
BOUND: Final = "at most N culls in any window, or 3N with refunds"
OF_TEN: Final = "at most 10 culls in any window, or 30 with refunds"
PAGES: Final = (
    "README.md",
    *(f"deploy/{name}" for name in ("settings.md", "fleet.md", "tuning.md", "runbooks.md")),
    "deploy/arbiter.env.example",
)


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ({}, OF_TEN),
        ({"budget": "1"}, "at most 1 cull in any window, or 3 with refunds"),
        ({"budget": "5%"}, BOUND),
        ({"refund": "off"}, "at most 10 culls in any window"),
        ({"refund": "off", "budget": "5%"}, "at most N culls in any window"),
        ({"budget_strategy": "previous"}, "at most 19 culls in any window"),
        ({"budget_strategy": "previous", "budget": "5%"}, "at most 2N - 1 culls in any window"),
        ({"budget_strategy": "fixed"}, "at most 20 culls in any window"),
        ({"preset": "classdojo", "budget": "5%"}, "at most 2N culls in any window"),
    ],
    ids=str,
)
def test_bound_follows_the_settings(given: dict[str, str], expected: str) -> None:
    assert load({"redis_url": "redis://host", **given}, {}).budget.bound() == expected


@pytest.mark.parametrize("tokens", [1, 4, 40])
def test_bound_of_a_percentage_is_what_the_fleet_decides_by(tokens: int) -> None:
    decided = limits([FleetSettings(capacity=str(tokens), refund_max=0)], 100)
    assert (decided.capacity, decided.refund_max) == (tokens, 3 * tokens)
    assert BudgetConfig(budget="5%").bound(tokens).startswith(f"at most {decided.capacity} cull")
    assert BudgetConfig(budget="5%").bound(tokens).endswith(f", or {decided.refund_max} with refunds")


@pytest.mark.parametrize("page", PAGES)
def test_page_that_names_the_budget_has_the_words(page: str) -> None:
    text = re.sub(r"\s+(# )?", " ", (TOP / page).read_text())
    assert BOUND in text


def test_every_part_that_names_the_budget_has_the_words() -> None:
    assert BOUND in declared()["budget"].sentence
    seen: dict[str, Any] = {"service": "web", "mode": "enforce", "fleet": None, "bound": OF_TEN, "holds": []}
    assert OF_TEN in "\n".join(fleet_command.head({**seen, "local_hold": None}, time.time()))


def test_check_config_has_the_words_beside_the_budget(capsys: pytest.CaptureFixture[str]) -> None:
    assert application.run(["check-config"], {"ARBITER_ALONE": "true"}) == 0
    assert f"ARBITER_BUDGET=10  # from default: {OF_TEN}" in capsys.readouterr().out.splitlines()
