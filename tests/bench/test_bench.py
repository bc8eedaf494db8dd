"""The benchmark's own parts: statistics, the table, HTTP, and the commands that a crowd of sidecars sends."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from bench import table, wire
from bench.crowd import PING, Crowd
from bench.fleet import Service
from bench.table import Row
from harness.waiting import wait_for
from sidecar.core.types import Presence

if TYPE_CHECKING:
    from harness.redis_server import RedisServer

PAGE = f"above\n{table.BEGIN}\nold\n{table.END}\nbelow\n"
FAST = table.at_least_of_baseline(0.9)


def test_percentile_is_the_nearest_rank_and_spread_has_median_minimum_and_maximum() -> None:
    expected = {0: 1, 1: 1, 50: 50, 99: 99, 99.5: 100, 100: 100}
    assert {percent: table.percentile([*range(100, 0, -1)], percent) for percent in expected} == expected
    with pytest.raises(ValueError, match="no values"):
        table.percentile([], 99)
    assert table.spread([3, 1, 2]) == "2 (1 to 3)"


def test_number_has_three_significant_digits() -> None:
    expected = {0: "0", 0.0123456: "0.0123", 0.999: "0.999", 99.96: "100", 120: "120", 25_249.6: "25,250", -1.5: "-1.5"}
    assert {value: table.number(value) for value in expected} == expected


@pytest.mark.parametrize(
    ("target", "met", "missed"),
    [
        (table.at_most(10, "ms"), 10, 10.1),
        (table.below(10, "ms"), 9.9, 10),
        (FAST, 9, 8.9),
        (table.at_most_of_baseline(0.8), 8, 8.1),
    ],
    ids=lambda value: value.text if isinstance(value, table.Target) else str(value),
)
def test_result_is_met_or_missed(target: table.Target, met: float, missed: float) -> None:
    assert [Row("figure", "ms", ours, 10, target).result for ours in (met, missed)] == ["met", "**MISSED**"]


def test_table_keeps_the_reason_of_a_figure_while_it_is_missed() -> None:
    slow, quick = (Row("pings", "/s", ours, 100, FAST) for ours in (80, 95))
    page = table.with_results(PAGE, table.markdown([slow, Row("extra", "ms", 1.5)], {"pings": "one core"}))
    assert "| pings | 80 /s | 100 /s | 0.8 | ratio >= 0.9 | **MISSED** | one core |\n" in page
    assert "| extra | 1.5 ms |  |  |  |  |  |\n" in page
    assert page.startswith("above\n")
    assert page.endswith("\nbelow\n")
    assert "one core" not in table.markdown([quick], table.reasons(page))
    with pytest.raises(ValueError, match="results: end"):
        table.with_results("no markers", "new")


@pytest.mark.parametrize(
    ("answer", "is_whole", "status"),
    [
        (b"", False, 0),
        (b"SSH-2.0-x", False, 0),
        (b"HTTP/1.1 204 No Content\r\n", False, 204),
        (b"HTTP/1.1 204 No Content\r\n\r\n", True, 204),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\nup", False, 200),
        (b"HTTP/1.1 200 OK\r\ncontent-length:3\r\n\r\nup\n", True, 200),
    ],
)
def test_answer_is_whole_with_its_body(answer: bytes, *, is_whole: bool, status: int) -> None:
    assert (wire.is_whole(answer), wire.status(answer)) == (is_whole, status)


def test_crowd_sends_what_the_sidecars_would_send(redis_server: RedisServer) -> None:
    service = Service(redis_server.url, "shop", 5)
    with Crowd(("127.0.0.1", redis_server.port), 5) as crowd:
        crowd.all_once(service.beats())
        crowd.all_once(service.beats(Presence.SUSPECT, [1, 2]))
        wait_for(lambda: crowd.race([PING], 0.05), timeout_s=60, what="pings are answered")
        wait_for(lambda: crowd.pace([PING], 200, 0.05), timeout_s=60, what="evenly sent pings are answered")
        with pytest.raises(RuntimeError, match="ERR"):
            crowd.all_once([b"*1\r\n$5\r\nWRONG\r\n"])
    assert redis_server.cli("ZCARD", f"{service.prefix}:alive") == 5
    assert redis_server.cli("HGETALL", f"{service.prefix}:causes") == {"redis": "2"}
