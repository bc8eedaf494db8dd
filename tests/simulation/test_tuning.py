"""``simulate`` with ``--sweep``, ``--suggest``, ``--fail-if`` and ``--html``: choosing the numbers of a fleet."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from sidecar.cli import application
from sidecar.cli.exit_codes import EXIT_FAILED, EXIT_USAGE
from sidecar.simulation import suggestion, sweep
from sidecar.simulation.sweep import SweepError

pytestmark = pytest.mark.site
DAY = """
duration = "12m"
[fleet]
containers = 4
background_errors = 0.0005
[[incident]]
kind = "lone_stuck"
at = "2m"
every = "3m"
count = 2
"""


@pytest.fixture
def day(tmp_path: Path) -> str:
    path = tmp_path / "six.toml"
    path.write_text(DAY)
    return str(path)


def answers(capsys: pytest.CaptureFixture[str], *words: str) -> dict[str, Any]:
    assert application.run(["simulate", *words, "--json"], {}) == 0
    found: dict[str, Any] = json.loads(capsys.readouterr().out)
    return found


# -- sweeps -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "tried"),
    [
        ("budget=5", [{"budget": 5}]),
        ("budget=5..7", [{"budget": 5}, {"budget": 6}, {"budget": 7}]),
        ("budget=5..9:2", [{"budget": 5}, {"budget": 7}, {"budget": 9}]),
        ("budget=5,8%", [{"budget": 5}, {"budget": "8%"}]),
        ("budget=5,5", [{"budget": 5}]),
        (
            "error_limit=3,4,refund=on,off",
            [{"error_limit": limit, "refund": refund} for limit in (3, 4) for refund in ("on", "off")],
        ),
    ],
)
def test_sweep_tries_every_combination(text: str, tried: list[dict[str, Any]]) -> None:
    assert sweep.parse(text) == tried


def test_values_of_a_long_range_are_each_the_same_multiple_of_the_one_before() -> None:
    assert [one["error_limit"] for one in sweep.parse("error_limit=3..50")] == [3, 4, 7, 10, 15, 22, 33, 50]


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("5", "'5' is no setting with values"),
        ("budget=", "'budget=' is no setting with values"),
        ("budget=9..5", "'9..5' is an empty range"),
        ("budget=5..x", "'5..x' is no range"),
        ("budget=5..9:0", "'5..9:0' is an empty range"),
        ("budget=1..9999999:1", "has more than 2000 values"),
        ("budget=5,budget=6", "budget is given twice"),
    ],
)
def test_bad_sweep_is_one_sentence_that_names_the_place(text: str, sentence: str) -> None:
    with pytest.raises(SweepError, match=r"^'") as caught:
        sweep.parse(text)
    assert sentence in str(caught.value)


def test_mean_over_seeds_leaves_out_what_a_seed_does_not_have() -> None:
    rows: list[dict[str, float | None]] = [{"culls": 1, "time_to_cull_longest_s": 9.0}]
    rows.append({"culls": 2, "time_to_cull_longest_s": None})
    assert sweep.over_seeds(rows) == {"culls": 1.5, "time_to_cull_longest_s": 9.0}


def test_sweep_has_the_same_figures_on_one_core_and_on_two(day: str, capsys: pytest.CaptureFixture[str]) -> None:
    words = [day, "--sweep", "error_limit=5,40", "--seeds", "2", "--seed", "3"]
    found = answers(capsys, *words, "--cores", "1")
    assert found == answers(capsys, *words, "--cores", "2")
    assert (found["kind"], found["swept"], found["seeds"]) == ("sweep", ["error_limit"], [3, 4])
    strict, loose = (row["figures"] for row in found["rows"])
    assert strict["culls_of_stuck"] == loose["culls_of_stuck"] == 2
    assert strict["time_to_cull_longest_s"] < loose["time_to_cull_longest_s"]
    assert strict["avoidable_failed_requests"] < loose["avoidable_failed_requests"]


# -- suggestions ------------------------------------------------------------------------------------------------------


def test_suggestion_is_the_least_limit_over_the_noise_that_still_culls_in_time(
    day: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    page = tmp_path / "page.html"
    found = answers(capsys, day, "--suggest", "--html", str(page))
    by_limit = {row["error_limit"]: row for row in found["limits"]}
    chosen = by_limit[found["error_limit"]]
    assert found["usual_errors"] == 0.3
    assert chosen["is_met"]
    assert chosen["reached_by_noise_per_month"] < suggestion.NOISE_PER_MONTH
    assert chosen["time_to_cull_longest_s"] <= suggestion.TIME_TO_CULL_S
    assert not any(row["is_met"] for limit, row in by_limit.items() if limit < found["error_limit"])
    enough = {row["budget"]: row["is_enough"] for row in found["budgets"]}
    assert enough[found["budget"]]
    assert found["budget"] == 1 or not enough[found["budget"] - 1], "the next smaller one was tried too"
    assert f"error_limit = {found['error_limit']}" in found["sentence"]
    assert "<svg" in page.read_text()


def test_text_tells_noise_at_the_limit_from_culls(day: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert application.run(["simulate", day, "--suggest"], {}) == 0
    _, _, head, *rows = capsys.readouterr().out.splitlines()
    assert "noise reaches it, times a month" in head
    assert "healthy culled, 15m played" in head
    low = next(row.split() for row in rows if row.split()[0] == "2")
    assert float(low[1].replace(",", "")) > 1000, "chance alone reaches it all the time"
    assert low[3] == "0", "and the comparison with the fleet spares them"


@pytest.mark.parametrize("name", ["lone", "stuck"])
def test_nothing_is_suggested_from_no_background_errors(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert application.run(["simulate", name, "--suggest"], {}) == EXIT_USAGE
    assert f"{name}.toml: [fleet]: background_errors: must be given for --suggest" in capsys.readouterr().err


def row(budget: int, *, is_enough: bool) -> dict[str, Any]:
    return {"budget": budget, "is_enough": is_enough}


@pytest.mark.parametrize(
    ("enough", "between"),
    [
        ({1: True, 2: True}, None),
        ({1: False, 2: True}, None),
        ({1: False, 2: False, 5: True}, 3),
        ({1: False, 2: False, 3: False, 5: True}, 4),
        ({4: True}, 2),
        ({1: False}, None),
    ],
    ids=str,
)
def test_budget_is_sought_between_too_small_and_enough(enough: dict[int, bool], between: int | None) -> None:
    rows = [row(budget, is_enough=is_enough) for budget, is_enough in enough.items()]
    assert suggestion.budget_between(rows) == between


@pytest.mark.parametrize(
    ("limits", "sentence"),
    [
        ([(3, 900.0, 4.0)], "No tried limit is over the noise"),
        (
            [(3, 900.0, 4.0), (40, 0.1, 60.0)],
            "noise hardly ever reaches 40 errors, but a lone stuck container lasts up to",
        ),
        ([(40, 0.1, None)], "is never culled"),
    ],
)
def test_no_suggestion_says_why(limits: list[tuple[int, float, float | None]], sentence: str) -> None:
    rows = [
        {
            "error_limit": limit,
            "reached_by_noise_per_month": noise,
            "time_to_cull_longest_s": longest_s,
            "is_met": False,
        }
        for limit, noise, longest_s in limits
    ]
    result: dict[str, Any] = {
        "error_limit": None,
        "budget": None,
        "window_s": 60.0,
        "limits": rows,
        "usual_errors": 3.0,
    }
    assert sentence in suggestion.sentence(result)
    assert "Usual errors of a healthy container: 3 in 60 s." in suggestion.sentence(result)


# -- limits of figures ------------------------------------------------------------------------------------------------


def test_fail_if_names_the_figure_and_the_expression(day: str, capsys: pytest.CaptureFixture[str]) -> None:
    words = ["simulate", day, "--no-article", "--fail-if", "culls > 1", "--fail-if", "culls_by_need.healthy > 0"]
    assert application.run(words, {}) == EXIT_FAILED
    assert capsys.readouterr().err == "health-arbiter: yours: culls is 2 (--fail-if 'culls > 1')\n"


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (["--fail-if", "culls is 3"], "--fail-if: 'culls is 3' is no limit"),
        (["--sweep", "error_limit=x"], "[settings]: error_limit: "),
        (["--sweep", "error_limt=5"], "error_limt: unknown setting; did you mean error_limit?"),
        (["--sweep", "error_limit=1..1500:1,budget=1..20:1"], "more than 2000 runs"),
        (["--sweep", "budget=5", "--suggest"], "cannot be given together"),
        (["--sweep", "mode=shadow,enforce"], "mode: changes nothing in a simulation"),
        (["--sweep", "budget=5,6,log_level=info,debug"], "log_level: changes nothing in a simulation"),
        (["--sweep", "error_ratio=0.1,0.2"], "error_ratio: changes nothing here, because the apps report"),
        (["--seeds", "3"], "--seeds: goes with --sweep or --suggest"),
        (["--fail-if", "time_to_cull_s.maximum > 3"], "time_to_cull_s.maximum: no such figure; did you mean max?"),
        (["--suggest", "--fail-if", "culls > 1"], "cannot be given together with --suggest"),
    ],
)
def test_bad_options_are_one_sentence(
    words: list[str], sentence: str, day: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert application.run(["simulate", day, *words], {}) == EXIT_USAGE
    (line,) = capsys.readouterr().err.splitlines()
    assert sentence.removeprefix("[settings]: ") in line
