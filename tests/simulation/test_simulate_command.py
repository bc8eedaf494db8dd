"""``health-arbiter simulate``: its answers, its bad input, and the days that come with it."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from sidecar.cli import application
from sidecar.cli.exit_codes import EXIT_USAGE
from sidecar.simulation import day_file

pytestmark = pytest.mark.site
SMALL = """
duration = "20m"
[fleet]
containers = 12
requests_per_second = 10
spread = 0.1
[[incident]]
kind = "blip"
at = "2m"
count = 4
[[incident]]
kind = "outage"
at = "15m"
for = "2m"
[settings]
mode = "shadow"
budget = 3
refund = "off"
"""


def simulated(capsys: pytest.CaptureFixture[str], *words: str) -> str:
    assert application.run(["simulate", *words], {}) == 0
    return capsys.readouterr().out


def by_rules(capsys: pytest.CaptureFixture[str], *words: str) -> dict[str, dict[str, Any]]:
    return {one["rules"]: one for one in json.loads(simulated(capsys, *words, "--json"))["rules"]}


@pytest.fixture
def day(tmp_path: Path) -> Path:
    path = tmp_path / "small.toml"
    path.write_text(SMALL)
    return path


def test_answers_say_what_is_culled_refused_and_avoided(day: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Four stuck containers and three tokens: the fourth is refused by the budget, as the settings of the day say."""
    found = by_rules(capsys, str(day))
    nothing, yours = found["do nothing"], found["yours"]
    assert (nothing["culls"], nothing["stuck_at_the_end"]) == (0, 4)
    assert yours["culls_by_need"] == {"stuck": 4, "healthy": 0, "sick": 0, "outage": yours["culls"] - 4}
    assert yours["culls_by_cause"] == {"database": yours["culls"]}
    assert yours["most_tokens_in_a_window"] == 3
    assert yours["refused_containers"]["window"] >= 1
    failed = nothing["avoidable_failed_requests"] - yours["avoidable_failed_requests"]
    assert yours["avoidable_less_than"]["do nothing"] == failed > 0
    assert found["article"]["culls_by_need"]["outage"] > 0
    assert all("server errors in 60 s" in cull["reason"] for cull in yours["each_cull"])


def test_same_seed_gives_the_same_answers_in_another_process(day: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = ["simulate", str(day), "--seed", "7", "--no-article"]
    again = subprocess.run(
        [sys.executable, "-m", "sidecar", *words], check=True, capture_output=True, text=True, timeout=120
    )
    assert again.stdout == simulated(capsys, *words[1:])
    assert again.stdout.splitlines()[0] == "small: 12 containers, 20m, seed 7"
    assert "culls per day" not in again.stdout, "there was no day"


def shown_on(terminal: int) -> str:
    """All that is written to a pseudo-terminal until its other side is closed."""
    found = b""
    while True:
        try:
            found += os.read(terminal, 4096)
        except OSError:  # Linux says EIO at the end
            return found.decode()


@pytest.mark.parametrize("cores", ["1", "2"])
def test_terminal_shows_how_far_the_runs_are(
    cores: str, day: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TERM", "xterm")
    ours, theirs = os.openpty()
    with ThreadPoolExecutor(1) as pool, os.fdopen(theirs, "w") as terminal:
        monkeypatch.setattr(sys, "stderr", terminal)
        seen = pool.submit(shown_on, ours)
        simulated(capsys, str(day), "--no-article", "--cores", cores)
        terminal.close()
        text = seen.result(60)
    os.close(ours)
    percent = [int(part) for part in re.findall(r"simulating\b.*?(\d+)%", text)]
    assert percent == sorted(percent)
    assert len(set(percent)) > 20, "a bar that moves"
    assert percent[-1] == 100


def test_two_files_of_settings_are_compared(day: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for name, budget in (("few", 1), ("many", 10)):
        (tmp_path / f"{name}.toml").write_text(f'budget = {budget}\ntoken_file = "/away"\n')
    few, many = (str(tmp_path / f"{name}.toml") for name in ("few", "many"))
    found = by_rules(capsys, str(day), "--compare", few, many, "--no-article")
    assert list(found) == ["do nothing", "few", "many"]
    assert found["few"]["most_tokens_in_a_window"] == 1
    assert found["many"]["most_tokens_in_a_window"] >= 4
    assert found["many"]["avoidable_failed_requests"] < found["few"]["avoidable_failed_requests"]


FLEET = "[fleet]\ncontainers = 3\n"


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("[fleet", "is not TOML: Expected ']' at the end of a table declaration (at end of document)"),
        ("", "[fleet]: containers: is missing"),
        ("[fleet]\ncontainers = true", "[fleet]: containers: True must be a whole number from 1 to 5000"),
        ("fleet = 3", "fleet: must be a table, written [fleet]"),
        ("[fleet]\ncontainers = 3\ncapcity = 2", "[fleet]: capcity: unknown key; did you mean capacity?"),
        ("duration = '1y'\n" + FLEET, "duration: '1y' is not a duration: write a number with ms, s, m, h or d"),
        (FLEET + "background_errors = nan", "[fleet]: background_errors: nan must be a number from 0 to 1"),
        (FLEET + "[[incident]]\nkind = 'outrage'", "[[incident]] 1: kind: 'outrage' is none of lone_stuck, outage"),
        (FLEET + "[[incident]]\nkind = 'wave'\nat = 1\nfor = 9\ncount = 4", "[[incident]] 1: count: 4 must be a whole"),
        (FLEET + "[[incident]]\nkind = 'outage'\nat = '2d'\nfor = 9", "[[incident]] 1: at: must be before the end"),
        (FLEET + "spread = 2", "[fleet]: spread: 2 must be a number from 0 to 1"),
        (FLEET + "capacity = 5", "[fleet]: capacity: 5 must be a number from 10 to 1.25e+06"),
        (
            FLEET + "requests_per_second = 2e6",
            "[fleet]: requests_per_second: 2000000.0 must be a number from 0.001 to 1e+06",
        ),
        (FLEET + "[scheduler]\nreplace = 'soon'", "[scheduler]: replace: 'soon' is not a duration"),
        (FLEET + "[scheduler]\nin_place = 1", "[scheduler]: in_place: 1 must be true or false"),
        (FLEET + "[balancer]\nweights = 'on'", "[balancer]: weights: 'on' must be true or false"),
        (FLEET + "[[incident]]\nkind = 'blip'\nat = 1\nshare = 2", "[[incident]] 1: share: 2 must be a number from 0"),
        (FLEET + "[[incident]]\nkind = 'leak'", "[[incident]] 1: after: is missing"),
        (
            FLEET + "[[incident]]\nkind = 'bad_deploy'\nat = 9\nuntil = 9\ncount = 1",
            "[[incident]] 1: until: must be after",
        ),
        (FLEET + "[settings]\nerror_limit = 'x'", "[settings]: error_limit: "),
        (FLEET + "[settings]\nerror_limt = 4", "[settings]: error_limt: unknown setting; did you mean error_limit?"),
        (FLEET + "[settings]\nearn = 'on'", "[settings]: earn: this setting is called refund since 0.2"),
    ],
)
def test_bad_input_is_one_sentence_with_the_place(
    text: str, sentence: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "bad.toml"
    path.write_text(text)
    assert application.run(["simulate", str(path)], {}) == EXIT_USAGE
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith(f"health-arbiter: {path}: {sentence}")


def test_missing_file_names_the_shipped_days(capsys: pytest.CaptureFixture[str]) -> None:
    assert application.run(["simulate", "nowhere"], {}) == EXIT_USAGE
    assert "the shipped days are bad-deploy, day, flapping," in capsys.readouterr().err


def test_missing_file_of_settings_is_not_taken_for_a_day(day: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert application.run(["simulate", str(day), "--compare", "nowhere.toml", "other.toml"], {}) == EXIT_USAGE
    assert capsys.readouterr().err.strip().endswith("nowhere.toml: cannot be read: no such file or directory")


def test_most_requests_that_a_day_may_have_need_no_other_key(tmp_path: Path) -> None:
    path = tmp_path / "busy.toml"
    path.write_text(FLEET + f"requests_per_second = {day_file.MAX_PER_S}")
    assert day_file.read_day(path).load.per_s == day_file.MAX_PER_S


POLICIES = {
    "day", "long-outage", "lone", "noise", "noise-half-percent", "loud-noise", "noise-two-percent", "outage", "sick",
    "slow-outage", "small-noise", "small-slow-outage", "stuck", "repair-then-outage",
}  # fmt: skip
"""The scenarios by which the rules of the fleet were chosen."""


def test_scenarios_of_the_rules_are_shipped() -> None:
    assert set(day_file.shipped()) >= POLICIES
    loads = {name: day_file.read_day(day_file.find(name)).load.stray for name in POLICIES}
    assert sorted(filter(None, loads.values())) == [0.002, 0.002, 0.005, 0.01, 0.02]


@pytest.mark.parametrize("name", day_file.shipped())
def test_shipped_day_is_read_and_has_usable_settings(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    """The end of each is 15 seconds here: the incidents are planned, the settings validated."""
    day = day_file.read_day(day_file.find(name))
    assert day.incidents or day.load.stray
    assert day.size > 1
    if day.settings:
        simulated(capsys, str(day_file.find(name)), "--no-article")
