"""How a command asks the sidecar on this machine: one request at its local door, by the standard library alone."""

from __future__ import annotations

import http.client
import json
import socket
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from sidecar.cli.terminal import cause
from sidecar.config import addresses
from sidecar.net.heads import TAKES_NO_BODY

if TYPE_CHECKING:
    from collections.abc import Iterator

    from sidecar.config.settings import Settings

SLACK_S: Final = 8.0
"""What an answer may take beyond the time-out of Redis; the door gives up before that."""

NOT_SERVED: Final = "is not served here"
"""How the sentence of a door ends that has no such path."""

ALONE: Final = "alone"
"""The word for a bucket that is the sidecar's own: it has no other to tell or to ask, and nothing is missing."""

_TCP: Final = "ARBITER_LOCAL_LISTEN"
_LONGEST_REPLY: Final = 16 << 20


class Reply(NamedTuple):
    """What the door said, as JSON has it."""

    status: int
    value: dict[str, Any]


class NoSidecarError(Exception):
    """No sidecar answers where the settings say; the message names them."""


def ask(settings: Settings, method: str, path: str, value: object = None) -> Reply:
    """Ask over the unix socket or else over TCP, wherever one is listening. Raises NoSidecarError."""
    timeout_s = settings.redis_timeout + SLACK_S
    failures = []
    for name, place, connection in _ways(settings, timeout_s):
        try:
            connection.connect()
        except OSError as error:
            failures.append(f"no sidecar answers at {place} ({name}): {cause(error)}")
            continue
        try:
            reply = _exchange(connection, method, path, value, _headers(settings, name, method))
        except (OSError, http.client.HTTPException, ValueError) as error:
            raise NoSidecarError(f"{place} ({name}) does not answer as a sidecar does: {cause(error)}") from None
        finally:
            connection.close()
        if str(reply.value.get("error")).endswith((NOT_SERVED, TAKES_NO_BODY)):
            text = f"{place} ({name}) looks like the public door of a sidecar: {path.partition('?')[0]} {NOT_SERVED}"
            raise NoSidecarError(f"{text}; ARBITER_LOCAL_LISTEN has to name its local door")
        return reply
    raise NoSidecarError("; ".join(failures) or "no local door to ask at: ARBITER_LOCAL_LISTEN and ARBITER_SOCKET")


def _ways(settings: Settings, timeout_s: float) -> Iterator[tuple[str, str, http.client.HTTPConnection]]:
    if settings.socket:
        yield "ARBITER_SOCKET", settings.socket, _UnixConnection(settings.socket, timeout_s)
    if settings.local_listen != addresses.OFF:
        yield _TCP, settings.local_listen, _over_tcp(settings, timeout_s)


def _over_tcp(settings: Settings, timeout_s: float) -> http.client.HTTPConnection:
    host, port = addresses.split(settings.local_listen)
    if settings.tls_cert:
        from sidecar.net.tls import listed  # noqa: PLC0415 - few have a certificate

        if "local" in listed(settings.tls_doors):
            return _TlsConnection(host, port, timeout_s, settings.tls_cert)
    return http.client.HTTPConnection(host, port, timeout=timeout_s)


def _headers(settings: Settings, way: str, method: str) -> dict[str, str]:
    """The token, where an order needs it: over TCP."""
    if way != _TCP or method == "GET" or not settings.token_file:
        return {}
    from sidecar.net.token_file import Token  # noqa: PLC0415 - as above

    return Token(settings.token_file).headers


def _exchange(
    connection: http.client.HTTPConnection, method: str, path: str, value: object, headers: dict[str, str]
) -> Reply:
    connection.request(method, path, None if value is None else json.dumps(value).encode(), headers)
    response = connection.getresponse()
    answer = json.loads(response.read(_LONGEST_REPLY))
    if not isinstance(answer, dict):
        raise ValueError("not an object")  # noqa: TRY004 - one error for all that is not an answer
    return Reply(response.status, answer)


class _UnixConnection(http.client.HTTPConnection):
    """HTTP over a unix socket."""

    def __init__(self, path: str, timeout_s: float) -> None:
        super().__init__("localhost", timeout=timeout_s)
        self._path = path

    def connect(self) -> None:
        self.sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.sock.settimeout(self.timeout)
        try:
            self.sock.connect(self._path)
        except OSError:
            self.sock.close()
            raise


class _TlsConnection(http.client.HTTPConnection):
    """HTTP over TLS with whoever shows the first certificate of the file ``cert``, and nobody else.

    That is stricter than asking who has signed it and for which name, and it does not mind that it has expired.
    """

    def __init__(self, host: str, port: int, timeout_s: float, cert: str) -> None:
        super().__init__(host, port, timeout=timeout_s)
        self._cert = cert

    def connect(self) -> None:
        from sidecar.net.tls import certificate, client_context  # noqa: PLC0415 - as above

        super().connect()
        secured = client_context().wrap_socket(self.sock, server_hostname=self.host)
        self.sock = secured
        if secured.getpeercert(binary_form=True) != certificate(self._cert):
            self.close()
            raise ConnectionError(f"it shows another certificate than {self._cert} (ARBITER_TLS_CERT) has")
