"""All listeners of one sidecar, and how they pass their sockets and connections on to another process."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import socket
    from collections.abc import Coroutine, Iterator

    from sidecar.inputs.datagram import Datagrams
    from sidecar.net.acceptor import Acceptor
    from sidecar.net.listener import Listener
    from sidecar.net.tls import ServerTls


@dataclass
class Listeners:
    """The open listeners. Sockets go by the name of their setting, connections by the name of their listener."""

    local: Listener
    public: Listener
    page: Listener | None = None
    agents: list[Acceptor] = field(default_factory=list)
    datagrams: Datagrams | None = None
    tls: ServerTls | None = None
    are_left: bool = False

    @property
    def http(self) -> list[Listener]:
        """The listeners that speak HTTP."""
        return [self.local, self.public, *([self.page] if self.page else [])]

    def descriptors(self) -> list[tuple[int, str]]:
        """Every socket on which another process could listen, with the name of its setting."""
        datagrams = self.datagrams.descriptors if self.datagrams else []
        return [
            *((opened, "public_listen") for opened, _ in self.public.descriptors),
            *((opened, "page_listen") for opened, _ in (self.page.descriptors if self.page else ())),
            *((opened, "socket" if at.startswith("/") else "local_listen") for opened, at in self.local.descriptors),
            *((opened, "statsd_socket" if at.startswith("/") else "statsd_listen") for opened, at in datagrams),
            *((agent.socket.fileno(), "agent_listen") for agent in self.agents),
        ]

    def accept_no_more(self) -> None:
        """Leave waiting clients to the successor, which has the same sockets; close no socket and remove no file."""
        self.are_left = True
        for listener in self.http:
            listener.accept_no_more()
        for agent in self.agents:
            agent.stop()
        if self.datagrams is not None:
            self.datagrams.let_go()

    def let_go(self) -> list[tuple[str, socket.socket]]:
        """Pass on the connections that are between two requests, each with the name of its listener."""
        return [(listener.name, connection) for listener in self.http for connection in listener.let_go()]

    @property
    def is_busy(self) -> bool:
        """Whether there is still a connection without a long response."""
        return any(listener.is_busy for listener in self.http)

    async def adopt(self, name: str, connection: socket.socket) -> None:
        """Serve a connection that another process has passed on under this name."""
        for listener in self.http:
            if listener.name == name:
                await listener.adopt_connection(connection)

    def works(self) -> Iterator[Coroutine[None, None, None]]:
        """The coroutines that have to run while the listeners are open."""
        yield from (listener.sweep() for listener in self.http)
        if self.tls is not None:
            yield self.tls.watch()

    async def close(self) -> None:
        """Close everything that is open; responses under way have a second to leave."""
        for agent in self.agents:
            agent.close()
        if self.datagrams is not None:
            self.datagrams.close(keep_paths=self.are_left)
        for listener in self.http:
            await listener.close(keep_paths=self.are_left)
