"""The reports of a watcher: equal ones add up, a flood stays small, messages are redacted."""

from __future__ import annotations

from itertools import count
from typing import TYPE_CHECKING, Any

import pytest

from harness.local_http import serving
from harness.raw_http import Observed, RawConnection, get
from sidecar.core.app_reports import ErrorReport, Heartbeat, Results, Sample
from sidecar.inputs import report_tap
from sidecar.inputs.report_tap import MOST, ReportTap
from sidecar.server.report_watch import get_watch

if TYPE_CHECKING:
    from collections.abc import AsyncIterator


@pytest.fixture
async def tap() -> ReportTap:
    clock = count(1)
    return ReportTap(lambda: float(next(clock)))


@pytest.fixture
async def wire(tap: ReportTap) -> AsyncIterator[RawConnection]:
    async with (
        serving({"/watch": {"GET": get_watch(tap)}}, Observed()) as server,
        await RawConnection.to(server) as wire,
    ):
        yield wire


async def _watch(wire: RawConnection, after: int | None = None) -> dict[str, Any]:
    answer = await wire.ask(get("/watch" if after is None else f"/watch?after={after}"))
    assert answer.status == 200
    return dict(answer.json())


async def test_equal_reports_are_one_row_and_messages_are_redacted(tap: ReportTap, wire: RawConnection) -> None:
    begun = await _watch(wire)
    assert begun == {"next": 0, "reports": [], "left_out": 0}
    redis = ErrorReport(2, kind="redis", message="lost: password=hunter2")
    tap.note("http", [redis, redis, ErrorReport(kind="mysql"), Results(3, 1), Heartbeat()])
    tap.note("statsd", [redis, Results(1)])
    refused = "kind: token=hunter2 is bad"
    tap.note("http", [Results(1), Sample({"redis": 2}, 9), refused, refused])
    shown = await _watch(wire, begun["next"])
    common = {"at": 1.0, "what": "error", "level": "server_error"}
    message = {"message": "lost: password=***"}
    assert shown["reports"] == [
        {**common, "source": "http", "count": 4, "kind": "redis", **message},
        {**common, "source": "http", "count": 1, "kind": "mysql"},
        {"at": 1.0, "source": "http", "what": "results", "ok": 4, "failed": 1},
        {"at": 1.0, "source": "http", "what": "heartbeat", "count": 1},
        {**common, "at": 2.0, "source": "statsd", "count": 2, "kind": "redis", **message},
        {"at": 2.0, "source": "statsd", "what": "results", "ok": 1, "failed": 0},
        {"at": 3.0, "source": "http", "what": "scrape", "requests": 9, "errors": {"redis": 2}},
        {"at": 3.0, "source": "http", "what": "refused", "count": 2, "message": "kind: token=*** is bad"},
    ]
    assert (await _watch(wire, shown["next"]))["reports"] == [], "each report is shown once"


async def test_flood_is_only_counted(tap: ReportTap, wire: RawConnection) -> None:
    begun = await _watch(wire)
    tap.note("statsd", [ErrorReport(kind=f"k{number}") for number in range(MOST + 30)])
    shown = await _watch(wire, begun["next"])
    assert (len(shown["reports"]), shown["left_out"], shown["next"]) == (MOST, 30, MOST + 30)
    assert (await _watch(wire, shown["next"]))["left_out"] == 0


async def test_nothing_is_kept_that_nobody_watches(
    tap: ReportTap, wire: RawConnection, monkeypatch: pytest.MonkeyPatch
) -> None:
    is_taken = [True]
    offer = tap.tapped("statsd", lambda _: is_taken[0])
    assert offer([Heartbeat()])
    assert (await _watch(wire))["next"] == 0
    is_taken[0] = False
    assert not offer([Heartbeat()])
    assert (await _watch(wire, 0))["reports"] == [], "the inbox was full"
    monkeypatch.setattr(report_tap, "WATCHED_S", 0.0)
    is_taken[0] = True
    assert offer([Heartbeat()])
    assert len((await _watch(wire, 0))["reports"]) == 1
    assert (await _watch(wire, 0))["reports"] == [], "the watcher was away for too long"


async def test_number_that_cannot_be_one_is_refused(wire: RawConnection) -> None:
    assert (await wire.ask(get("/watch?after=-1"))).error == "after: takes the number of the answer before"
