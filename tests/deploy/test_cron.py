"""The crontab and deploy/standby.md: valid lines, options and times, and a page that agrees."""

from __future__ import annotations

import re
import shlex
from pathlib import Path
from typing import Final

import pytest

from sidecar.cli import settings_commands
from sidecar.config.load import load
from sidecar.runlock import exec_options

DEPLOY: Final = Path(__file__).parents[2] / "deploy"
CRONTAB: Final = (DEPLOY / "cron" / "health-arbiter").read_text()
PAGE: Final = (DEPLOY / "standby.md").read_text()
JOBS: Final = re.findall(r"^(\S+ \S+ \S+ \S+ \S+) +(\S+) +(health-arbiter.*)$", CRONTAB, re.MULTILINE)
"""The jobs of a system crontab (crontab(5)): when, the user and the command."""


@pytest.mark.parametrize(("when", "user", "command"), JOBS, ids=lambda text: text.split()[-1])
def test_each_job_runs_every_minute_with_valid_options_and_times(when: str, user: str, command: str) -> None:
    assert (when, user == "root") == ("* * * * *", False)
    assert not re.search(r"(?<!\\)%", command), "cron ends the command at %"
    _, name, *words = shlex.split(command.partition(" 2>&1 | ")[0])
    if name == "exec":
        options = exec_options.options_of(words)
        assert exec_options.contradictions(options) == []
        assert "--every 60s" in command
        assert options.standbys
        assert options.command[0].startswith("/")
    else:
        given = settings_commands.given(settings_commands.run.make_context("run", words))
        del given["config"]  # a file of the operator
        settings = load(given, {})
        assert (settings.process.standby, settings.process.run_lock) == (True, "/var/lib/health-arbiter")


def test_crontab_has_both_kinds_of_jobs() -> None:
    assert {command.split()[1] for _, _, command in JOBS} == {"exec", "run"}


# -- the page -------------------------------------------------------------------------------------------------------


def test_page_has_the_exit_codes_of_the_help() -> None:
    codes = re.compile(r"^(?:\| |  )(\d\S*(?: to \d+)?)(?: \||  )", re.MULTILINE)
    in_help = [code.replace("..", " to ") for code in codes.findall(exec_options.EPILOG)]
    assert codes.findall(PAGE) == in_help
    assert in_help


def test_every_option_on_the_page_exists() -> None:
    known = {option for param in settings_commands.run.params for option in param.opts}
    known |= {*re.findall(r"--[a-z-]+", exec_options.parser().format_help())}
    assert {*re.findall(r"`(--[a-z-]+)", PAGE)} - known == set()


@pytest.mark.parametrize("code", re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL))
def test_python_examples_of_the_page_compile(code: str) -> None:
    assert compile(code, "standby.md", "exec")
