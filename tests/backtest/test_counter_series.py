"""Saved answers of Prometheus: the rises of counters by container and step, and what is said about what is missing."""

from __future__ import annotations

import gzip
import json
from io import BytesIO
from pathlib import Path
from typing import Any

import pytest

from sidecar.backtest import json_matrix
from sidecar.backtest.json_matrix import MatrixError
from sidecar.backtest.past import Past, PastError
from sidecar.backtest.prometheus_past import PastCounters, promql, read_files
from sidecar.config.selectors import parse_selectors

BEGIN = 1_700_000_000
Points = list[tuple[int, object]]


def answer(*series: tuple[dict[str, str], Points]) -> bytes:
    """An answer of ``query_range``; times are steps of 15 s."""
    result = [
        {"metric": labels, "values": [[BEGIN + 15 * step, str(value)] for step, value in points]}
        for labels, points in series
    ]
    return json.dumps({"status": "success", "data": {"resultType": "matrix", "result": result}}).encode()


def errors(instance: str, *values: object, begin: int = 0, **labels: str) -> tuple[dict[str, str], Points]:
    """Error counters; None is a missing sample."""
    points = [(begin + step, value) for step, value in enumerate(values) if value is not None]
    return {"__name__": "errors_total", "instance": instance, **labels}, points


def requests(instance: str, *values: object, begin: int = 0) -> tuple[dict[str, str], Points]:
    labels, points = errors(instance, *values, begin=begin)
    return {**labels, "__name__": "requests_total"}, points


def read(tmp_path: Path, *answers: bytes, **counters: Any) -> Past:
    paths = []
    for number, text in enumerate(answers):
        paths.append(tmp_path / f"{number}.json")
        paths[-1].write_bytes(text)
    return read_files(
        paths, PastCounters(parse_selectors("errors_total"), parse_selectors("requests_total"), **counters)
    )


def counted(past: Past) -> dict[str, list[tuple[int, int]]]:
    """By instance, the errors of each step, counted from the first one."""
    first = past.step_of(BEGIN)
    found = {
        name: sorted((step - first, count) for counts in one.errors.values() for step, count in counts)
        for name, one in past.containers.items()
    }
    return {name: rows for name, rows in found.items() if rows}


def lives(past: Past, instance: str) -> list[tuple[int, int, bool]]:
    first = past.step_of(BEGIN)
    found = past.lives(past.containers[instance])
    return [(life.first - first, life.last - first, life.is_restart) for life in found]


AT_2 = "2023-11-14 22:13:50Z"
GAP = "gaps in the data of an instance, in which it is played without errors"
NOBODY = "times without data of any instance; nothing is played for them"
RESTART = "counters that began again, each played as a restart in place"
NOT_WHOLE = "values that are not whole, cut off; a counter of errors is whole, a rate or a gauge is not"
NO_TIME = "rises across missing samples, left out because nobody knows when they were"


@pytest.mark.parametrize(
    ("series", "expected", "said"),
    [
        ([errors("a", 5, 5, 7, 7, 8)], {"a": [(2, 2), (4, 1)]}, []),
        ([errors("a", 1, 2, 2), errors("a", 1, 1, 4, code="503")], {"a": [(1, 1), (2, 3)]}, []),
        ([errors("a", 8, 9, 2, 2)], {"a": [(1, 1), (2, 2)]}, [f"{RESTART}: 1, the first: a at {AT_2}"]),
        (
            [errors("a", 1, 2, None, None, 9, 9)],
            {"a": [(1, 1)]},
            [
                f"{NO_TIME}: 1, the first: a at 2023-11-14 22:14:20Z",
                f"{NOBODY}: 1, the first: 2023-11-14 22:13:35Z to 2023-11-14 22:14:20Z",
            ],
        ),
        (
            [errors("a", 1, 1, None, 1, 1), errors("b", 1, 1, 1, 1, 2)],
            {"b": [(4, 1)]},
            [f"{GAP}: 1, the first: a, 2023-11-14 22:13:35Z to 2023-11-14 22:14:05Z"],
        ),
        (
            [errors("a", 3, begin=2), requests("a", 10, 20, 30)],
            {"a": [(2, 3)]},
            [f"series that began while their instance was there; their first value counts: 1, the first: a at {AT_2}"],
        ),
        ([errors("a", 300, 301, begin=2), requests("a", 10, 11, begin=2)], {"a": [(3, 1)]}, []),
        (
            [errors("a", 7, 7, None, None, 1), requests("a", 50, 60, 4, 8, 9)],
            {"a": [(4, 1)]},
            [f"{RESTART}: 1, the first: a at {AT_2}"],
        ),
        (
            [errors("a", 1, 2, "NaN", 3), errors("b", 1, "+Inf", -4, 1)],
            {"a": [(1, 1)]},
            [
                f"values that are no count (NaN, Inf or negative), left out: 3, the first: a at {AT_2}",
                f"{NO_TIME}: 1, the first: a at 2023-11-14 22:14:05Z",
                f"{NOBODY}: 1, the first: 2023-11-14 22:13:35Z to 2023-11-14 22:14:05Z",
                f"{GAP}: 1, the first: b, 2023-11-14 22:13:20Z to 2023-11-14 22:14:05Z",
            ],
        ),
        (
            [errors("a", "1.0", 1.6, 2.2, "1e3")],
            {"a": [(2, 1), (3, 998)]},
            [f"{NOT_WHOLE}: 2, the first: a, 1.6"],
        ),
    ],
    ids=[
        *("rises", "two series of one container", "reset", "gap of all", "gap of one", "born with its first error"),
        *("first value of a new container", "labelled series after a restart", "no counts", "fractions"),
    ],
)
def test_rises_are_counted_and_the_rest_is_said(tmp_path: Path, series: Any, expected: object, said: list[str]) -> None:
    has_requests = any(labels["__name__"] == "requests_total" for labels, _ in series)
    past = (read if has_requests else read_only_errors)(tmp_path, answer(*series))
    assert counted(past) == expected
    assert past.notices.lines() == said


def read_only_errors(tmp_path: Path, *answers: bytes, **counters: Any) -> Past:
    path = tmp_path / "errors.json"
    path.write_bytes(b"\n".join(answers))
    return read_files([path], PastCounters(parse_selectors("kind=db: errors_total"), **counters))


def test_answers_follow_each_other_in_one_file_or_several(tmp_path: Path) -> None:
    """The limit of 11,000 points makes a month many answers. A point that two of them have counts once."""
    one, other = answer(errors("a", 1, 2, 3)), answer(errors("a", 3, 5, begin=2))
    expected = {"a": [(1, 1), (2, 1), (3, 2)]}
    assert counted(read_only_errors(tmp_path, one, other)) == expected
    (tmp_path / "1.json").write_bytes(gzip.compress(one))
    (tmp_path / "2.json").write_bytes(other)
    past = read_files([tmp_path / "1.json", tmp_path / "2.json"], PastCounters(parse_selectors("errors_total")))
    assert (counted(past), past.notices.lines()) == (expected, [])
    backwards = read_only_errors(tmp_path, other, one)
    assert counted(backwards) == {"a": [(3, 2)]}
    assert backwards.notices.lines() == [
        "samples that go back in time, left out: 3, the first: a at 2023-11-14 22:13:20Z"
    ]


def test_containers_come_go_and_restart(tmp_path: Path) -> None:
    """After ten minutes without data a container was away; while nobody has data it was not."""
    here, away = [0] * 3, [None] * 41
    series = [
        errors("moved", *here, *away, *here),
        errors("restarted", *([5] * 10), *([1] * 37)),
        errors("late", 0, 0, begin=45),
    ]
    past = read_only_errors(tmp_path, answer(*series))
    assert lives(past, "moved") == [(0, 2, False), (44, 46, False)]
    assert lives(past, "restarted") == [(0, 9, False), (10, 46, True)]
    assert lives(past, "late") == [(45, 46, False)]
    assert past.notices.lines()[1].startswith(
        "times of more than 10m in which an instance was away: 1, the first: moved"
    )
    alone = read_only_errors(tmp_path, answer(series[0]))
    assert lives(alone, "moved") == [(0, 46, False)]


def test_step_that_is_not_that_of_the_points_is_said(tmp_path: Path) -> None:
    half = answer(errors("a", *([0, None] * 5100)))
    with pytest.raises(PastError, match="a: more than 5,000 gaps: set --step to the distance of its points"):
        read_only_errors(tmp_path, half, step_s=15.0)
    with pytest.raises(PastError, match="has points closer to each other than the step of 60 s: set --step"):
        read_only_errors(tmp_path, answer(errors("a", 1, 2, 3)), step_s=60.0)


def test_step_at_which_most_points_are_missing_is_refused(tmp_path: Path) -> None:
    """Otherwise no rise would have a time, and the answer would be 0 errors."""
    text = answer(errors("a", *range(40)))
    with pytest.raises(PastError, match="most steps of 5s have no data: set --step to the distance of its points"):
        read_only_errors(tmp_path, text, step_s=5.0)
    assert read_only_errors(tmp_path, text, step_s=15.0).total_errors == 39
    here = answer(errors("a", 0, 1), errors("a", 2, 3, begin=9000))
    assert read_only_errors(tmp_path, here).total_errors == 2, "a time without any data is no wrong step"


def test_time_can_be_cut_out(tmp_path: Path) -> None:
    past = read_only_errors(tmp_path, answer(errors("a", 0, 1, 2, 3, 4)), since_s=BEGIN + 30, until_s=BEGIN + 45)
    assert counted(past) == {"a": [(3, 1)]}


def test_pieces_of_any_size_and_white_space_give_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    text = answer(errors("a", *range(40), path="{[\\"), errors("ü", 3, 4), errors("none"))
    whole = parsed(text)
    assert [len(points) for _, points in whole] == [40, 2, 0]
    shown = json.dumps(json.loads(text), indent=3, sort_keys=True).encode() + b"\n" + text
    for size in (1, 2, 7, 64):
        monkeypatch.setattr(json_matrix, "PIECE", size)
        assert parsed(text) == whole
        assert parsed(shown) == whole * 2


def parsed(text: bytes) -> list[tuple[dict[str, str], list[tuple[bytes, bytes]]]]:
    return [
        (run.labels, [pair for points in run.points for pair in zip(points.times, points.values, strict=True)])
        for run in json_matrix.series(BytesIO(text).read)
    ]


GOOD = answer(errors("a", 1, 2)).decode()


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("", "byte 0: expected {, but the text ends"),
        ("time,value", "byte 0: expected {"),
        ('{"status":"success"}', "byte 20: the answer has no data"),
        ('{"status":"error","errorType":"bad_data","error":"parse error"}', "an error: parse error"),
        (GOOD.replace("matrix", "vector"), "the answer is a vector, not a matrix: it has to be one of query_range"),
        (GOOD.replace('"values": [[1700000000', '"value": [1700000000'), "the answer is one of query, not of query_r"),
        (GOOD.replace("values", "histograms"), "histograms: not understood; only counters"),
        (GOOD.replace('"2"', "2"), 'expected points such as [1700000000,"12"]'),
        (GOOD.replace('"2"', '"1_2"'), 'expected points such as [1700000000,"12"]'),
        (GOOD[:-2], "but the text ends"),
        (GOOD[: GOOD.index("]]")], "the end of the answer is missing"),
        (GOOD.replace('"metric"', '"labels"'), "labels: not understood"),
        (GOOD.replace('"a"', "7"), "metric: the labels have to be texts"),
        (GOOD.replace("1700000015", "later"), "a: a time that is no number"),
        (GOOD.replace("1700000000", "NaN"), "a: a time that is no number"),
        (GOOD.replace("1700000015", "1e999"), "a: a time that is no number"),
        (GOOD.replace("170000001", "17000000150009"), "a: a time after tomorrow: 170000001500095 s"),
        (GOOD.replace("00,", "00000,").replace("15,", "15000,"), "a time after tomorrow: 1700000000000 s; it looks li"),
        (GOOD.replace("1700000000", "-1"), "a: a time before the year 2000: 1969-12-31 23:59:59Z"),
        ("\n<!doctype html><title>Log in", "byte 1: this is a web page, not JSON: perhaps that of a login"),
        (
            answer(({"instance": "a"}, [(0, 1)])).decode(),
            "no series fits --errors; there are series without a name, as",
        ),
        (answer(requests("a", 1, 2)).decode(), "no series fits --errors; there is requests_total"),
        (answer(({"__name__": "errors_total"}, [(0, 1)])).decode(), "a series without the label 'instance'"),
        (answer(errors("a", 1)).decode(), "no series has two points: set --step"),
        (answer(({"__name__": "other_total"}, [(0, 1)])).decode(), "no series fits --errors"),
        (answer().decode(), "no series fits --errors"),
        (answer(errors("a")).decode(), "there is no data of any instance"),
    ],
)
def test_bad_answer_is_a_sentence_with_the_file_and_the_byte(tmp_path: Path, text: str, sentence: str) -> None:
    with pytest.raises(PastError, match=r"errors\.json: ") as raised:
        read_only_errors(tmp_path, text.encode())
    assert sentence in str(raised.value)


def test_damaged_gzip_and_missing_files_are_named(tmp_path: Path) -> None:
    (tmp_path / "errors.json").write_bytes(gzip.compress(GOOD.encode())[:-9])
    with pytest.raises(PastError, match=r"errors\.json: the gzip data is damaged or cut off"):
        read_files([tmp_path / "errors.json"], PastCounters(parse_selectors("errors_total")))
    with pytest.raises(PastError, match=r"away\.json: cannot be read: no such file or directory"):
        read_files([tmp_path / "away.json"], PastCounters(parse_selectors("errors_total")))
    with pytest.raises(MatrixError):
        parsed(b"{")


@pytest.mark.parametrize(
    ("selector", "query"),
    [
        ("errors_total", '{__name__="errors_total"}'),
        ('kind=db: r{code=~"5..",path!="/a\\"b"}', '{__name__="r",code=~"5..",path!="/a\\"b"}'),
        ('{"db.errors","a.b"=~"x"}', '{__name__="db.errors","a.b"=~"x"}'),
    ],
)
def test_selector_is_written_for_prometheus(selector: str, query: str) -> None:
    assert [promql(one) for one in parse_selectors(selector)] == [query]
