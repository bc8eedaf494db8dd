"""A sidecar some of whose doors speak TLS; whoever asks takes any certificate, and can be told which it was."""

from __future__ import annotations

import http.client
import ssl
from typing import TYPE_CHECKING

from harness.sidecar import Sidecar
from sidecar.net.tls import client_context, listed

if TYPE_CHECKING:
    from pathlib import Path

    from harness.sidecar import Setting

_TIMEOUT_S = 5.0


class SecuredSidecar(Sidecar):
    """A sidecar with ``tls_cert``, ``tls_key`` and ``tls_doors``; the last are asked over TLS."""

    def __init__(self, directory: Path, name: str = "a", **settings: Setting) -> None:
        super().__init__(directory, name, **settings)
        self._secured = listed(str(settings.get("tls_doors", "page")))

    def _connection(self, listener: str) -> http.client.HTTPConnection:
        if listener not in self._secured:
            return super()._connection(listener)
        host, port = self.address(listener)
        return http.client.HTTPSConnection(host, port, timeout=_TIMEOUT_S, context=client_context())

    def shown(self, listener: str = "") -> str:
        """The certificate that this door shows, as PEM; without a door the end of the output, as for any child."""
        return ssl.get_server_certificate(self.address(listener), timeout=_TIMEOUT_S) if listener else super().shown()
