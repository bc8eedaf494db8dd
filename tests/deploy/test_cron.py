"""The crontab and deploy/standby.md: valid lines, options and times, and a page that agrees."""

from __future__ import annotations

import re
import shlex
from pathlib import Path
from typing import Final, NamedTuple

import pytest

from sidecar.cli import daemon_commands, exec_command, settings_options
from sidecar.config.load import load
from sidecar.runlock import execute
from sidecar.runlock.execute import ExecOptions

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
    """The jobs of a system crontab (crontab(5)): five fields, a user and a command each."""
    rows = [line for line in text.splitlines() if line and not re.match(r"#|[A-Z]+=", line)]
    return [Job(fields[:5], fields[5], fields[6]) for fields in (row.split(None, 6) for row in rows)]


JOBS: Final = jobs(CRONTAB)
EXECS: Final = [job for job in JOBS if job.words[1] == "exec"]
RUNS: Final = [job for job in JOBS if job.words[1] == "run"]


def options_of(job: Job) -> ExecOptions:
    return ExecOptions(**exec_command.exec.make_context("exec", job.words[2:]).params)


@pytest.mark.parametrize("job", JOBS, ids=lambda job: job.words[1])
def test_each_job_runs_every_minute_as_its_option_says(job: Job) -> None:
    assert job.when == ["*"] * 5
    assert job.user != "root"
    assert "--every 60s" in job.command or job.words[1] == "run"
    assert not re.search(r"(?<!\\)%", job.command), "cron ends the command at %"


@pytest.mark.parametrize("job", EXECS, ids=lambda job: job.words[5])
def test_options_and_times_of_exec_are_valid(job: Job) -> None:
    options = options_of(job)
    assert execute._contradictions(options) == []
    assert options.most_standbys
    assert options.command[0].startswith("/")


@pytest.mark.parametrize("job", RUNS, ids=["run"])
def test_options_and_times_of_the_sidecar_are_valid(job: Job) -> None:
    given = settings_options.given(daemon_commands.run.make_context("run", job.words[2:]))
    del given["config"]  # a file of the operator
    settings = load(given, {})
    assert (settings.run_lock.standby, settings.run_lock.run_lock) == (True, "/var/lib/health-arbiter")


# -- the page -------------------------------------------------------------------------------------------------------


def test_page_has_the_exit_codes_of_the_help() -> None:
    codes = re.compile(r"^(?:\| |  )(\d\S*(?: to \d+)?)(?: \||  )", re.MULTILINE)
    in_help = [code.replace("..", " to ") for code in codes.findall(exec_command._EPILOG)]
    assert codes.findall(PAGE) == in_help
    assert len(in_help) == 7


def test_every_option_on_the_page_exists() -> None:
    commands = (exec_command.exec, daemon_commands.run)
    known = {option for command in commands for param in command.params for option in param.opts}
    options = set(re.findall(r"`(--[a-z-]+)", PAGE))
    assert len(options) > 10
    assert options - known == set()


@pytest.mark.parametrize("code", re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL))
def test_python_examples_of_the_page_compile(code: str) -> None:
    assert compile(code, "standby.md", "exec")
