"""Finds the end of a chunked body (RFC 9112, section 7.1), and bounds the number of its chunks. Pure.

Each chunk costs the server as much as a small request, so their number is bounded as well as their bytes.
"""

from __future__ import annotations

import re
from typing import Final

CHUNKS_LIMIT: Final = 128
_SIZE: Final = re.compile(rb"([0-9A-Fa-f]{1,8})\r\n")
_LINE_LIMIT: Final = 10


class TooManyChunksError(Exception):
    """The body has more than ``CHUNKS_LIMIT`` chunks."""


class ChunkedBody:
    """Follows one body. Anything but chunks is a ValueError, as are extensions and trailers."""

    def __init__(self) -> None:
        self.is_over = False
        self._line = b""
        self._left = 0
        self._count = 0
        self._is_last = False

    def take(self, data: bytes) -> int:
        """The number of these bytes that belong to the body."""
        at = 0
        while at < len(data) and not self.is_over:
            if self._left:
                step = min(self._left, len(data) - at)
                self._left -= step
                at += step
            elif (size := _SIZE.match(data, at)) and not (self._line or self._is_last):
                at = size.end()
                self._begin(int(size[1], 16))
            else:
                at = self._read_line(data, at)
        return at

    def _read_line(self, data: bytes, at: int) -> int:
        """Take a line, or the part of it that has come; return the index behind it."""
        end = data.find(b"\n", at, at + _LINE_LIMIT)
        to = min(len(data), at + _LINE_LIMIT) if end < 0 else end + 1
        line = self._line = self._line + data[at:to]
        if end >= 0:
            self._line = b""
            self._end_line(line)
        elif len(line) > _LINE_LIMIT:
            raise ValueError("no chunk")
        return to

    def _end_line(self, line: bytes) -> None:
        size = _SIZE.fullmatch(line)
        if self._is_last and line == b"\r\n":
            self.is_over = True
        elif size is None or self._is_last:
            raise ValueError("no chunk")
        else:
            self._begin(int(size[1], 16))

    def _begin(self, size: int) -> None:
        """Begin the next chunk. The two bytes that end it belong to it."""
        self._count += 1
        if self._count > CHUNKS_LIMIT:
            raise TooManyChunksError(f"more than {CHUNKS_LIMIT} chunks")
        self._is_last = not size
        self._left = size + 2 if size else 0
