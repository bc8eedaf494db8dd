"""``health-arbiter backtest``: its answers on the shipped log, and its bad input."""

from __future__ import annotations

import gzip
import json
import os
import resource
import subprocess
import sys
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from backtest import made_log
from sidecar.cli import application, simulated_days
from sidecar.cli.exit_codes import EXIT_USAGE

pytestmark = pytest.mark.site
BEGIN = 1_763_800_000


def played(capsys: pytest.CaptureFixture[str], *words: str) -> str:
    assert application.run(["backtest", *words], {}) == 0, capsys.readouterr().err
    return capsys.readouterr().out


def test_shipped_log_is_the_one_that_is_made() -> None:
    with gzip.open(made_log.SHIPPED, "rt") as file:
        assert all(made == shipped for made, shipped in zip(made_log.lines(), file, strict=True))


@pytest.fixture
def log(tmp_path: Path) -> Path:
    """Twenty minutes of four containers. ``b`` is stuck from minute 4 to minute 12; all fail in minute 16."""
    path = tmp_path / "web.jsonl"
    with path.open("w") as file:
        for second in range(1200):
            for instance in "abcd":
                is_stuck = instance == "b" and 240 <= second < 720 and second % 4 == 0
                is_away = 960 <= second < 1000
                row = {
                    "time": BEGIN + second,
                    "instance": instance,
                    "status": 500 + 3 * is_away if is_stuck or is_away else 200,
                }
                file.write(f"{json.dumps(row)}\n")
    return path


def by_rules(text: str) -> dict[str, dict[str, Any]]:
    return {one["rules"]: one for one in json.loads(text)["rules"]}


def test_both_readings_of_the_unknown_are_shown(log: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """In the optimistic one the cull ends the errors; in the pessimistic one the replacement is sick again."""
    text = played(capsys, "--access-log", str(log), "--no-article", "--json")
    found = by_rules(text)
    assert list(found) == ["do nothing", "optimistic", "pessimistic"]
    result = json.loads(text)
    assert (result["kind"], result["duration_s"], result["containers"]) == ("backtest", 1200.0, 4)
    assert result["start_unix"] == BEGIN
    optimistic, pessimistic = found["optimistic"], found["pessimistic"]
    assert [(cull["name"], cull["cause"]) for cull in optimistic["each_cull"]][:1] == [("b", "500")]
    assert 240 < optimistic["each_cull"][0]["at_s"] < 300
    assert optimistic["failed_requests"] < pessimistic["failed_requests"] < found["do nothing"]["failed_requests"]
    assert found["do nothing"]["failed_requests"] == 120 + 4 * 40
    assert found["do nothing"]["culls"] == 0
    assert {one["gate"] for one in optimistic["each_refusal"]} <= {"trial", "paused", "causes"}
    assert any("The truth is between" in note for note in result["notes"])


def test_what_only_a_made_up_day_knows_is_left_out(
    log: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A record does not tell who was healthy: 0 would be invented, and a limit of it would never be broken."""
    page = tmp_path / "page.html"
    found = by_rules(played(capsys, "--access-log", str(log), "--html", str(page), "--json"))
    of_days = {"culls_by_need", "avoidable_failed_requests", "stuck_at_the_end", "time_to_cull_s"}
    for one in found.values():
        assert not one.keys() & (of_days | {"visits_of_an_engineer"})
        assert all("need" not in cull for cull in one["each_cull"])
    assert found["optimistic"]["culls"] > 0
    text = page.read_text()
    assert "healthy" not in text
    assert all(words in text for words in ("fewer than doing nothing", "… for: 500", "from suspect to cull: longest"))
    swept = json.loads(played(capsys, "--access-log", str(log), "--sweep", "error_limit=5,900", "--json"))
    assert not {"culls_of_healthy", "stuck_at_the_end"} & swept["rows"][0]["figures"].keys()


def test_sweep_of_a_record_draws_its_failed_requests(
    log: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    page = tmp_path / "page.html"
    words = ["--sweep", "error_limit=5,900,budget=1,10", "--html", str(page), "--no-article"]
    played(capsys, "--access-log", str(log), *words)
    text = page.read_text()
    assert all(
        words in text for words in ("failed requests</figcaption>", "upwards more failed requests", "culls per day")
    )
    assert "healthy" not in text


def test_requests_while_no_container_is_in_service_have_failed(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """One container with a request a second, sick for eight minutes: culling it again and again is no good news."""
    rows = ({"time": BEGIN + at, "instance": "a", "status": 500 if 240 <= at < 720 else 200} for at in range(1200))
    path = tmp_path / "one.jsonl"
    path.write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    found = by_rules(played(capsys, "--access-log", str(path), "--json"))
    article = found["article, optimistic"]
    assert (article["culls"], article["without_service_s"], article["failed_without_service"]) == (1, 45.0, 45)
    assert 45 < article["failed_requests"] < 45 + 60
    assert article["avoidable_less_than"]["do nothing"] == 480 - article["failed_requests"]
    assert found["do nothing"]["failed_without_service"] == 0
    table = played(capsys, "--access-log", str(path))
    (row,) = (line for line in table.splitlines() if "while no container was in service" in line)
    assert row.split()[-5:-3] == ["-", "45"]


def test_instance_with_a_new_line_stays_in_its_line_of_the_table(log: Path, capsys: pytest.CaptureFixture[str]) -> None:
    log.write_text(log.read_text().replace('"b"', '"b\\nculls 0"'))
    assert "b?culls 0: " in played(capsys, "--access-log", str(log), "--no-article")


def test_table_is_printed_and_nothing_is_left_when_the_page_cannot_be_written(log: Path) -> None:
    """As on a full disk. The page of yesterday stays as it was."""
    page = log.with_name("page.html")
    page.write_text("yesterday's")
    words = [sys.executable, "-m", "sidecar", "backtest", "--access-log", "-", "--no-article", "--html", str(page)]
    limit = partial(resource.setrlimit, resource.RLIMIT_FSIZE, (1000, 1000))
    with log.open("rb") as source:
        done = subprocess.run(words, stdin=source, capture_output=True, text=True, preexec_fn=limit, check=False)
    assert (done.returncode, done.stderr) == (1, f"health-arbiter: {page} cannot be written: file too large\n")
    assert "failed requests" in done.stdout
    assert page.read_text() == "yesterday's"
    assert {path.name for path in log.parent.iterdir()} == {log.name, page.name}


def test_page_never_replaces_what_is_no_regular_file(
    log: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """As root, --html /dev/null would have replaced the device; a link to it too."""
    pipe, link = tmp_path / "pipe", tmp_path / "link.html"
    os.mkfifo(pipe)
    link.symlink_to(pipe)
    for place in (pipe, link):
        assert application.run(["backtest", "--access-log", str(log), "--html", str(place)], {}) == EXIT_USAGE
        assert capsys.readouterr() == ("", f"health-arbiter: --html: {place} is no regular file\n")
    assert not simulated_days.write_page(link, {})
    assert (pipe.is_fifo(), link.is_symlink()) == (True, True)


def test_settings_are_compared_and_the_answers_are_a_table(
    log: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for name, limit in (("low", 5), ("high", 500)):
        (tmp_path / f"{name}.toml").write_text(f"error_limit = {limit}\n")
    files = [str(tmp_path / f"{name}.toml") for name in ("low", "high")]
    text = played(capsys, "--access-log", str(log), "--compare", *files, "--no-article")
    head = next(line for line in text.splitlines() if "do nothing" in line)
    assert all(f"{name}, {reading}" in head for name in ("low", "high") for reading in ("optimistic", "pessimistic"))
    assert "2025-11-22 08:26:40Z" in text.splitlines()[0]


def test_combinations_of_settings_are_swept(log: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    page = tmp_path / "page.html"
    words = ["--access-log", str(log), "--sweep", "error_limit=5,900", "--html", str(page), "--json"]
    found = json.loads(played(capsys, *words))
    assert found["kind"] == "sweep"
    assert [row["settings"] for row in found["rows"]] == [{"error_limit": 5}, {"error_limit": 900}]
    assert [row["figures"]["culls"] > 0 for row in found["rows"]] == [True, False]
    assert len(found["rows"][0]["by_seed"]) == 2, "both readings"
    assert "</html>" in page.read_text()


def test_limits_are_suggested_for_a_fleet_like_that_of_the_past(log: Path, capsys: pytest.CaptureFixture[str]) -> None:
    found = json.loads(played(capsys, "--access-log", str(log), "--suggest", "--json"))
    assert (found["kind"], found["containers"], found["day"]) == ("suggestion", 4, str(log))
    assert found["usual_errors"] < 0.5
    assert found["error_limit"] is not None
    assert found["record"] == {"errors": 0, "minutes": 4 * 20 - 12.0}, "all but those of the incidents"
    assert "from 68 minutes of record" in found["sentence"]


def test_short_record_without_errors_does_not_mean_that_there_are_none(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "quiet.jsonl"
    rows = [{"time": BEGIN + second, "instance": name, "status": 200} for second in range(900) for name in "ab"]
    path.write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    found = json.loads(played(capsys, "--access-log", str(path), "--suggest", "--json"))
    assert found["record"] == {"errors": 0, "minutes": 30.0}
    assert found["usual_errors"] == 0.1, "three in thirty minutes"
    assert found["error_limit"] == 5


SELECTORS = ("--errors", "errors_total")


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        ((), "takes one of --prometheus, --access-log and --ledger"),
        (("--ledger", "a", "--access-log", "b"), "takes one of --prometheus, --access-log and --ledger, not both"),
        (("--prometheus", "a.json"), "--errors: is missing, such as --errors 'http_requests_total{status=~\"5..\"}'"),
        (("--prometheus", "a.json", "--errors", "{"), "--errors: at the end: expected a label"),
        (("--prometheus", "http://h", "b.json", *SELECTORS), "--prometheus: takes one URL, or files"),
        (("--prometheus", "http://a:b@h", *SELECTORS), "--prometheus: the URL must have no login, ? or #"),
        (("--prometheus", "away.json", *SELECTORS), "away.json: cannot be read: no such file or directory"),
        (
            ("--access-log", "a", "--since", "soon"),
            "--since: 'soon' is no time: write 2026-11-22T10:00Z, Unix seconds,",
        ),
        (("--access-log", "a", "--since", "1h", "--until", "2h"), "--until: must be after --since"),
        (("--access-log", "a", "--step", "1ms"), "--step: must be at least 100ms"),
        (
            ("--access-log", "{log}", "--step", "2m"),
            "its steps of 2m are longer than the error window of 60s: set --step",
        ),
        (("--access-log", "{log}", "--settings", "{log}"), "web.jsonl: is not TOML: "),
        (("--access-log", "{log}", "--fail-if", "culls_per_day"), "--fail-if: "),
        (("--ledger", "away.jsonl"), "away.jsonl: cannot be read: no such file or directory"),
        (("--access-log", "{log}", "--sweep", "x"), "no setting with values: write error_limit=3..50,budget=5,10"),
        (
            ("--access-log", "{log}", "--sweep", "error_limt=3"),
            "--sweep: error_limt: unknown setting; did you mean error",
        ),
        (("--access-log", "a", "--sweep", "budget=3", "--suggest"), "--sweep and --suggest cannot be given together"),
        (("--access-log", "{log}", "--html", "{log}.d/page.html"), "page.html: there is no such directory"),
        (("--access-log", "{log}", "--html", "/"), "--html: / is no regular file"),
        (
            ("--access-log", "{log}", "--fail-if", "culls_by_need.healthy > 0"),
            "--fail-if: culls_by_need: no such figure",
        ),
        (("--ledger", "a", "--until", "1h"), "--ledger: takes one file or URL, and no --until"),
    ],
)
def test_bad_input_is_one_sentence_with_the_place(
    words: tuple[str, ...], sentence: str, log: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert (
        application.run(["backtest", *(word.format(log=log) if "{log}" in word else word for word in words)], {}) == 2
    )
    error = capsys.readouterr().err
    assert len(error.splitlines()) == 1
    assert sentence in error
    assert EXIT_USAGE == 2


def test_ci_fails_when_a_figure_is_too_large(log: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = ["backtest", "--access-log", str(log), "--no-article", "--fail-if"]
    assert application.run([*words, "culls > 100"], {}) == 0
    assert application.run([*words, "culls_per_day > 1"], {}) == 1
    assert "culls_per_day" in capsys.readouterr().err
