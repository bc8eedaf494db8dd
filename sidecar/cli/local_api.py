"""How a command asks the sidecar of this machine: one request at its local listener, by the standard library alone."""

from __future__ import annotations

import http.client
import json
import socket
from collections.abc import Iterator
from typing import Any, ClassVar, Final, NamedTuple

import click

from sidecar.cli.exit_codes import EXIT_FAILED, EXIT_NO_SIDECAR, EXIT_USAGE
from sidecar.cli.terminal import cause, complain
from sidecar.config import addresses
from sidecar.config.slices import Config
from sidecar.net.request_head import TAKES_NO_BODY
from sidecar.net.tls import KeyPair, certificate, client_context
from sidecar.net.token_file import Token

SLACK_S: Final = 8.0
"""Time that an answer may take beyond the time-out of Redis; the listener gives up before that."""

NOT_SERVED: Final = "is not served here"
"""The end of an error of a listener that does not have the path."""

ALONE: Final = "alone"
"""The error of a store in memory. There is no shared store, so nothing is missing."""

OK: Final = 200
_REFUSED: Final = range(400, 500)
_TCP: Final = "ARBITER_LOCAL_LISTEN"
_REPLY_LIMIT: Final = 16 << 20


class Reply(NamedTuple):
    """The answer of the sidecar: the HTTP status, and the JSON."""

    status: int
    value: dict[str, Any]


class NoSidecarError(click.ClickException):
    """No sidecar answers where the settings say; the message names them."""

    exit_code: ClassVar[int] = EXIT_NO_SIDECAR


def ask(config: Config, method: str, path: str, value: object = None) -> Reply:
    """Ask over the unix socket or else over TCP, wherever a sidecar is listening. Raises NoSidecarError."""
    failures = []
    for name, place, connection in _ways(config):
        try:
            connection.connect()
        except OSError as error:
            failures.append(f"no sidecar answers at {place} ({name}): {cause(error)}")
            continue
        needs_token = name == _TCP and method != "GET" and config.server.token_file
        headers = Token(config.server.token_file).headers if needs_token else {}
        try:
            reply = _exchange(connection, method, path, value, headers)
        except (OSError, http.client.HTTPException, ValueError) as error:
            raise NoSidecarError(f"{place} ({name}) does not answer as a sidecar does: {cause(error)}") from None
        finally:
            connection.close()
        if str(reply.value.get("error")).endswith((NOT_SERVED, TAKES_NO_BODY)):
            text = (
                f"{place} ({name}) looks like the public listener of a sidecar: {path.partition('?')[0]} {NOT_SERVED}"
            )
            raise NoSidecarError(f"{text}; ARBITER_LOCAL_LISTEN has to name its local listener")
        return reply
    raise NoSidecarError("; ".join(failures) or "no local listener to ask: set ARBITER_LOCAL_LISTEN or ARBITER_SOCKET")


def refused(reply: Reply, otherwise: str) -> int:
    """Print why the sidecar refused, or why the store did not answer it, and return the exit code."""
    if reply.status in _REFUSED:
        complain(str(reply.value.get("error")))
        return EXIT_USAGE
    complain(f"{reply.value.get('sentence', reply.value.get('error'))}: {otherwise}")
    return EXIT_FAILED


def _ways(config: Config) -> Iterator[tuple[str, str, http.client.HTTPConnection]]:
    server, timeout_s = config.server, config.redis.redis_timeout + SLACK_S
    if server.socket:
        yield "ARBITER_SOCKET", server.socket, _UnixConnection(server.socket, timeout_s)
    if server.local_listen != addresses.OFF:
        host, port = addresses.split(server.local_listen)
        tls = config.tls
        cert = tls.tls_cert if tls.covers("local") else ""
        own = KeyPair(tls.tls_cert, tls.tls_key) if tls.tls_client_ca else None
        yield _TCP, server.local_listen, _TcpConnection(host, port, timeout_s, cert, own)


def _exchange(
    connection: http.client.HTTPConnection, method: str, path: str, value: object, headers: dict[str, str]
) -> Reply:
    connection.request(method, path, None if value is None else json.dumps(value).encode(), headers)
    response = connection.getresponse()
    answer = json.loads(response.read(_REPLY_LIMIT))
    if not isinstance(answer, dict):
        raise ValueError("not an object")  # noqa: TRY004 - one error for all that is not an answer
    return Reply(response.status, answer)


class _UnixConnection(http.client.HTTPConnection):
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


class _TcpConnection(http.client.HTTPConnection):
    """HTTP over TCP, or over TLS with the server that shows the first certificate of the file ``cert``, and no other.

    That is stricter than a check of issuer and name, and it accepts an expired certificate. ``own``: the certificate
    that the command shows, with its key, if the server asks for one.
    """

    def __init__(self, host: str, port: int, timeout_s: float, cert: str, own: KeyPair | None) -> None:
        super().__init__(host, port, timeout=timeout_s)
        self._cert = cert
        self._own = own

    def connect(self) -> None:
        super().connect()
        if not self._cert:
            return
        secured = client_context(self._own).wrap_socket(self.sock, server_hostname=self.host)
        self.sock = secured
        if secured.getpeercert(binary_form=True) != certificate(self._cert):
            self.close()
            raise ConnectionError(f"it shows another certificate than {self._cert} (ARBITER_TLS_CERT) has")
