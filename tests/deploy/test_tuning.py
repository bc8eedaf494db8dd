"""How to choose your numbers: every command of the page runs as it is written, and the page says what it prints.

What the page says of its day is compared at the site: that takes a minute.
"""

from __future__ import annotations

import json
import re
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from deploy import tuning_page
from sidecar.cli import application

COMMANDS = tuning_page.commands()
LIMIT, BUDGET, SWEEP = COMMANDS


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A directory with the files that the page shows, and the shipped log."""
    path = tmp_path_factory.mktemp("whole")
    tuning_page.lay_out(path)
    return path


@cache
def page() -> str:
    """The text of the page, each paragraph in one line."""
    return re.sub(r"(?<!\n)\n(?!\n)", " ", tuning_page.PAGE.read_text())


def answers(words: list[str], directory: Path, capsys: pytest.CaptureFixture[str]) -> dict[str, Any]:
    """The JSON of a command of the page, run in this directory."""
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(directory)
        assert application.run([*words, "--json"], {}) == 0, capsys.readouterr().err
    found: dict[str, Any] = json.loads(capsys.readouterr().out)
    for file in words[words.index("--html") + 1 :][:1] if "--html" in words else []:
        assert (directory / file).read_text().startswith("<!DOCTYPE html>")
    return found


def test_page_names_the_limit_that_the_log_proposes(whole: Path, capsys: pytest.CaptureFixture[str]) -> None:
    found = answers(LIMIT, whole, capsys)
    assert re.findall(r"names `ARBITER_ERROR_LIMIT=(\d+)`", page()) == [str(found["error_limit"])]
    times = {row["limit"]: row["reached"] for row in found["limits"]}
    assert f"a limit of 5, as in the article, is reached {times[5]} times in these two hours" in page()
    assert re.findall(r"^containers = (\d+)", tuning_page.PAGE.read_text(), re.MULTILINE) == [str(found["containers"])]


@pytest.mark.site
def test_page_names_the_budget_that_its_day_proposes(whole: Path, capsys: pytest.CaptureFixture[str]) -> None:
    found = answers(BUDGET, whole, capsys)
    assert "finds the same limit" in page()
    assert f"names `ARBITER_ERROR_LIMIT={found['error_limit']}`" in page()
    assert re.findall(r"`budget = (\d+)`, the smallest that is enough", page()) == [str(found["budget"])]
    assert {found["budget"] - 1: False, found["budget"]: True}.items() <= {
        row["budget"]: row["is_enough"] for row in found["budgets"]
    }.items()


@pytest.mark.site
def test_page_says_what_more_budget_brings(whole: Path, capsys: pytest.CaptureFixture[str]) -> None:
    rows = answers(SWEEP, whole, capsys)["rows"]
    (few,) = re.findall(r"a budget of (\d+) costs requests", page())
    (enough,) = re.findall(r"more than (\d+) saves none", page())
    failed = {tuple(row["settings"].values()): row["figures"]["avoidable_failed_requests"] for row in rows}
    limits, budgets = ({pair[axis] for pair in failed} for axis in (0, 1))
    assert {int(few), int(enough)} < budgets
    for limit in limits:
        assert failed[limit, int(few)] > failed[limit, int(enough)] == failed[limit, max(budgets)]


def test_every_picture_of_the_page_is_made_by_it_and_is_small() -> None:
    shown = {path.name for path in tuning_page.IMAGES.glob("*.png")}
    assert shown == tuning_page.PICTURES.keys()
    assert all(f"](images/{name})" in tuning_page.PAGE.read_text() for name in shown)
    assert all((tuning_page.IMAGES / name).stat().st_size < 100_000 for name in shown)
