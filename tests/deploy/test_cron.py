"""The crontab and its page: cron takes each line, what it starts takes its options and times, and the page says so."""

from __future__ import annotations

import re
import shlex
from pathlib import Path
from typing import Final, NamedTuple

import pytest

from sidecar.cli import flags
from sidecar.config.settings import load
from sidecar.runlock import execute

DEPLOY: Final = Path(__file__).parents[2] / "deploy"
CRONTAB: Final = (DEPLOY / "cron" / "health-arbiter").read_text()
PAGE: Final = (DEPLOY / "standby.md").read_text()


class Job(NamedTuple):
    when: list[str]
    user: str
    command: str

    @property
    def words(self) -> list[str]:
        return shlex.split(self.command.partition(" 2>&1 | ")[0])


def jobs(text: str) -> list[Job]:
    """What crontab(5) makes of a system crontab: comments, settings, and five fields, a user and a command."""
    rows = [line for line in text.splitlines() if line and not re.match(r"#|[A-Z]+=", line)]
    return [Job(fields[:5], fields[5], fields[6]) for fields in (row.split(None, 6) for row in rows)]


JOBS: Final = jobs(CRONTAB)
EXECS: Final = [job for job in JOBS if job.words[1] == "exec"]
RUNS: Final = [job for job in JOBS if job.words[1] == "run"]


def test_there_is_a_line_for_one_for_several_and_for_the_sidecar() -> None:
    assert [execute._read(job.words[2:]).max_procs for job in EXECS] == [1, 4]
    assert len(RUNS) == 1


@pytest.mark.parametrize("job", JOBS, ids=lambda job: job.words[1])
def test_cron_starts_each_as_often_as_it_says(job: Job) -> None:
    assert job.when == ["*"] * 5
    assert job.user != "root"
    assert re.search(r"--(run-)?every 60s", job.command)
    assert not re.search(r"(?<!\\)%", job.command), "cron would cut it there"


@pytest.mark.parametrize("job", EXECS, ids=lambda job: job.words[5])
def test_exec_takes_its_options_and_times(job: Job) -> None:
    orders = execute._read(job.words[2:])
    assert execute._contradictions(orders) == []
    assert orders.standby
    assert orders.command[0].startswith("/")


def test_commands_that_share_a_directory_have_different_names() -> None:
    orders = [execute._read(job.words[2:]) for job in EXECS]
    assert len({(one.run_lock, one.name) for one in orders}) == len(orders)


@pytest.mark.parametrize("job", RUNS, ids=["run"])
def test_the_sidecar_takes_its_options_and_times(job: Job) -> None:
    given = flags.read(job.words[1:])
    del given["config"]  # a file of the reader's
    settings = load(given, {})
    assert (settings.standby, settings.run_lifetime, settings.run_every) == (True, 86_400, 60)
    assert settings.run_lock == "/var/lib/health-arbiter"


@pytest.mark.parametrize(
    ("old", "new"), [("--lifetime 5m --every", "--lifetime 4m --every"), ("--lifetime-max 10m", "--lifetime-max 5m")]
)
def test_a_spoilt_line_is_noticed(old: str, new: str) -> None:
    assert old in CRONTAB
    spoilt = [job for job in jobs(CRONTAB.replace(old, new)) if job.words[1] == "exec"]
    assert any(execute._contradictions(execute._read(job.words[2:])) for job in spoilt)


# -- the page -------------------------------------------------------------------------------------------------------


def test_the_page_has_the_exit_codes_of_the_help() -> None:
    codes = re.compile(r"^(?:\| |  )(\d\S*(?: to \d+)?)(?: \||  )", re.MULTILINE)
    in_help = [code.replace("..", " to ") for code in codes.findall(execute._EPILOG)]
    assert codes.findall(PAGE) == in_help
    assert len(in_help) == 7


def test_every_option_on_the_page_exists() -> None:
    known = execute._parser().format_help() + " ".join(flag for flag, _ in flags.flag_table())
    options = set(re.findall(r"`(--[a-z-]+)", PAGE))
    assert len(options) > 10
    assert {option for option in options if option not in known} == set()


def test_every_file_that_the_page_points_to_exists() -> None:
    links = re.findall(r"\]\(([^)]+)\)", PAGE)
    assert links
    assert [link for link in links if not (DEPLOY / link).exists()] == []


@pytest.mark.parametrize("code", re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL))
def test_python_on_the_page_is_python(code: str) -> None:
    assert compile(code, "standby.md", "exec")


def test_the_page_has_the_times_of_the_sidecar() -> None:
    names = set(re.findall(r"(?<!HEALTH_)ARBITER_([A-Z_]+)", PAGE))
    assert names >= {"RUN_EVERY", "RUN_LIFETIME", "STANDBY_FOR"}
    assert all(hasattr(load({}, {}), name.lower()) for name in names)
