from __future__ import annotations

from typing import Any

import pytest

from sidecar.cli.watch_command import as_text


@pytest.mark.parametrize(
    ("row", "shown"),
    [
        (
            {"source": "scrape", "what": "scrape", "errors": {}, "requests": 3},
            "scrape  counted    no new error; 3 requests",
        ),
        (
            {"source": "scrape", "what": "scrape", "errors": {"redis": 2}, "requests": 3},
            "scrape  counted    2 x redis; 3 requests",
        ),
        ({"source": "http", "what": "results", "ok": 0, "failed": 1}, "http    results    0 ok, 1 failed"),
        ({"source": "http", "what": "heartbeat", "count": 1}, "http    heartbeat"),
    ],
    ids=["scrape", "scraped errors", "results", "heartbeat"],
)
def test_row_says_its_source_and_what_came(row: dict[str, Any], shown: str) -> None:
    assert as_text({"at": 43_201.0, **row}) == f"12:00:01Z  {shown}"
