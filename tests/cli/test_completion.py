"""Completion of a shell: scripts that it can read, and what could come next."""

from __future__ import annotations

import shutil
import subprocess
from typing import TYPE_CHECKING

import pytest

from harness.sidecar import Done, command

if TYPE_CHECKING:
    from harness.children import StartSidecar


def _next(sidecar: StartSidecar, *words: str) -> list[str]:
    """What could come in the place of the last word."""
    done = command(
        sidecar.unstarted(),
        _HEALTH_ARBITER_COMPLETE="bash_complete",
        COMP_WORDS=" ".join(("health-arbiter", *words)),
        COMP_CWORD=str(len(words)),
    )
    assert (done.code, done.err) == (0, "")
    return [line.partition(",")[2] for line in done.out.splitlines()]


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_script_asks_us_and_is_read_by_its_shell(sidecar: StartSidecar, shell: str) -> None:
    done: Done = command(sidecar.unstarted(), "completion", shell)
    assert (done.code, done.err) == (0, "")
    assert "_HEALTH_ARBITER_COMPLETE" in done.out
    if (program := shutil.which(shell)) is not None:
        subprocess.run([program, "-n"], input=done.out, text=True, check=True, timeout=90)


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
def test_commands_flags_and_values_are_completed(sidecar: StartSidecar, words: list[str], expected: list[str]) -> None:
    assert sorted(_next(sidecar, *words)) == sorted(expected)
