"""``health-arbiter backtest``: its answers on the shipped log, and its bad input."""

from __future__ import annotations

import gzip
import json
from pathlib import Path

import pytest

from backtest import made_log
from sidecar.cli import application
from sidecar.cli.terminal import EXIT_USAGE


def answered(capsys: pytest.CaptureFixture[str], *words: str) -> str:
    assert application.run(["backtest", *words], {}) == 0, capsys.readouterr().err
    return capsys.readouterr().out


def test_shipped_log_is_the_one_that_is_made() -> None:
    with gzip.open(made_log.SHIPPED, "rt") as file:
        assert all(made == shipped for made, shipped in zip(made_log.lines(), file, strict=True))


def test_shipped_log_tells_its_incidents(capsys: pytest.CaptureFixture[str]) -> None:
    """Two stuck containers, two slow ones and an outage of all: see ``made_log.INCIDENTS``."""
    answer = json.loads(answered(capsys, "--access-log", str(made_log.SHIPPED), "--json"))
    assert (answer["kind"], answer["containers"], answer["usual"]["of"]) == ("backtest", 8, 960)
    assert (answer["begin"], answer["end"] - answer["begin"]) == (made_log.BEGIN.timestamp(), made_log.FOR_S)
    alone = [reach for reach in answer["reaches"] if not reach["fleet_wide"]]
    sick = [(name, incident) for incident in made_log.INCIDENTS for name in incident.instances]
    expected = {(name, incident.begin) for name, incident in sick if incident.instances != made_log.INSTANCES}
    begun = {(reach["container"], (reach["begin"] - answer["begin"]) // 60) for reach in alone}
    assert begun == expected
    assert len(answer["reaches"]) - len(alone) == len(made_log.INSTANCES)
    row = next(row for row in answer["limits"] if row["limit"] == answer["error_limit"])
    assert (row["reached"], row["fleet_wide"]) == (len(answer["reaches"]), len(made_log.INSTANCES))
    assert answer["usual"]["most"] < answer["error_limit"]


def test_text_says_which_limit_to_set_and_why(capsys: pytest.CaptureFixture[str]) -> None:
    text = answered(capsys, "--access-log", str(made_log.SHIPPED))
    (row,) = (line for line in text.splitlines() if line.endswith(" <- set this"))
    limit = row.split()[0]
    assert f"Set ARBITER_ERROR_LIMIT={limit} (with ARBITER_ERROR_WINDOW=60s)." in text
    assert "8 of 12 times most of the fleet reached it together" in text
    assert "web-3: up to 88 errors, for 1605s\n" in text
    assert "ARBITER_MODE=shadow" in text


def test_quiet_past_reaches_nothing(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "a\n.log"
    path.write_text("".join(f'{{"time": {1_763_800_000 + at}, "status": 200}}\n' for at in range(900)))
    text = answered(capsys, "--access-log", str(path), "--fields", ",time,status")
    assert "No container reached it" in text
    assert "This record is short" in text
    assert "a?.log: 1 containers" in text


ERRORS = ("--errors", "errors_total")


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        ((), "takes either --prometheus or --access-log"),
        (("--prometheus", "a", "--access-log", "b"), "takes either --prometheus or --access-log"),
        (("--prometheus", "http://h"), "--prometheus: takes one URL, and its --errors 'errors_total'"),
        (("--access-log", "a", "--fields", "time,status"), "--fields: takes three names, such as instance,time,status"),
        (("--prometheus", "http://h", "b.json", *ERRORS), "--prometheus: takes one URL"),
        (("--prometheus", "http://a:b@h", *ERRORS), "--prometheus: the URL must have no login, ? or #"),
        (
            ("--prometheus", "http://h", "--source-token-file", "away", *ERRORS),
            "--source-token-file: away: holds no token",
        ),
        (("--prometheus", "away.json"), "away.json: cannot be read: no such file or directory"),
        (("--access-log", "a", "--since", "soon"), "Invalid value for '--since': 'soon' is not a duration"),
        (("--access-log", "a", "--window", "1ms"), "--window: must be at least 1s"),
        (("--access-log", str(made_log.SHIPPED), "--since", "1h"), "no request since then"),
    ],
)
def test_bad_input_is_one_sentence_with_the_place(
    words: tuple[str, ...], sentence: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert application.run(["backtest", *words], {}) == EXIT_USAGE
    error = capsys.readouterr().err
    assert len(error.splitlines()) == 1
    assert sentence in error
