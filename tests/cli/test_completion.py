"""Completion of a shell: scripts that it can read, and what could come next."""

from __future__ import annotations

import os
import shutil
import subprocess
from contextlib import suppress
from unittest.mock import patch

import pytest

from sidecar.cli import application


def _next(capsys: pytest.CaptureFixture[str], *words: str) -> list[str]:
    """What could come in the place of the last word."""
    asked = {
        "_HEALTH_ARBITER_COMPLETE": "bash_complete",
        "COMP_WORDS": " ".join(("health-arbiter", *words)),
        "COMP_CWORD": str(len(words)),
    }
    with patch.dict(os.environ, asked), suppress(SystemExit):
        application.run([], asked)
    printed = capsys.readouterr()
    assert printed.err == ""
    return [line.partition(",")[2] for line in printed.out.splitlines()]


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_script_asks_us_and_is_read_by_its_shell(capsys: pytest.CaptureFixture[str], shell: str) -> None:
    assert application.run(["completion", shell], {}) == 0
    script = capsys.readouterr().out
    assert "_HEALTH_ARBITER_COMPLETE" in script
    if (program := shutil.which(shell)) is not None:
        subprocess.run([program, "-n"], input=script, text=True, check=True, timeout=90)


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (["h"], ["help", "hold"]),
        (["--error-"], ["--error-limit", "--error-ratio", "--error-window"]),
        (["re"], ["release", "report", "revive"]),
        (["hold", "--re"], ["--reason"]),
        (["check-config", "--error-"], ["--error-limit", "--error-ratio", "--error-window"]),
        (["doctor", "--jo"], ["--job"]),
        (["doctor", "--redis-ti"], ["--redis-timeout"]),
        (["report", "--format", ""], ["text", "json", "html"]),
        (["completion", "z"], ["zsh"]),
        (["check-config", "--action", "n"], ["nomad-restart", "nomad-stop"]),
        (["help", "ho"], ["hold"]),
    ],
    ids=str,
)
def test_commands_flags_and_values_are_completed(
    capsys: pytest.CaptureFixture[str], words: list[str], expected: list[str]
) -> None:
    assert sorted(_next(capsys, *words)) == sorted(expected)
