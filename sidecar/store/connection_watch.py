"""Notices that a connection to Redis has ended: the server behind the next one may be another process."""

from __future__ import annotations

from typing import Any
from weakref import WeakSet

from sidecar.store.bounded_parser import BoundedParser


class ConnectionWatch:
    """Whether a connection of one client has ended, closed by either side, since ``forget`` was called last."""

    def __init__(self) -> None:
        self._open: WeakSet[_WatchedParser] = WeakSet()
        self._has_ended = False

    def parser(self, socket_read_size: int) -> BoundedParser:
        """A parser for a connection that is watched."""
        return _WatchedParser(socket_read_size, self)

    def opened(self, parser: _WatchedParser) -> None:
        """Watch the connection of this parser."""
        self._open.add(parser)

    def closed(self, parser: _WatchedParser) -> None:
        """Remember that the connection of this parser was closed, if it was open."""
        self._has_ended = self._has_ended or parser in self._open
        self._open.discard(parser)

    def has_ended(self) -> bool:
        """Whether a connection was closed here, or by the server while it was idle."""
        return self._has_ended or any(parser.is_at_end() for parser in self._open)

    def forget(self) -> None:
        """Take the connections that are open now for those to watch."""
        self._has_ended = False


class _WatchedParser(BoundedParser):
    def __init__(self, socket_read_size: int, watch: ConnectionWatch) -> None:
        super().__init__(socket_read_size)
        self._watch = watch

    def on_connect(self, connection: Any) -> None:
        super().on_connect(connection)
        self._watch.opened(self)

    def on_disconnect(self) -> None:
        super().on_disconnect()
        self._watch.closed(self)

    def is_at_end(self) -> bool:
        """Whether the server has closed or reset the connection."""
        return bool(self._stream.at_eof()) or self._stream.exception() is not None
