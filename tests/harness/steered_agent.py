"""An agent that says what it is told to: the sidecar's part, for tests of the balancer alone."""

from __future__ import annotations

import threading
from socketserver import StreamRequestHandler, ThreadingTCPServer
from typing import Self

from harness.ports import free_port

WELL = "up ready 100%"


class _Server(ThreadingTCPServer):
    daemon_threads = True
    allow_reuse_address = True


class SteeredAgent:
    """``line`` is what HAProxy hears, without the newline, as long as the context lasts."""

    def __init__(self, line: str = WELL) -> None:
        self.line = line
        self.port = free_port()
        self._server: _Server | None = None

    def __enter__(self) -> Self:
        agent = self

        class Handler(StreamRequestHandler):
            def handle(self) -> None:
                self.wfile.write(f"{agent.line}\n".encode())

        self._server = _Server(("127.0.0.1", self.port), Handler)
        threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def stop(self) -> None:
        """Be gone; a second call does nothing."""
        if self._server:
            self._server.shutdown()
            self._server.server_close()
            self._server = None

    def revive(self) -> None:
        """Be back at the same port, and all is well."""
        self.line = WELL
        self.__enter__()
