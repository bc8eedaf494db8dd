"""Where a body that comes in chunks ends (RFC 9112, section 7.1), and that it has few of them. Pure.

Every chunk costs the server as much as a small request, so their number is bounded as well as their bytes.
"""

from __future__ import annotations

import re
from typing import Final

CHUNKS_LIMIT: Final = 128
_SIZE: Final = re.compile(rb"([0-9A-Fa-f]{1,8})\r\n")
_LINE_LIMIT: Final = 10


class TooManyChunksError(Exception):
    """The body has more than ``CHUNKS_LIMIT`` chunks."""


class Chunks:
    """Follows one body. What is no chunk is a ValueError; so are extensions and trailers, which nobody sends here."""

    def __init__(self) -> None:
        self.is_over = False
        self._line = b""
        self._left = 0
        self._count = 0
        self._is_last = False

    def take(self, data: bytes) -> int:
        """How many of these bytes are of the body."""
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
        """Take a line of which there may be only a part yet; where that ends."""
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
        """Know the next chunk by its size. The two bytes that end it belong to it."""
        self._count += 1
        if self._count > CHUNKS_LIMIT:
            raise TooManyChunksError(f"more than {CHUNKS_LIMIT} chunks")
        self._is_last = not size
        self._left = size + 2 if size else 0
