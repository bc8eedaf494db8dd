"""The benchmark's own parts: statistics, the table, HTTP, the page, and what the load generators say."""

from __future__ import annotations

import pytest

from bench import table, wire
from bench.rig import failed
from bench.table import Row

FAST = table.at_least_of_baseline(0.9)


def test_percentile_is_the_nearest_rank() -> None:
    expected = {0: 1, 1: 1, 50: 50, 99: 99, 99.5: 100, 100: 100}
    assert {percent: table.percentile([*range(100, 0, -1)], percent) for percent in expected} == expected
    with pytest.raises(ValueError, match="no values"):
        table.percentile([], 99)


@pytest.mark.parametrize(
    ("limit", "met", "missed"),
    [
        (table.at_most(10), 10, 10.1),
        (FAST, 9, 8.9),
        (table.at_most_of_baseline(0.8), 8, 8.1),
        (table.not_worse(1.05), 21, 21.1),
    ],
    ids=lambda value: value.text if isinstance(value, table.Limit) else str(value),
)
def test_limit_is_met_or_missed(limit: table.Limit, met: float, missed: float) -> None:
    rows = [Row("figure", "ms", {"before": [20], "now": [now]}, limit, [10]) for now in (met, missed)]
    assert [row.is_met for row in rows] == [True, False]


def test_line_of_the_table_has_each_checkout() -> None:
    row = Row("pings", "/s", {"before": [70], "now": [80, 90, 70]}, FAST, [100])
    assert row.markdown(["before", "now"]) == "| pings, /s | 100 | 70 | 80 (70 to 90), x 0.8 | >= 0.9 x | **MISSED** |"
    assert table.head(["now"]).startswith("| figure | baseline | now | limit | result |\n| --- |")


@pytest.mark.parametrize(
    ("answer", "is_whole", "status"),
    [
        (b"", False, 0),
        (b"SSH-2.0-x", False, 0),
        (b"HTTP/1.1 204 No Content\r\n\r\n", True, 204),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\nup", False, 200),
        (b"HTTP/1.1 200 OK\r\ncontent-length:3\r\n\r\nup\n", True, 200),
    ],
)
def test_answer_is_whole_with_its_body(answer: bytes, *, is_whole: bool, status: int) -> None:
    assert (wire.is_whole(answer), wire.status(answer)) == (is_whole, status)


def test_failures_of_a_load_are_found() -> None:
    assert failed("  Socket errors: connect 0, read 3\nRequests/sec: 1") == "Socket errors: connect 0, read 3"
    assert failed("Failed requests:        12\n") == "Failed requests: 12"
    assert failed("Failed requests:        0\nRequests/sec: 5") == ""
