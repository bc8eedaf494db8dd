"""Reads a metrics page from an HTTP response: checks that it is a page, and yields its text inflated in slices."""

from __future__ import annotations

import zlib
from collections.abc import AsyncIterator, Callable, Iterator
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from aiohttp import ClientResponse

SLICE_BYTES: Final = 16_384
READ_BYTES: Final = 65_536
"""asyncio reads 256 KiB at once, in memory that the allocator takes from the system and returns every time."""

OPENMETRICS: Final = "application/openmetrics-text"
TEXT: Final = "text/plain"
_OK: Final = 200


class MissError(Exception):
    """The response is not a page, or is cut off; the message is one of ``scrape.CAUSES``."""


def is_openmetrics(response: ClientResponse) -> bool:
    """Whether the page is OpenMetrics; without a type it is text, as for old Prometheus."""
    if response.status != _OK:
        raise MissError("redirect" if response.status // 100 == 3 else "status")  # noqa: PLR2004 - 3xx
    content_type = response.content_type if "Content-Type" in response.headers else TEXT
    if content_type not in {OPENMETRICS, TEXT}:
        raise MissError("content_type")
    return content_type == OPENMETRICS


def has_length(response: ClientResponse) -> bool:
    """Whether HTTP itself shows that a page is cut off; otherwise the page ends with the connection."""
    return "Content-Length" in response.headers or "Transfer-Encoding" in response.headers


async def slices(response: ClientResponse, max_bytes: int) -> AsyncIterator[bytes]:
    """The page's text, in slices; ``MissError`` beyond ``max_bytes``, inflated or as it was sent."""
    inflate = _inflater(response)
    _limit_reads(response)
    sent = size = 0
    async for received in response.content.iter_any():
        sent += len(received)
        for piece in inflate(received):
            size += len(piece)
            yield piece
            if max(size, sent) > max_bytes:
                raise MissError("too_large")
    for piece in inflate(None):
        yield piece


def _limit_reads(response: ClientResponse) -> None:
    """Set the size of one read, if the response is not there as a whole yet."""
    transport = response.connection.transport if response.connection is not None else None
    if transport is not None:
        transport.max_size = READ_BYTES  # type: ignore[attr-defined]  # the name in all transports of asyncio


Inflate = Callable[[bytes | None], Iterator[bytes]]
"""Received bytes to slices of the page; None at the end, once."""


def _inflater(response: ClientResponse) -> Inflate:
    encoding = response.headers.get("Content-Encoding", "identity").strip().lower()
    if encoding in {"gzip", "x-gzip"}:
        return _Gzip().inflate
    if encoding != "identity":
        raise MissError("encoding")
    return _slices


def _slices(received: bytes | None) -> Iterator[bytes]:
    for begin in range(0, len(received or b""), SLICE_BYTES):
        yield (received or b"")[begin : begin + SLICE_BYTES]


class _Gzip:
    """Inflates in slices, so that the limit stops a gzip bomb."""

    def __init__(self) -> None:
        self._member = _member()

    def inflate(self, received: bytes | None) -> Iterator[bytes]:
        if received is None:
            if not self._member.eof:
                raise MissError("cut_off")
            return
        rest = received
        while rest:
            if self._member.eof:
                self._member = _member()
            try:
                piece = self._member.decompress(rest, SLICE_BYTES)
            except zlib.error:
                raise MissError("encoding") from None
            yield piece
            rest = self._member.unused_data if self._member.eof else self._member.unconsumed_tail


def _member() -> zlib._Decompress:
    return zlib.decompressobj(wbits=31)  # with gzip's head and checksum
