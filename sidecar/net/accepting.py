"""A socket that listens, and takes few connections a turn of the loop.

asyncio's own server takes as many as wait, makes a task and a transport of each, and when no descriptor is left stands
still for a second. Here a connection may be answered before it costs any of that.
"""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable
from typing import Final

from sidecar.net.event_loop import context
from sidecar.net.sockets import BACKLOG

NO_ROOM_S: Final = 0.05
"""How long nobody is accepted when there is no descriptor, nor memory."""

Serve = Callable[[socket.socket], None]
Protocols = Callable[[], asyncio.BaseProtocol]


class Accepting:
    """Accepts at ``opened``, which is bound, and has ``serve`` deal with each connection.

    ``on_full`` is called when no descriptor is left. ``is_first``: the loop looks at it before all else.
    """

    def __init__(
        self,
        opened: socket.socket,
        serve: Serve,
        *,
        at_once: int,
        on_full: Callable[[], None] = lambda: None,
        is_first: bool = False,
    ) -> None:
        opened.settimeout(0)
        try:
            opened.listen(BACKLOG)
        except OSError:
            opened.close()
            raise
        self.socket = opened
        self._loop = asyncio.get_running_loop()
        self._serve = serve
        self._at_once = at_once
        self._on_full = on_full
        self._context = context(is_first=is_first)
        self._is_open = True
        self._timer: asyncio.TimerHandle | None = None
        self._listen()

    def stop(self) -> None:
        """Leave who waits to whoever else listens; the socket stays open."""
        self._is_open = False
        if self._timer is not None:
            self._timer.cancel()
        self._loop.remove_reader(self.socket)

    def close(self) -> None:
        """Stop, and close the socket. A second call does nothing."""
        if self.socket.fileno() >= 0:
            self.stop()
            self.socket.close()

    def _listen(self) -> None:
        if self._is_open:
            self._context.run(self._loop.add_reader, self.socket, self._accept)

    def _accept(self) -> None:
        for _ in range(self._at_once):
            try:
                connection, _address = self.socket.accept()
            except (BlockingIOError, InterruptedError, ConnectionAbortedError):
                return
            except OSError:
                self._on_full()
                self._loop.remove_reader(self.socket)
                self._timer = self._loop.call_later(NO_ROOM_S, self._listen)
                return
            connection.settimeout(0)
            self._serve(connection)


class Adopting:
    """Gives connections the transport and the protocol that serve them, in the loop's own time."""

    def __init__(self, on_failure: Callable[[Exception], None]) -> None:
        self._on_failure = on_failure
        self._loop = asyncio.get_running_loop()
        self._under_way: set[asyncio.Task[None]] = set()

    @property
    def is_busy(self) -> bool:
        """Whether any of them has no transport yet."""
        return bool(self._under_way)

    def __call__(self, connection: socket.socket, make: Protocols) -> None:
        """Serve this connection by the protocol that ``make`` makes."""
        task = self._loop.create_task(self.adopt(connection, make))
        self._under_way.add(task)
        task.add_done_callback(self._under_way.discard)

    async def adopt(self, connection: socket.socket, make: Protocols) -> None:
        """The same, and return once it is served."""
        try:
            await self._loop.connect_accepted_socket(make, connection)
        except OSError:
            connection.close()  # its client has gone
        except Exception as error:  # noqa: BLE001 - one connection must not cost the others
            connection.close()
            self._on_failure(error)
