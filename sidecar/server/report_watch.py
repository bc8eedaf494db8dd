"""``GET /watch``: the app's newest reports, for a command that asks again and again.

Equal reports of one answer are one row. A flood of reports costs a bounded time and memory: what has come between two
requests beyond the bound of ``ReportTap`` is only counted.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from http import HTTPStatus
from typing import Any, Final

from sidecar.client.redaction import redacted
from sidecar.core.explain.samples import MESSAGE_LIMIT
from sidecar.core.types import ErrorReport, Heartbeat, Report, Results, Sample
from sidecar.inputs.report_tap import Noted, ReportTap
from sidecar.net import web

_NUMBER: Final = re.compile(r"[0-9]{1,15}")

Row = dict[str, Any]
"""A row: ``at`` (Unix seconds), ``source``, ``what``, and the fields of that kind of report."""


class ReportWatch:
    """Answers with the reports of ``tap``."""

    def __init__(self, tap: ReportTap) -> None:
        self._tap = tap

    async def get(self, request: web.BaseRequest) -> web.Response:
        """The rows behind the number ``after``, the number for the next request, and how many reports are left out."""
        after = request.query.get("after")
        if after is not None and not _NUMBER.fullmatch(after):
            raise web.HttpError(HTTPStatus.BAD_REQUEST, "query", "after: takes the number of the answer before")
        start = None if after is None else int(after)
        count, noted = self._tap.watch(start)
        left_out = 0 if start is None else max(0, count - start - len(noted))
        return web.json_response({"next": count, "reports": rows(noted), "left_out": left_out})


def rows(noted: Iterable[Noted]) -> list[Row]:
    """A row for all reports that differ in their numbers and the end of their message only."""
    made = dict[tuple[object, ...], Row]()
    for each in noted:
        key = _key(each.source, each.report)
        if key is None:
            continue
        if key in made:
            _add(made[key], each.report)
        else:
            made[key] = {"at": round(each.at, 3), "source": each.source, **_fields(each.report)}
    for row in made.values():
        if row.get("message"):
            row["message"] = redacted(row["message"], MESSAGE_LIMIT)
    return list(made.values())


def _key(source: str, report: Report | str) -> tuple[object, ...] | None:
    """What makes two reports one row; None for reports that are not shown."""
    if isinstance(report, str):
        return source, report
    if isinstance(report, ErrorReport):
        return source, report.kind, report.level, report.fatal, report.app_start, (report.message or "")[:40]
    return (source, type(report)) if isinstance(report, Results | Heartbeat | Sample) else None


def _fields(report: Report | str) -> Row:
    if isinstance(report, str):
        return {"what": "refused", "count": 1, "message": report}
    if isinstance(report, ErrorReport):
        row = {"what": "error", "count": report.errors, "kind": report.kind, "level": report.level.value}
        named = {"message": report.message, "fatal": report.fatal, "app_start": report.app_start}
        return row | {name: value for name, value in named.items() if value}
    if isinstance(report, Results):
        return {"what": "results", "ok": report.ok, "failed": report.failed}
    if isinstance(report, Sample):
        return {"what": "scrape", "requests": report.requests, "errors": dict(report.errors)}
    return {"what": "heartbeat", "count": 1}


def _add(row: Row, report: Report | str) -> None:
    if isinstance(report, ErrorReport):
        row["count"] += report.errors
        row.update({"message": report.message} if report.message else {})
    elif isinstance(report, Results):
        row["ok"] += report.ok
        row["failed"] += report.failed
    elif isinstance(report, Sample):
        row.update(_fields(report))
    else:
        row["count"] += 1
