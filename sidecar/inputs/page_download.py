"""Fetches a metrics page over HTTP: checks that it is a page, and yields its text in slices."""

from __future__ import annotations

import asyncio
import socket
import ssl
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager
from typing import Any, Final

from aiohttp import (
    AddrInfoType,
    BaseConnector,
    ClientResponse,
    ClientSession,
    ClientTimeout,
    DummyCookieJar,
    TCPConnector,
    UnixConnector,
)

from sidecar.config.addresses import Target

SLICE_BYTES: Final = 16_384
READ_BYTES: Final = 8_192
"""asyncio reads 256 KiB at once. Tiny chunks, or heads without a page, would fill 30 ms of one turn of the loop."""

OPENMETRICS: Final = "application/openmetrics-text"
TEXT: Final = "text/plain"
_OK: Final = 200


class MissError(Exception):
    """The response is no page, because of its status, redirect, content_type, encoding, or as too_large or cut_off."""


class _SmallReads(BaseConnector):
    """Bounds what one read of a connection takes, before the first byte is read."""

    async def connect(self, *request: Any, **options: Any) -> Any:
        connection = await super().connect(*request, **options)
        connection.transport.max_size = READ_BYTES  # type: ignore[union-attr]  # the name in all transports of asyncio
        return connection


class _TcpReads(_SmallReads, TCPConnector):
    """Over TCP."""


class _UnixReads(_SmallReads, UnixConnector):
    """Over a unix socket."""


def _tls_socket(address: AddrInfoType) -> socket.socket:
    """Make a socket with a small buffer: TLS decrypts all that the kernel holds, up to 256 KiB, in one turn."""
    family, kind, protocol, _, _ = address
    made = socket.socket(family, kind, protocol)
    made.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, READ_BYTES)
    return made


class PageClient:
    """Asks for one page again and again on one connection, which is kept for ``keep_s`` seconds.

    ``accept`` is the header; ``tls`` makes the context for https, in a thread, when it is first needed.
    """

    def __init__(self, target: Target, *, accept: str, keep_s: float, tls: Callable[[], ssl.SSLContext]) -> None:
        self._target = target
        self._accept = accept
        self._keep_s = keep_s
        self._tls = tls
        self._session: ClientSession | None = None

    async def get(self) -> AbstractAsyncContextManager[ClientResponse]:
        """Return the response as a context. Raises what aiohttp and the system raise."""
        if self._session is None:
            self._session = ClientSession(
                connector=await self._connector(),
                cookie_jar=DummyCookieJar(),
                timeout=ClientTimeout(total=None),
                auto_decompress=False,
                headers={"Accept": self._accept, "Accept-Encoding": "identity", "User-Agent": "health-arbiter"},
            )
        return self._session.get(self._target.url, allow_redirects=False)

    async def close(self) -> None:
        """Close the connection; the next page opens a new one."""
        session, self._session = self._session, None
        if session is not None:
            await session.close()

    async def _connector(self) -> BaseConnector:
        if self._target.socket:
            return _UnixReads(self._target.socket, limit=1, keepalive_timeout=self._keep_s)
        if not self._target.url.lower().startswith("https:"):
            return _TcpReads(limit=1, keepalive_timeout=self._keep_s)
        context = await asyncio.to_thread(self._tls)  # it loads the system's certificates, which takes long
        return TCPConnector(limit=1, keepalive_timeout=self._keep_s, ssl=context, socket_factory=_tls_socket)


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
    """The page's text, in slices; ``MissError`` beyond ``max_bytes``, and for text that is compressed all the same."""
    if response.headers.get("Content-Encoding", "identity").strip().lower() != "identity":
        raise MissError("encoding")
    size = 0
    async for received in response.content.iter_any():
        for begin in range(0, len(received), SLICE_BYTES):
            yield received[begin : begin + SLICE_BYTES]
        size += len(received)
        if size > max_bytes:
            raise MissError("too_large")
