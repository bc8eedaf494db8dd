from __future__ import annotations

import pytest

from bench import table, wire
from bench.table import Row

PAGE = f"above\n{table.BEGIN}\nold\n{table.END}\nbelow\n"


@pytest.mark.parametrize(
    ("percent", "expected"), [(0, 1), (1, 1), (50, 50), (99, 99), (99.5, 100), (100, 100)], ids=str
)
def test_percentile_is_the_nearest_rank(percent: float, expected: float) -> None:
    assert table.percentile([*range(100, 0, -1)], percent) == expected


def test_percentile_of_one_value_is_that_value() -> None:
    assert table.percentile([7.0], 99) == 7


def test_percentile_of_nothing_is_refused() -> None:
    with pytest.raises(ValueError, match="no values"):
        table.percentile([], 99)


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (0, "0"),
        (0.0123456, "0.0123"),
        (0.5, "0.5"),
        (0.999, "0.999"),
        (1.2345, "1.23"),
        (99.96, "100"),
        (120, "120"),
        (25_249.6, "25,250"),
        (-1.5, "-1.5"),
    ],
    ids=str,
)
def test_number_shows_three_figures_that_matter(value: float, text: str) -> None:
    assert table.number(value) == text


def test_spread_tells_median_least_and_most() -> None:
    assert table.spread([3, 1, 2]) == "2 (1 to 3)"


@pytest.mark.parametrize(
    ("target", "ours", "result"),
    [
        (table.at_most(10, "ms"), 10, "met"),
        (table.at_most(10, "ms"), 10.1, "**MISSED**"),
        (table.below(10, "ms"), 9.9, "met"),
        (table.below(10, "ms"), 10, "**MISSED**"),
        (table.at_least_of_baseline(0.9), 9, "met"),
        (table.at_least_of_baseline(0.9), 8.9, "**MISSED**"),
        (table.at_most_of_baseline(0.8), 8, "met"),
        (table.at_most_of_baseline(0.8), 8.1, "**MISSED**"),
        (None, 1, ""),
    ],
    ids=lambda value: value.text if isinstance(value, table.Target) else str(value),
)
def test_result_says_whether_the_target_holds(target: table.Target | None, ours: float, result: str) -> None:
    assert Row("figure", "ms", ours, 10, target).result == result


def test_ratio_needs_a_baseline() -> None:
    assert Row("figure", "ms", 1).ratio is None
    assert Row("figure", "ms", 1, 4).ratio == 0.25


def test_table_shows_figure_baseline_ratio_target_and_result() -> None:
    rows = [Row("pings", "/s", 18_000, 20_000, table.at_least_of_baseline(0.9)), Row("extra", "ms", 1.5)]
    assert table.markdown(rows, {}).splitlines()[2:] == [
        "| pings | 18,000 /s | 20,000 /s | 0.9 | ratio >= 0.9 | met |  |",
        "| extra | 1.5 ms |  |  |  |  |  |",
    ]


def test_reason_of_a_miss_survives_the_next_run_and_goes_with_the_miss() -> None:
    slow, quick = (Row("pings", "/s", ours, 100, table.at_least_of_baseline(0.9)) for ours in (80, 95))
    explained = table.markdown([slow], {"pings": "one core"})
    kept = table.reasons(table.with_results(PAGE, explained))
    assert kept == {"pings": "one core"}
    assert "one core" in table.markdown([slow], kept)
    assert "one core" not in table.markdown([quick], kept)


def test_results_go_between_the_markers_and_nowhere_else() -> None:
    assert table.with_results(PAGE, "new") == PAGE.replace("old", "new")


def test_page_without_markers_is_refused() -> None:
    with pytest.raises(ValueError, match="results: end"):
        table.with_results("no markers", "new")


@pytest.mark.parametrize(
    ("answer", "whole"),
    [
        (b"", False),
        (b"HTTP/1.1 204 No Content\r\n", False),
        (b"HTTP/1.1 204 No Content\r\n\r\n", True),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\nup", False),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\nup\n", True),
        (b"HTTP/1.1 200 OK\r\ncontent-length:3\r\n\r\nup\n", True),
    ],
    ids=["nothing", "half a head", "head only", "half a body", "all", "lower case"],
)
def test_answer_is_whole_when_its_body_has_come(answer: bytes, *, whole: bool) -> None:
    assert wire.is_whole(answer) is whole


@pytest.mark.parametrize(
    ("answer", "status"),
    [(b"HTTP/1.1 202 Accepted\r\n\r\n", 202), (b"", 0), (b"SSH-2.0-x", 0), (b"HTTP/1.1 oops", 0)],
    ids=["http", "nothing", "other protocol", "garbage"],
)
def test_status_is_zero_for_what_is_no_answer(answer: bytes, status: int) -> None:
    assert wire.status(answer) == status


def test_request_says_how_long_its_body_is() -> None:
    assert wire.request("POST", "/errors") == b"POST /errors HTTP/1.1\r\nHost: localhost\r\nContent-Length: 0\r\n\r\n"
    assert wire.request("POST", "/errors", "{}").endswith(b"Content-Length: 2\r\n\r\n{}")
    assert b"Content-Length" not in wire.request("GET", "/health")
