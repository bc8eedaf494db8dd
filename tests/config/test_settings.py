"""What the settings say of themselves: the bound on culls, in the same words everywhere; the place in the rollout."""

from __future__ import annotations

import re
import shutil
import subprocess
import time
from itertools import pairwise
from pathlib import Path
from typing import Any, Final

import pytest

from sidecar.app import build_store
from sidecar.cli import application, fleet_command
from sidecar.config.load import declared, load
from sidecar.config.settings import BudgetConfig, IdentityConfig
from sidecar.core.fleet.fleet_settings import FleetSettings, limits

# -- the bound on culls ----------------------------------------------------------------------------------------------


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
    answer: dict[str, Any] = {"service": "web", "mode": "enforce", "fleet": None, "bound": OF_TEN, "holds": []}
    assert OF_TEN in "\n".join(fleet_command.head({**answer, "local_hold": None}, time.time()))


def test_check_config_has_the_words_beside_the_budget(capsys: pytest.CaptureFixture[str]) -> None:
    assert application.run(["check-config"], {"ARBITER_ALONE": "true"}) == 0
    assert f"ARBITER_BUDGET=10  # from default: {OF_TEN}" in capsys.readouterr().out.splitlines()


# -- the place in the rollout ----------------------------------------------------------------------------------------


INSTANCES = [f"web-{number}" for number in range(1_000)]


def _named(service: str, instance: str, percent: int = 100) -> IdentityConfig:
    return IdentityConfig(service=service, instance=instance, mode="enforce", enforce_percent=percent)


def _at(place: int) -> str:
    """An instance of the service ``app`` with this place."""
    return next(name for name in INSTANCES if _named("app", name).place == place)


@pytest.mark.parametrize(
    ("service", "instance", "place"),
    [("app", "web-0", 72), ("app", "web-1", 3), ("shop.web", "web-1", 81), ("app", "", 69)],
)
def test_place_never_changes(service: str, instance: str, place: int) -> None:
    assert _named(service, instance).place == place


def test_line_for_the_shell_says_the_same_wherever_it_stands() -> None:
    shell = shutil.which("bash")
    assert shell is not None
    (line,) = (line.strip() for line in (IdentityConfig.place.__doc__ or "").splitlines() if "sha256sum" in line)
    assert line in (TOP / "deploy" / "access.md").read_text()
    environ = {"SERVICE": "app", "INSTANCE": "web-0"}
    ran = subprocess.run([shell, "-c", line], env=environ, capture_output=True, text=True, check=True)
    assert int(ran.stdout) == _named("app", "web-0").place


def test_higher_percentage_only_adds_containers() -> None:
    parts = [
        {name for name in INSTANCES if _named("app", name, percent).own_mode == "enforce"} for percent in range(101)
    ]
    assert all(less <= more for less, more in pairwise(parts))
    assert (parts[0], parts[100]) == (set(), set(INSTANCES))


@pytest.mark.parametrize(
    ("mode", "percent", "place", "effective", "has_other"),
    [
        ("enforce", 100, 99, "enforce", False),
        ("enforce", 50, 49, "enforce", True),
        ("enforce", 50, 50, "shadow", True),
        ("enforce", 0, 0, "shadow", True),
        ("shadow", 100, 0, "shadow", True),
    ],
)
def test_each_container_has_its_mode_and_each_mode_a_budget_of_its_own(
    mode: str, percent: int, place: int, effective: str, *, has_other: bool
) -> None:
    config = load({"mode": mode, "alone": "true", "enforce_percent": str(percent), "instance": _at(place)}, {})
    assert (config.identity.mode, config.identity.enforce_percent) == (effective, percent)
    assert config.identity.has_other_mode is has_other, "the others of the service may be in the other mode"
    assert build_store.prefix(config) == f"{{ha:default/app}}{':shadow' if effective == 'shadow' else ''}"
