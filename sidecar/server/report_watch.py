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
from sidecar.core.app_reports import ErrorReport, Heartbeat, Report, Results, Sample
from sidecar.core.explain.samples import MESSAGE_LIMIT
from sidecar.inputs.report_tap import Noted, ReportTap
from sidecar.net import web

_NUMBER: Final = re.compile(r"[0-9]{1,15}")

Row = dict[str, Any]
"""A row: ``at`` (Unix seconds), ``source``, ``what``, and the fields of that kind of report."""


def get_watch(tap: ReportTap) -> web.Handler:
    """Answers with the reports of ``tap``."""

    async def get(request: web.BaseRequest) -> web.Response:
        """The rows behind the number ``after``, the number for the next request, and how many reports are left out."""
        after = request.query.get("after")
        if after is not None and not _NUMBER.fullmatch(after):
            raise web.HttpError(HTTPStatus.BAD_REQUEST, "query", "after: takes the number of the answer before")
        start = None if after is None else int(after)
        count, noted = tap.watch(start)
        left_out = 0 if start is None else max(0, count - start - len(noted))
        return web.json_response({"next": count, "reports": rows(noted), "left_out": left_out})

    return get


def rows(noted: Iterable[Noted]) -> list[Row]:
    """A row for all reports that differ in their numbers only."""
    made = dict[str, Row]()
    for each in noted:
        fields = _fields(each.report)
        if fields is None:
            continue
        numbers = {name: value for name, value in fields.items() if type(value) is int}
        key = repr((each.source, {name: value for name, value in fields.items() if name not in numbers}))
        if (row := made.get(key)) is None:
            made[key] = {"at": round(each.at, 3), "source": each.source, **fields}
        else:
            row.update({name: row[name] + value for name, value in numbers.items()})
    return list(made.values())


def _fields(report: Report | str) -> Row | None:
    """What is shown of a report, messages redacted; None for one that is not shown."""
    if isinstance(report, str):
        return {"what": "refused", "count": 1, "message": redacted(report, MESSAGE_LIMIT)}
    if isinstance(report, ErrorReport):
        message = redacted(report.message, MESSAGE_LIMIT) if report.message else None
        row = {"what": "error", "count": report.errors, "kind": report.kind, "level": report.level.value}
        named = {"message": message, "fatal": report.fatal, "app_start": report.app_start}
        return row | {name: value for name, value in named.items() if value}
    if isinstance(report, Results):
        return {"what": "results", "ok": report.ok, "failed": report.failed}
    if isinstance(report, Sample):
        return {"what": "scrape", "requests": report.requests, "errors": report.errors}
    return {"what": "heartbeat", "count": 1} if isinstance(report, Heartbeat) else None
