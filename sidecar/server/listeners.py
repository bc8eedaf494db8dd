"""All listeners of one sidecar."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Coroutine, Iterator

    from sidecar.inputs.datagram import Datagrams
    from sidecar.net.acceptor import Acceptor
    from sidecar.net.listener import Listener
    from sidecar.net.tls import ServerTls


@dataclass
class Listeners:
    """The open listeners."""

    local: Listener
    public: Listener
    page: Listener | None = None
    agents: list[Acceptor] = field(default_factory=list)
    datagrams: Datagrams | None = None
    tls: ServerTls | None = None

    @property
    def http(self) -> list[Listener]:
        """The listeners that speak HTTP."""
        return [self.local, self.public, *([self.page] if self.page else [])]

    def works(self) -> Iterator[Coroutine[None, None, None]]:
        """The coroutines that have to run while the listeners are open."""
        yield from (listener.sweep() for listener in self.http)
        if self.tls is not None:
            yield self.tls.watch()

    def stop(self) -> None:
        """Close the listening sockets, so that another process can listen there. Connections stay open."""
        for agent in self.agents:
            agent.close()
        if self.datagrams is not None:
            self.datagrams.close()
        for listener in self.http:
            listener.stop()

    async def close(self) -> None:
        """Stop, and close the connections; responses under way have a second to leave."""
        self.stop()
        for listener in self.http:
            await listener.close()
