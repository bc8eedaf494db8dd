"""A TCP proxy in front of Redis that can lose claims or their replies."""

from __future__ import annotations

import select
import socket
import threading
from contextlib import suppress
from typing import Final, Literal, Self

from sidecar.store.redis_content import COMMIT

Where = Literal["nowhere", "request", "reply"]

_GRANT: Final = 3 + len(COMMIT.keys) + 1
"""The position of the claim id in a commit: after EVALSHA, the digest, the number of keys, the keys, the revision."""


class RedisProxy:
    """Passes bytes between its own loopback port and ``target_port``.

    While ``lose_at`` is ``request``, a commit that takes a token does not reach the server; while it is ``reply``, the
    reply does not reach the client. ``lost`` is set once that has happened. Beats always pass.
    """

    def __init__(self, target_port: int) -> None:
        self._target_port = target_port
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
        for opened in self._sockets:  # their own thread closes them: it may wait for them at this moment
            with suppress(OSError):
                opened.shutdown(socket.SHUT_RDWR)

    def lose(self, where: Where) -> None:
        self.lost.clear()
        self.lose_at = where

    def _accept(self) -> None:
        with suppress(OSError), self._listener:
            while True:
                client, _ = self._listener.accept()
                try:
                    server = socket.create_connection(("127.0.0.1", self._target_port), 5)
                except OSError:
                    client.close()
                    continue
                self._sockets += [client, server]
                threading.Thread(target=self._serve, args=(client, server), daemon=True).start()

    def _serve(self, client: socket.socket, server: socket.socket) -> None:
        """Pass one exchange after the other, as a sidecar sends them; a long request may come in pieces."""
        is_claim = False
        with suppress(OSError), client, server:
            while True:
                ready, _, _ = select.select((client, server), (), ())
                source = ready[0]
                if not (piece := source.recv(65536)):
                    return
                if source is client:
                    is_claim = _takes_a_token(piece)
                if is_claim and self.lose_at == ("request" if source is client else "reply"):
                    self.lost.set()
                    continue
                (server if source is client else client).sendall(piece)


def _takes_a_token(request: bytes) -> bool:
    fields = request.split(b"\r\n")[2::2]  # every other line is a length
    is_commit = fields[:2] == [b"EVALSHA", COMMIT.sha.encode()]
    return is_commit and len(fields) > _GRANT and bool(fields[_GRANT])
