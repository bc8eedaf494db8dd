"""How to choose your numbers: every command of the page runs as it is written, and the page says what it prints.

What the page says of the whole log is compared at the site: that takes a minute and a half. Here the commands that play
the log have some minutes of it.
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
PROPOSALS = [words for words in COMMANDS if "--suggest" in words]
SWEEP = next(words for words in COMMANDS if "--sweep" in words)
WHOLE = [*PROPOSALS, SWEEP]


@pytest.fixture(scope="module")
def short(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A directory with the files that the page shows, and some minutes of the log."""
    path = tmp_path_factory.mktemp("short")
    tuning_page.lay_out(path, minutes=range(18, 24))
    return path


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The same with the whole log."""
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


def by_rules(found: dict[str, Any]) -> dict[str, dict[str, Any]]:
    return {one["rules"]: one for one in found["rules"]}


def test_page_has_commands_of_both_kinds() -> None:
    assert {words[0] for words in COMMANDS} == {"simulate", "backtest"}


@pytest.mark.parametrize("words", [words for words in COMMANDS if words not in WHOLE], ids=" ".join)
def test_command_runs_as_it_is_written(words: list[str], short: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert answers(words, short, capsys)["rules"]


@pytest.mark.site
def test_page_names_the_limit_that_the_log_proposes_and_its_day_has_what_was_measured(
    whole: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    measured = next(words for words in PROPOSALS if words[0] == "backtest")
    found = answers(measured, whole, capsys)
    assert re.findall(r"proposes `error_limit = (\d+)`", page()) == [str(found["error_limit"])]
    day = tuning_page.PAGE.read_text()
    assert re.findall(r"# ours.toml\nerror_limit = (\d+)", day) == [str(found["error_limit"])]
    for key in ("requests_per_second", "background_errors"):
        assert re.findall(rf"^{key} = (\S+)", day, re.MULTILINE) == [f"{found[key]:.3g}"]
    assert re.findall(r"^containers = (\d+)", day, re.MULTILINE) == [str(found["containers"])]


@pytest.mark.site
def test_page_names_the_budget_that_its_day_proposes(whole: Path, capsys: pytest.CaptureFixture[str]) -> None:
    made_up = next(words for words in PROPOSALS if words[0] == "simulate")
    found = answers(made_up, whole, capsys)
    assert "finds the same limit" in page()
    assert f"proposes `error_limit = {found['error_limit']}`" in page()
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


CLAIMS = (
    "The article's rule culls more than a hundred times in these two hours, the defaults five to eight times.",
    "With `five` about half of the culls or more are for 502, the errors that every healthy container has now",
    "With `ours` none is, and the stuck containers are culled within a minute all the same.",
)
"""What the next two tests are about."""


def test_page_claims_what_is_compared_with_the_whole_log() -> None:
    assert [claim for claim in CLAIMS if claim not in page()] == []


@pytest.mark.site
def test_page_says_how_often_each_rule_culls(whole: Path, capsys: pytest.CaptureFixture[str]) -> None:
    found = by_rules(answers(COMMANDS[0], whole, capsys))
    assert all(found[f"article, {reading}"]["culls"] > 100 for reading in ("optimistic", "pessimistic"))
    assert all(5 <= found[reading]["culls"] <= 8 for reading in ("optimistic", "pessimistic"))


@pytest.mark.site
def test_page_says_what_the_two_files_cull_for(whole: Path, capsys: pytest.CaptureFixture[str]) -> None:
    found = by_rules(answers(next(words for words in COMMANDS if "--compare" in words), whole, capsys))
    for reading in ("optimistic", "pessimistic"):
        five, ours = found[f"five, {reading}"], found[f"ours, {reading}"]
        assert five["culls_by_cause"]["502"] > 0.4 * five["culls"]
        assert "502" not in ours["culls_by_cause"]
        first = {name: next(one["at_s"] for one in ours["each_cull"] if one["name"] == name) for name in BEGUN_S}
        assert all(first[name] - begun_s <= 60 for name, begun_s in BEGUN_S.items()), "within a minute, it says"


BEGUN_S = {"web-3": 20 * 60.0, "web-7": 95 * 60.0}
"""When the stuck containers of the log got stuck."""


@pytest.mark.site
def test_limit_of_the_pipeline_is_kept_by_the_whole_log(whole: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert answers(next(words for words in COMMANDS if "--fail-if" in words), whole, capsys)


def test_every_picture_of_the_page_is_made_by_it_and_is_small() -> None:
    shown = {path.name for path in tuning_page.IMAGES.glob("*.png")}
    assert shown == tuning_page.PICTURES.keys()
    assert all(f"](images/{name})" in tuning_page.PAGE.read_text() for name in shown)
    assert all((tuning_page.IMAGES / name).stat().st_size < 100_000 for name in shown)
