"""Answers most health polls with one read and one write on the new socket, without a transport."""

from __future__ import annotations

import socket
from collections.abc import Callable
from contextlib import suppress
from typing import Final

from sidecar.net.connection import READ_BYTES, ResponseCache
from sidecar.net.request_head import END, BadHeadError, HeadParser, error_response, refuse_hopeless

FIRST_BYTES: Final = 5 * 1024
"""Bytes of the first read: more than a poll or a request line has, and few to search if they are neither."""


class FastPath:
    """Answers a new connection if its first bytes are a plain request with a cached response, or no valid request."""

    def __init__(
        self, heads: HeadParser, response_cache: ResponseCache | None, on_refusal: Callable[[str], None]
    ) -> None:
        self._heads = heads
        self._response_cache = response_cache
        self._on_refusal = on_refusal

    def read(self, connection: socket.socket) -> bytes | None:
        """The bytes that need a transport; None if the connection is answered and closed."""
        try:
            received = connection.recv(FIRST_BYTES)
        except BlockingIOError:
            return b""
        except OSError:
            received = b""
        if received:
            response, keeps = self._response_to(received)
            if response is None:
                return received
            with suppress(OSError):
                if connection.send(response) == len(response) and keeps:
                    return b""
                if len(received) == FIRST_BYTES:
                    connection.recv(READ_BYTES)  # closing a socket with unread bytes would destroy the response
        connection.close()
        return None

    def _response_to(self, received: bytes) -> tuple[bytes | None, bool]:
        """The response, None without a cached one; and whether the client keeps its connection."""
        end = received.find(END) + len(END)
        try:
            if end < len(END):
                refuse_hopeless(received)
                return None, False
            head = self._heads.read(received[:end])
        except BadHeadError as error:
            self._on_refusal(error.word)
            return error_response(error), False
        if self._response_cache is None or not head.is_plain or end < len(received):
            return None, False
        return self._response_cache(head), head.keeps
