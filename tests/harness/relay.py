"""A relay in front of Redis that can make claims vanish: on their way there, or the reply on its way back."""

from __future__ import annotations

import select
import socket
import threading
from contextlib import suppress
from typing import Literal, Self

from sidecar.budget import scripts

Where = Literal["nowhere", "request", "reply"]


class Relay:
    """Passes bytes between its own loopback port and ``target_port``.

    While ``lose_at`` is ``request``, a claim is read and not passed on; while it is ``reply``, the server gets it and
    its reply is read and not passed back. ``lost`` is set as soon as that has happened. Beats pass.
    """

    def __init__(self, target_port: int) -> None:
        self._target_port = target_port
        self._claim_sha = scripts.read()[0].sha.encode()
        self._listener = socket.create_server(("127.0.0.1", 0))
        self._sockets: list[socket.socket] = [self._listener]
        self.lose_at: Where = "nowhere"
        self.lost = threading.Event()

    @property
    def url(self) -> str:
        return f"redis://127.0.0.1:{self._listener.getsockname()[1]}/0"

    def __enter__(self) -> Self:
        threading.Thread(target=self._accept, daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        for opened in self._sockets:
            with suppress(OSError):
                opened.shutdown(socket.SHUT_RDWR)
            opened.close()

    def lose(self, where: Where) -> None:
        self.lost.clear()
        self.lose_at = where

    def _accept(self) -> None:
        with suppress(OSError):
            while True:
                client, _ = self._listener.accept()
                server = socket.create_connection(("127.0.0.1", self._target_port), 5)
                self._sockets += [client, server]
                threading.Thread(target=self._serve, args=(client, server), daemon=True).start()

    def _serve(self, client: socket.socket, server: socket.socket) -> None:
        """One exchange after the other, which is how a sidecar speaks; a long request may come in pieces."""
        is_claim = False
        with suppress(OSError), client, server:
            while True:
                ready, _, _ = select.select((client, server), (), ())
                source = ready[0]
                if not (piece := source.recv(65536)):
                    return
                if source is client:
                    is_claim = b"EVALSHA" in piece and self._claim_sha in piece
                if is_claim and self.lose_at == ("request" if source is client else "reply"):
                    self.lost.set()
                    continue
                (server if source is client else client).sendall(piece)
