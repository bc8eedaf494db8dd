"""All listeners of one sidecar."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Coroutine, Iterator

    from sidecar.inputs.datagram import Datagrams
    from sidecar.net.tls import ServerTls
    from sidecar.server.agent_check import AgentCheck
    from sidecar.server.local_server import LocalServer
    from sidecar.server.public import PublicServer


@dataclass
class Listeners:
    """The open listeners."""

    local: LocalServer
    public: PublicServer
    page: LocalServer | None = None
    agent: AgentCheck | None = None
    datagrams: Datagrams | None = None
    tls: ServerTls | None = None

    @property
    def http(self) -> list[LocalServer | PublicServer]:
        """The listeners that speak HTTP."""
        return [self.local, *([self.page] if self.page else []), self.public]

    def works(self) -> Iterator[Coroutine[None, None, None]]:
        """The coroutines that have to run while the listeners are open."""
        if self.tls is not None:
            yield self.tls.watch()

    def stop(self) -> None:
        """Close the listening sockets, so that another process can listen there. Connections stay open."""
        if self.agent is not None:
            self.agent.stop()
        if self.datagrams is not None:
            self.datagrams.close()
        for listener in self.http:
            listener.stop()

    async def close(self) -> None:
        """Stop, and close the connections; responses under way have a second to leave."""
        self.stop()
        for listener in self.http:
            await listener.close()
