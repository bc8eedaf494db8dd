"""How a command asks a sidecar, by the standard library alone.

It asks that of this machine at its local listener, or with ``--url`` another one at its page listener.
"""

from __future__ import annotations

import http.client
import json
import socket
from collections.abc import Iterator
from contextlib import closing
from typing import Any, ClassVar, Final, NamedTuple

import click

from sidecar.cli import remote
from sidecar.cli.exit_codes import EXIT_FAILED, EXIT_NO_SIDECAR, EXIT_USAGE
from sidecar.cli.terminal import cause, complain
from sidecar.config import addresses
from sidecar.config.settings import Config
from sidecar.net.client_tls import KeyPair, certificate, client_context
from sidecar.server.public_request import TAKES_NO_BODY

SLACK_S: Final = 8.0
"""Time that an answer may take beyond the time-out of Redis; the listener gives up before that."""

NOT_SERVED: Final = "is not served here"
"""The end of an error of a listener that does not have the path."""

ALONE: Final = "alone"
"""The error of a store in memory. There is no shared store, so nothing is missing."""

OK: Final = 200
NO_TOKEN: Final = 401
_REFUSED: Final = range(400, 500)
_TCP: Final = "ARBITER_LOCAL_LISTEN"
_REPLY_LIMIT: Final = 16 << 20


class Reply(NamedTuple):
    """The answer of the sidecar: the HTTP status, and the JSON."""

    status: int
    value: dict[str, Any]


class SidecarAddress(NamedTuple):
    """Where a sidecar is asked: the setting or option that names the place, and the path before all others."""

    name: str
    place: str
    prefix: str = ""

    def __str__(self) -> str:
        return f"{self.place} ({self.name})"

    @property
    def is_remote(self) -> bool:
        """Whether ``--url`` names it."""
        return self.name == "--url"

    def unserved(self, path: str) -> click.ClickException:
        """The error about a path that this listener does not have."""
        if not self.is_remote:
            text = f"{self} looks like the public listener of a sidecar: {path} {NOT_SERVED}"
            return NoSidecarError(f"{text}; ARBITER_LOCAL_LISTEN has to name its local listener")
        if path in ("/cull", "/revive"):
            order = f"{path[1:]} is an order for one container; give it on that container's machine"
            return click.UsageError(f"{self}: {order}")
        named = "--url has to name the page listener (ARBITER_PAGE_LISTEN) of a sidecar"
        return NoSidecarError(f"{self}: {path} {NOT_SERVED}; {named}")


class NoSidecarError(click.ClickException):
    """No sidecar answers where the settings say; the message names them."""

    exit_code: ClassVar[int] = EXIT_NO_SIDECAR


def ask(config: Config, method: str, path: str, value: object = None, timeout_s: float | None = None) -> Reply:
    """Ask the sidecar of ``--url``, or the local one over the unix socket or else over TCP, and return its answer.

    An answer may take ``timeout_s`` at most. Raises NoSidecarError; UsageError if the sidecar wants another token.
    """
    failures = []
    for address, connection in _ways(config, timeout_s):
        with closing(connection):
            try:
                connection.connect()
            except OSError as error:
                failures.append(f"no sidecar answers at {address}: {cause(error)}")
                continue
            try:
                headers = _headers(config, address, method)
                reply = _exchange(connection, method, address.prefix + path, value, headers)
            except (OSError, http.client.HTTPException, ValueError) as error:
                raise NoSidecarError(f"{address} does not answer as a sidecar does: {cause(error)}") from None
        return _checked(reply, address, path)
    raise NoSidecarError("; ".join(failures) or "no local listener to ask: set ARBITER_LOCAL_LISTEN or ARBITER_SOCKET")


def _checked(reply: Reply, address: SidecarAddress, path: str) -> Reply:
    """The reply, unless it is not that of a sidecar's own listener, or not to our token."""
    if str(reply.value.get("error")).endswith((NOT_SERVED, TAKES_NO_BODY)):
        raise address.unserved(path.partition("?")[0])
    if reply.status == NO_TOKEN and address.is_remote:
        raise click.UsageError(f"{address} wants its token, or another one: {remote.HINT}")
    return reply


def _headers(config: Config, address: SidecarAddress, method: str) -> dict[str, str]:
    """The token where it is needed: for all requests to another machine, for local orders over TCP."""
    if address.is_remote:
        return remote.token_headers(config.server.token_file)
    needs_token = address.name == _TCP and method != "GET" and config.server.token_file
    return remote.token_headers(config.server.token_file, is_local=True) if needs_token else {}


def refused(reply: Reply, otherwise: str) -> int:
    """Print why the sidecar refused, or why the store did not answer it, and return the exit code."""
    if reply.status in _REFUSED:
        complain(str(reply.value.get("error")))
        return EXIT_USAGE
    complain(f"{reply.value.get('sentence', reply.value.get('error'))}: {otherwise}")
    return EXIT_FAILED


def _ways(config: Config, timeout_s: float | None) -> Iterator[tuple[SidecarAddress, http.client.HTTPConnection]]:
    server, timeout_s = config.server, timeout_s or config.redis.redis_timeout + SLACK_S
    own = KeyPair(config.tls.tls_cert, config.tls.tls_key) if config.tls.tls_client_ca else None
    if (target := remote.target()) is not None:
        yield SidecarAddress("--url", target.url, target.prefix), target.connection(timeout_s, own)
        return
    if server.socket:
        yield SidecarAddress("ARBITER_SOCKET", server.socket), _UnixConnection(server.socket, timeout_s)
    if server.local_listen != addresses.OFF:
        host, port = addresses.split(server.local_listen)
        tls = config.tls
        cert = tls.tls_cert if tls.covers("local") else ""
        yield SidecarAddress(_TCP, server.local_listen), _TcpConnection(host, port, timeout_s, cert, own)


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
