"""An answer that is the same each time, written in one piece.

Building a response, its headers and two writes anew is a third of what a report costs. One object serves any number of
requests: it holds nothing of any of them.
"""

from __future__ import annotations

from http import HTTPStatus

from aiohttp.abc import AbstractStreamWriter
from aiohttp.helpers import rfc822_formatted_time
from aiohttp.http import HttpVersion11

from sidecar.net import web


class Prepared:
    """``status`` with a JSON ``content``."""

    def __init__(self, status: HTTPStatus, content: bytes) -> None:
        self._status = status
        self._content = content
        self._whole = _Whole(status, content)

    def to(self, request: web.BaseRequest) -> web.StreamResponse:
        """The answer to this request. Only a client that keeps its connection gets the piece made before."""
        if request.keep_alive and request.version == HttpVersion11:
            return self._whole
        return web.Response(body=self._content, status=self._status, content_type="application/json")


class _Whole(web.StreamResponse):
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
        """Nothing: the piece has its end."""
