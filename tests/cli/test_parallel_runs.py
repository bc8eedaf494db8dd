"""Runs side by side in processes: their order, their progress, and their errors."""

from __future__ import annotations

import os
from functools import partial

import pytest

from sidecar.cli.parallel_runs import OnPart, Run, run_all


def squared(number: int, on_part: OnPart) -> tuple[int, int]:
    for part in range(4):
        on_part(part / 4)
    return number**2, os.getpid()


def failing(_on_part: OnPart) -> tuple[int, int]:
    raise ValueError("the rows are out of order")


def killed(_on_part: OnPart) -> tuple[int, int]:
    os._exit(9)


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
        (killed, RuntimeError, "ended early, perhaps for lack of mem"),
    ],
)
def test_error_of_a_run_is_raised(run: Run[tuple[int, int]], error: type[Exception], sentence: str) -> None:
    with pytest.raises(error, match=sentence):
        run_all([run, run], lambda _part: None, 2)
