"""A response that is always the same, written to the connection in one piece.

A response with headers and two writes would be a third of the cost of a report. One object serves all requests, because
it holds no data of any of them.
"""

from __future__ import annotations

from http import HTTPStatus

from aiohttp.abc import AbstractStreamWriter
from aiohttp.helpers import rfc822_formatted_time
from aiohttp.http import HttpVersion11

from sidecar.net import web


class FixedResponse:
    """``status`` with a JSON ``content``."""

    def __init__(self, status: HTTPStatus, content: bytes) -> None:
        self._status = status
        self._content = content
        self._in_one_piece = _OnePieceResponse(status, content)

    def to(self, request: web.BaseRequest) -> web.StreamResponse:
        """The response to this request: in one piece only if the client speaks HTTP/1.1 and keeps its connection."""
        if request.keep_alive and request.version == HttpVersion11:
            return self._in_one_piece
        return web.Response(body=self._content, status=self._status, content_type="application/json")


class _OnePieceResponse(web.StreamResponse):
    def __init__(self, status: HTTPStatus, content: bytes) -> None:
        super().__init__(status=status)
        self._head = (
            f"HTTP/1.1 {status.value} {status.phrase}\r\nContent-Type: application/json\r\n"
            f"Content-Length: {len(content)}\r\nDate: "
        )
        self._content = content
        self._date = ""
        self._piece = b""

    @property
    def keep_alive(self) -> bool:
        return True

    async def prepare(self, request: web.BaseRequest) -> AbstractStreamWriter:
        date = rfc822_formatted_time()
        if date != self._date:
            self._date = date
            self._piece = f"{self._head}{date}\r\n\r\n".encode() + self._content
        await request.writer.write(self._piece)
        return request.writer

    async def write_eof(self, data: bytes = b"") -> None:
        """Nothing: the piece is the whole response."""
