"""``GET /watch``: the app's reports as they arrive, as server-sent events (HTML, section 9.2).

A viewer gets the first report at once. Equal reports within ``PAUSE_S`` are added up, and different ones beyond
``ROWS`` are only counted, so a flood of reports costs a bounded time and memory per viewer.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable, Sequence
from http import HTTPStatus
from typing import Any, Final

from aiohttp import hdrs

from sidecar.client.redaction import redacted
from sidecar.core.explain.samples import MESSAGE_LIMIT
from sidecar.core.types import ErrorReport, Heartbeat, Report, Results, Sample
from sidecar.inputs.report_tap import ReportTap
from sidecar.net import web
from sidecar.server import callers
from sidecar.server.callers import Authorize

VIEWERS: Final = 4
ROWS: Final = 50
PAUSE_S: Final = 0.25
COMMENT_S: Final = 15.0
"""Interval of comments, so that no proxy closes an idle stream."""

SLOW_S: Final = 10.0
_HEADERS: Final = {
    hdrs.CONTENT_TYPE: "text/event-stream; charset=utf-8",
    hdrs.CACHE_CONTROL: "no-store",
    "X-Content-Type-Options": "nosniff",
}

Row = dict[str, Any]
"""One line for the viewer: ``at`` (Unix seconds), ``source``, ``what``, and the fields of that kind of report."""


class ReportStream:
    """Opens streams of the reports of ``tap``; ``wall`` is Unix time.

    With ``authorize`` a stream needs the token, and ends when the token is no longer valid.
    """

    def __init__(self, tap: ReportTap, wall: Callable[[], float], authorize: Authorize | None = None) -> None:
        self._tap = tap
        self._wall = wall
        self._authorize = authorize
        self._viewers = 0

    async def get(self, request: web.BaseRequest) -> web.StreamResponse:
        """A stream that lasts until the viewer closes it; ``HttpError`` without the token or with too many viewers."""
        await callers.check(request, self._authorize)
        if self._viewers >= VIEWERS:
            raise web.HttpError(
                HTTPStatus.SERVICE_UNAVAILABLE, "full", f"/watch: {VIEWERS} viewers are connected already"
            )
        self._viewers += 1

        async def is_allowed() -> bool:
            try:
                await callers.check(request, self._authorize)
            except web.HttpError:  # the response has begun, and can only end
                return False
            return True

        return _Viewer(request, self._tap, self._wall, is_allowed, self._closed)

    def _closed(self) -> None:
        self._viewers -= 1


class _Viewer(web.LongResponse):
    def __init__(
        self,
        request: web.BaseRequest,
        tap: ReportTap,
        wall: Callable[[], float],
        is_allowed: Callable[[], Awaitable[bool]],
        on_closed: Callable[[], None],
    ) -> None:
        super().__init__(on_closed)
        self.force_close()
        self.headers.update(_HEADERS)
        self._request = request
        self._is_allowed = is_allowed
        self._tap = tap
        self._wall = wall
        self._rows: dict[tuple[object, ...], Row] = {}
        self._left_out = 0
        self._arrived = asyncio.Event()

    async def send_until(self, ended: asyncio.Future[None]) -> None:
        """Send until ``ended`` is done, or until the viewer does not read."""
        self._tap.watchers.append(self.take)
        try:
            is_read = await self._send(b": reports follow as they arrive\n\n")
            while is_read and not ended.done() and await self._is_allowed():
                waiting = asyncio.ensure_future(self._arrived.wait())
                await asyncio.wait((ended, waiting), timeout=COMMENT_S, return_when=asyncio.FIRST_COMPLETED)
                waiting.cancel()
                is_read = await self._send(self._news() or b": nothing has arrived\n\n")
                await asyncio.wait((ended,), timeout=PAUSE_S)
        finally:
            self._tap.watchers.remove(self.take)

    def take(self, source: str, reports: Sequence[Report | str]) -> None:
        """Add reports to those that are sent next."""
        for report in reports:
            key = _key(source, report)
            if key is None:
                continue
            row = self._rows.get(key)
            if row is not None:
                _add(row, report)
            elif len(self._rows) < ROWS:
                self._rows[key] = {"at": round(self._wall(), 3), "source": source, **_fields(report)}
            else:
                self._left_out += 1
        if self._rows:
            self._arrived.set()

    def _news(self) -> bytes:
        rows, left_out = [*self._rows.values()], self._left_out
        self._rows.clear()
        self._left_out = 0
        self._arrived.clear()
        for row in rows:
            if row.get("message"):
                row["message"] = redacted(row["message"], MESSAGE_LIMIT)
        if left_out:
            rows.append({"at": round(self._wall(), 3), "source": "", "what": "left_out", "count": left_out})
        return "".join(f"data: {json.dumps(row)}\n\n" for row in rows).encode()

    async def _send(self, content: bytes) -> bool:
        """Send; return whether the viewer has read it in time."""
        try:
            async with asyncio.timeout(SLOW_S):
                await self.write(content)
        except TimeoutError:
            if self._request.transport is not None:
                self._request.transport.abort()  # a close would wait for a client that does not read
            return False
        return True


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
