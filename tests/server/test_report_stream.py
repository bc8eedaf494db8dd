"""The stream of reports: equal ones add up, a flood stays small, messages are redacted."""

from __future__ import annotations

import asyncio
import json
from typing import Any
from unittest.mock import Mock

from sidecar.core.types import AppExited, ErrorReport, Heartbeat, Report, Results, Sample
from sidecar.inputs.report_tap import ReportTap
from sidecar.server.report_stream import ROWS, _Viewer


def _viewer() -> _Viewer:
    return _Viewer(Mock(), ReportTap(), lambda: 1.0, Mock(), Mock())


def _news(viewer: _Viewer) -> list[dict[str, Any]]:
    """The rows that the viewer gets next."""
    return [json.loads(line[6:]) for line in viewer._news().decode().split("\n\n") if line]


def _sent(*batches: tuple[str, list[Report | str]]) -> list[dict[str, Any]]:
    """The rows that a viewer gets for these reports."""
    viewer = _viewer()
    for source, reports in batches:
        viewer.take(source, reports)
    return _news(viewer)


async def test_equal_reports_are_one_row_and_messages_are_redacted() -> None:
    redis = ErrorReport(2, kind="redis", message="lost: password=hunter2")
    rows = _sent(
        ("http", [redis, redis, ErrorReport(kind="mysql"), Results(3, 1), Heartbeat(), AppExited()]),
        ("statsd", [redis, Results(1)]),
        ("http", [Results(1), Sample({"redis": 2}, 9), "kind: token=hunter2 is bad", "kind: token=hunter2 is bad"]),
    )
    common = {"at": 1.0, "what": "error", "level": "server_error"}
    message = {"message": "lost: password=***"}
    assert rows == [
        {**common, "source": "http", "count": 4, "kind": "redis", **message},
        {**common, "source": "http", "count": 1, "kind": "mysql"},
        {"at": 1.0, "source": "http", "what": "results", "ok": 4, "failed": 1},
        {"at": 1.0, "source": "http", "what": "heartbeat", "count": 1},
        {**common, "source": "statsd", "count": 2, "kind": "redis", **message},
        {"at": 1.0, "source": "statsd", "what": "results", "ok": 1, "failed": 0},
        {"at": 1.0, "source": "http", "what": "scrape", "requests": 9, "errors": {"redis": 2}},
        {"at": 1.0, "source": "http", "what": "refused", "count": 2, "message": "kind: token=*** is bad"},
    ]


async def test_flood_of_different_reports_is_only_counted() -> None:
    viewer = _viewer()
    viewer.take("statsd", [ErrorReport(kind=f"k{number}") for number in range(ROWS + 30)])
    rows = _news(viewer)
    assert len(rows) == ROWS + 1
    assert rows[-1] == {"at": 1.0, "source": "", "what": "left_out", "count": 30}
    viewer.take("statsd", [Heartbeat()])
    assert [row["what"] for row in _news(viewer)] == ["heartbeat"], "what was left out before is not told again"


async def test_tap_shows_what_was_taken_to_watchers_only() -> None:
    tap, is_taken, seen = ReportTap(), [True], []
    offer = tap.tapped("statsd", lambda _: is_taken[0])
    assert offer([Heartbeat()])
    tap.watchers.append(lambda source, reports: seen.append((source, *reports)))
    assert offer([Heartbeat()])
    is_taken[0] = False
    assert not offer([Heartbeat()])
    assert seen == [("statsd", Heartbeat())]
    await asyncio.sleep(0)
