"""Saved answers of Prometheus: the rises of counters by container and step, and what is said about bad ones."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import pytest

from sidecar.backtest import prometheus_range
from sidecar.backtest.error_counts import ErrorCounts, PastError
from sidecar.backtest.prometheus_range import CounterRange

BEGIN = 1_700_000_010
"""A multiple of 15 s."""


def answer(*series: tuple[dict[str, str], list[tuple[int, object]]]) -> bytes:
    """An answer of ``query_range``; times are steps of 15 s."""
    result = [
        {"metric": labels, "values": [[BEGIN + 15 * step, str(value)] for step, value in points]}
        for labels, points in series
    ]
    return json.dumps({"status": "success", "data": {"resultType": "matrix", "result": result}}).encode()


def errors(
    instance: str, *values: object, begin: int = 0, **labels: str
) -> tuple[dict[str, str], list[tuple[int, object]]]:
    """Error counters; None is a missing sample."""
    points = [(begin + step, value) for step, value in enumerate(values) if value is not None]
    return {"__name__": "errors_total", "instance": instance, **labels}, points


def read(tmp_path: Path, *answers: bytes, since_s: float = 0.0) -> ErrorCounts:
    paths = [tmp_path / f"{number}.json" for number in range(len(answers))]
    for path, text in zip(paths, answers, strict=True):
        path.write_bytes(text)
    counts = ErrorCounts("saved", 60.0, since_s)
    CounterRange(counts).read_files(paths)
    return counts


def counted(counts: ErrorCounts) -> dict[str, list[tuple[int, int]]]:
    """By container, the errors of each step."""
    first = BEGIN // 15
    return {
        name: [(part - first, number) for part, number in one.errors.items()] for name, one in counts.containers.items()
    }


IN_GAP = {"rises across missing samples, left out because nobody knows when they were": 1}


@pytest.mark.parametrize(
    ("series", "expected", "notes"),
    [
        ([errors("a", 5, 5, 7, 7, 8)], {"a": [(2, 2), (4, 1)]}, {}),
        ([errors("a", 1, 2, 2), errors("a", 1, 1, 4, code="503")], {"a": [(1, 1), (2, 3)]}, {}),
        ([errors("a", 8, 9, 2, 2)], {"a": [(1, 1), (2, 2)]}, {}),
        ([errors("a", 1, 2, *[None] * 3, 9, 9)], {"a": [(1, 1), (5, 7)]}, {}),
        ([errors("a", 1, 2, *[None] * 4, 9, 9)], {"a": [(1, 1)]}, IN_GAP),
        ([errors("a", 0, 0, 0), errors("a", 3, code="503", begin=2)], {"a": [(2, 3)]}, {}),
        ([errors("a", 0, 0, 0), errors("b", 300, 301, begin=2)], {"a": [], "b": [(3, 1)]}, {}),
        (
            [errors("a", 1, 2, "NaN", 3)],
            {"a": [(1, 1), (3, 1)]},
            {"values that are no number (NaN or Inf), left out": 1},
        ),
    ],
    ids=[
        *("rises", "two series", "reset", "window without samples", "more than a window without samples"),
        *("series made with its first error", "first value of a new container", "no number"),
    ],
)
def test_rises_are_counted_and_the_rest_is_said(
    tmp_path: Path, series: Any, expected: object, notes: dict[str, int]
) -> None:
    counts = read(tmp_path, answer(*series))
    assert counted(counts) == expected
    assert counts.notes == notes


def test_files_follow_each_other_and_may_be_compressed(tmp_path: Path) -> None:
    parts = answer(errors("a", 1, 2)), gzip.compress(answer(errors("a", 5, 5, begin=2)))
    assert counted(read(tmp_path, *parts)) == {"a": [(1, 1), (2, 3)]}
    with pytest.raises(PastError, match=r"1\.json: a at .* goes back in time: give the files in the order of time"):
        read(tmp_path, *reversed(parts))


def test_only_the_time_that_was_asked_for_counts(tmp_path: Path) -> None:
    found = read(tmp_path, answer(errors("a", 1, 2, 4, 8)), since_s=BEGIN + 30)
    assert counted(found) == {"a": [(2, 2), (3, 4)]}


def series(**labels: str) -> bytes:
    return answer((labels, [(0, 1), (1, 2)]))


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        (b"", "is not JSON"),
        (b"<html>", "is not JSON"),
        (b'{"status":"error","error":"query timed out"}', "is no answer of Prometheus to query_range: query timed out"),
        (b"[1]", "is no answer of Prometheus"),
        (b'{"data":{"resultType":"vector","result":[]}}', "is no answer of Prometheus to query_range"),
        (answer(), "saved: no series since then"),
        (answer(({"__name__": "a", "instance": "b"}, [])), "saved: no series since then"),
        (b'{"data":{"resultType":"matrix","result":[3]}}', "expected series such as"),
        (series(instance="a"), "a series without a name, as of rate() or sum by ()"),
        (series(__name__="errors_total"), "errors_total: a series without the label 'instance': set --instance-label"),
        (answer(errors("a", 1, 1.5)), "errors_total of a: 1.5 is no count: give a counter, no rate or gauge"),
        (answer(errors("a", 1, -1)), "errors_total of a: -1 is no count"),
        (
            answer(errors("a", 1, 2)).replace(str(BEGIN).encode(), b"17"),
            "'17' is before the year 2000, or after tomorrow",
        ),
        (answer(errors("a", *[1, None, None, None, None] * 3)), "saved: most points are further apart than the window"),
        (gzip.compress(answer(errors("a", 1, 2)))[:-12], "the gzip data is damaged or cut off"),
    ],
)
def test_bad_answer_is_a_sentence_with_the_file(tmp_path: Path, text: bytes, sentence: str) -> None:
    with pytest.raises(PastError) as raised:
        read(tmp_path, text)
    assert sentence in str(raised.value)
    assert "0.json: " in str(raised.value) or "saved: " in sentence


def test_answer_is_refused_before_it_fills_the_memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(prometheus_range, "LARGEST_ANSWER", 1 << 20)
    bomb = gzip.compress(b" " * ((1 << 20) + 1))
    with pytest.raises(PastError, match=r"0\.json: the answer has more than 1 MiB: take fewer series"):
        read(tmp_path, bomb)
