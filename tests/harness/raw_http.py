"""A listener in this process, and raw HTTP to it, valid or not."""

from __future__ import annotations

import asyncio
import json
import socket
import struct
from contextlib import suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol, Self

from sidecar.config.addresses import split

if TYPE_CHECKING:
    from collections.abc import Mapping

_TIMEOUT_S = 60.0
_RESET = struct.pack("ii", 1, 0)


@dataclass
class Observed:
    """The callbacks of a listener: refused clients, failures, and exceptions that asyncio reported."""

    refusals: list[tuple[str, str]] = field(default_factory=list)
    failures: list[Exception] = field(default_factory=list)
    unhandled: list[dict[str, Any]] = field(default_factory=list)

    def refused(self, listener: str, word: str) -> None:
        self.refusals.append((listener, word))

    @property
    def words(self) -> list[str]:
        return [word for _, word in self.refusals]


class HasAddresses(Protocol):
    """A listener of any kind."""

    @property
    def addresses(self) -> list[str]:
        """Where it listens, as people write it."""


class Answer(NamedTuple):
    """One HTTP response; names of headers are in lower case."""

    status: int
    headers: Mapping[str, str]
    body: bytes

    def json(self) -> Any:
        return json.loads(self.body)

    @property
    def error(self) -> str:
        """The sentence of a refusal; its body must have nothing else."""
        (item,) = self.json().items()
        assert item[0] == "error"
        return str(item[1])


class RawConnection:
    """One connection, byte by byte. Every wait ends after a minute, more than a busy machine needs."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer

    @classmethod
    async def to(cls, listener: HasAddresses, *, source: str | None = None, at: int = 0, **options: Any) -> Self:
        """Connect to the listener's address number ``at``, from the address ``source``; ``options`` are asyncio's."""
        address = listener.addresses[at]
        if address.startswith("/"):
            return cls(*await asyncio.open_unix_connection(address))
        local = (source, 0) if source else None
        return cls(*await asyncio.open_connection(*split(address), local_addr=local, **options))

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        self.close()

    async def send(self, data: bytes) -> None:
        self._writer.write(data)
        with suppress(ConnectionError):
            await self._writer.drain()

    async def answer(self, *, to_head: bool = False) -> Answer:
        """The next response; ``to_head``: it has no body, whatever its Content-Length is."""
        async with asyncio.timeout(_TIMEOUT_S):
            head = (await self._reader.readuntil(b"\r\n\r\n")).decode("latin-1")
            first, *lines = head.rstrip().split("\r\n")
            pairs = (line.partition(": ") for line in lines)
            headers = {name.lower(): value for name, _, value in pairs}
            length = 0 if to_head else int(headers.get("content-length", "0"))
            return Answer(int(first.split()[1]), headers, await self._reader.readexactly(length))

    async def ask(self, request: bytes) -> Answer:
        """Send a request; the response to it."""
        await self.send(request)
        return await self.answer(to_head=request.startswith(b"HEAD "))

    async def rest(self) -> bytes:
        """Every byte until the end of the connection, however it ends."""
        taken = bytearray()
        async with asyncio.timeout(_TIMEOUT_S):
            with suppress(ConnectionError):
                while piece := await self._reader.read(65536):
                    taken += piece
        return bytes(taken)

    def stops_reading(self) -> None:
        """Read nothing, so that the other side cannot send more than the buffers of the system take."""
        self._writer.transport.pause_reading()  # type: ignore[attr-defined]  # it is that of a connection

    def reads_on(self) -> None:
        """Read again."""
        self._writer.transport.resume_reading()  # type: ignore[attr-defined]  # as above

    @property
    def ended(self) -> bool:
        """Whether the other side has ended the connection."""
        return self._reader.at_eof() or self._reader.exception() is not None

    def close(self) -> None:
        self._writer.close()

    def reset(self) -> None:
        """End the connection with RST, as a crash does."""
        self._writer.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET)
        self._writer.transport.abort()


def post(path: str, body: bytes = b"", *headers: str) -> bytes:
    """A POST as bytes."""
    return _request("POST", path, body, f"Content-Length: {len(body)}", *headers)


def chunked(path: str, *chunks: bytes) -> bytes:
    """A POST whose body comes in chunks and says no length."""
    body = b"".join(b"%x\r\n%s\r\n" % (len(chunk), chunk) for chunk in (*chunks, b""))
    return _request("POST", path, body, "Transfer-Encoding: chunked")


def get(path: str, *headers: str, method: str = "GET") -> bytes:
    """A request without a body, as bytes."""
    return _request(method, path, b"", *headers)


def _request(method: str, path: str, body: bytes, *headers: str) -> bytes:
    host = () if any(header.lower().startswith("host:") for header in headers) else ("Host: localhost",)
    return "\r\n".join((f"{method} {path} HTTP/1.1", *host, *headers, "", "")).encode("latin-1") + body
