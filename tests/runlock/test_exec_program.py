"""``health-arbiter-exec`` of the stand-alone distribution understands the options of ``health-arbiter exec``."""

from __future__ import annotations

import shlex
import sys
from typing import Final

import pytest

from sidecar.cli import exec_command
from sidecar.cli.main import main
from sidecar.runlock import exec_program
from sidecar.runlock.execute import ExecOptions

COMMAND: Final = ["--", "worker", "--fast", "--", "x"]
LINES: Final = {
    "defaults": "",
    "Redis": "--redis-file /etc/url --ttl 1m",
    "locks": "--name import --max-procs 3 --no-inherit-lock",
    "standby": "--standby --standby-for 5m --interval 500ms --every 1.5s",
    "standbys": "--standbys 3",
    "lifetime": "--lifetime 1h --lifetime-max 2h --busy-file /run/busy --busy-command 'test -e x' --grace 3",
    "jitter": "--lifetime 1h --lifetime-jitter 0.2",
}


@pytest.fixture
def executed(monkeypatch: pytest.MonkeyPatch) -> list[ExecOptions]:
    """The options of every execution, in place of which the exit code is 7."""
    executed: list[ExecOptions] = []

    def execute(options: ExecOptions) -> int:
        executed.append(options)
        return 7

    for module in (exec_command, exec_program):
        monkeypatch.setattr(module, "execute", execute)
    return executed


@pytest.mark.parametrize("line", LINES.values(), ids=LINES)
def test_both_programs_read_the_same_options(
    line: str, executed: list[ExecOptions], monkeypatch: pytest.MonkeyPatch
) -> None:
    words = ["--run-lock", "/run/locks", *shlex.split(line), *COMMAND]
    monkeypatch.setattr(sys, "argv", ["health-arbiter-exec", *words])
    assert (exec_program.main(), main(["exec", *words])) == (7, 7)
    alone, of_the_sidecar = (each._replace(busy_command=tuple(each.busy_command)) for each in executed)
    assert alone == of_the_sidecar
    assert alone.command == COMMAND[1:]


@pytest.mark.parametrize(
    ("words", "complaint"),
    [(["--run-lock", "d"], "behind --"), (["--run-lock", "d", "--lifetime", "soon", "--", "true"], "not a duration")],
    ids=["no command", "no duration"],
)
def test_unreadable_command_line_is_refused(
    words: list[str], complaint: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "argv", ["health-arbiter-exec", *words])
    with pytest.raises(SystemExit) as exited:
        exec_program.main()
    assert exited.value.code == 2
    assert complaint in capsys.readouterr().err
