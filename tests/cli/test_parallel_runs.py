"""Runs side by side in processes: their order, their progress, and their errors."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from functools import partial
from pathlib import Path

import click
import pytest

from harness.waiting import wait_for
from sidecar.cli.parallel_runs import OnPart, Run, run_all


def squared(number: int, on_part: OnPart) -> tuple[int, int]:
    for part in range(4):
        on_part(part / 4)
    return number**2, os.getpid()


def failing(_on_part: OnPart) -> tuple[int, int]:
    raise ValueError("the rows are out of order")


def killed(_on_part: OnPart) -> tuple[int, int]:
    os._exit(9)


def without_memory(_on_part: OnPart) -> tuple[int, int]:
    raise MemoryError


@pytest.mark.parametrize("cores", [1, 3])
def test_results_are_in_the_order_of_the_runs(cores: int) -> None:
    parts: list[float] = []
    found = run_all([partial(squared, number) for number in range(5)], parts.append, cores)
    assert [result for result, _ in found] == [0, 1, 4, 9, 16]
    assert len({pid for _, pid in found}) == (1 if cores == 1 else 5)
    assert all(0 <= part <= 1 for part in parts)
    assert parts == sorted(parts)


@pytest.mark.parametrize(
    ("run", "error", "sentence"),
    [
        (failing, ValueError, "the rows are out of order"),
        (killed, click.ClickException, "^a process of the simulation ended early, perhaps for lack of memory; fewer"),
        (without_memory, click.ClickException, "^a process of the simulation ended early, perhaps for lack of memory"),
    ],
)
def test_error_of_a_run_is_raised(run: Run[tuple[int, int]], error: type[Exception], sentence: str) -> None:
    with pytest.raises(error, match=sentence):
        run_all([run, run], lambda _part: None, 2)


BUSY = """
import os
from sidecar.cli.parallel_runs import run_all

def busy(_on_part):
    os.write(1, b"%d\\n" % os.getpid())  # at once: both write here
    while True:
        pass

run_all([busy, busy], lambda _part: None, 2)
"""


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL], ids=["SIGTERM", "SIGKILL"])
def test_children_end_with_their_parent(number: signal.Signals) -> None:
    with subprocess.Popen([sys.executable, "-c", BUSY], stdout=subprocess.PIPE, stderr=subprocess.PIPE) as parent:
        assert parent.stdout is not None
        children = list[int]()
        try:
            children += [int(parent.stdout.readline()) for _ in range(2)]
            parent.send_signal(number)
            wait_for(lambda: not any(map(is_there, children)), timeout_s=60, what="the children are gone")
        finally:
            parent.kill()
            for child in filter(is_there, children):
                os.kill(child, signal.SIGKILL)


def is_there(pid: int) -> bool:
    """Whether a process runs; one that has ended and that nobody waited for does not."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except (FileNotFoundError, ProcessLookupError):
        return False
