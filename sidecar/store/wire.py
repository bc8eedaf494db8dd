"""One connection to one Redis: opened when it is needed, one exchange after the other.

It is redis-py's connection without its client and pool: a claim wants one exchange at a time, no retries (each one
could charge again), no announcement of the library, and the whole of it within a deadline that the caller sets.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from hiredis import pack_command
from redis.asyncio.connection import AbstractConnection, Connection, RedisSSLContext, SSLConnection, parse_url
from redis.asyncio.retry import Retry
from redis.backoff import NoBackoff
from redis.exceptions import RedisError

from sidecar.store.access import Access, AccessError, PasswordFile

if TYPE_CHECKING:
    from sidecar.store.tls_connection import Certificates

Address = tuple[str, int]

FAILURES: Final = (OSError, RedisError)
"""What an exchange raises when it fails, a time-out among them."""

_OURS: Final[dict[str, Any]] = {
    "protocol": 2,
    "decode_responses": False,
    "driver_info": None,
    "health_check_interval": 0,
    "retry": Retry(NoBackoff(), 0),
    "retry_on_timeout": False,
    # The caller's deadline covers sending and reading too; theirs would cost a task for each command.
    "socket_timeout": None,
}


class Wire:
    """One connection, not for several tasks at a time. Errors are raised as redis-py names them."""

    def __init__(self, connection: AbstractConnection, certificates: Certificates | None) -> None:
        self._connection = connection
        self._certificates = certificates

    async def ready(self) -> bool:
        """Whether it is connected and in step; it is dropped when the server closed it, or speaks unasked."""
        connection = self._connection
        if connection.is_connected and await connection.can_read():
            await connection.disconnect(nowait=True)
        return bool(connection.is_connected)

    async def exchange(self, *command: str | bytes) -> Any:
        """The reply to one command (as RESP2 has it); connects first when it has to."""
        connection = self._connection
        if self._certificates is not None and not connection.is_connected:
            await self._certificates.renew()
        # Redis-py packs in Python, which takes as long as a third of a script.
        packed = pack_command(command)  # type: ignore[arg-type]  # their stub knows no tuple of more than one
        await connection.send_packed_command(packed)
        return await connection.read_response()

    async def drop(self) -> None:
        """End it at once, so that a late reply meets nobody."""
        await self._connection.disconnect(nowait=True)

    async def aclose(self) -> None:
        """End it in good order."""
        await self._connection.disconnect()


class Dialler:
    """Makes wires that share login, certificates and time-out; ``url`` as redis-py reads it.

    Raises ValueError, TypeError, OSError or RedisError for what cannot be used, or contradicts itself.
    """

    def __init__(self, url: str, connect_timeout_s: float, access: Access) -> None:
        options: dict[str, Any] = {**parse_url(url), **_OURS, "socket_connect_timeout": connect_timeout_s}
        self._kind: type[AbstractConnection] = options.pop("connection_class", Connection)
        self._certificates = _certificates(self._kind, options, access)
        self._options = _with_password_file(options, access)
        self._tls = self._certificates or _tls(self._kind, self._options)

    def wire(self, *address: str | int) -> Wire:
        """One to host and port, or to the place of the URL."""
        place = dict(zip(("host", "port"), address, strict=False))
        connection = self._kind(**self._options | place)
        if self._tls is not None and isinstance(connection, SSLConnection):
            connection.ssl_context = self._tls
        return Wire(connection, self._certificates)


def _certificates(kind: type[AbstractConnection], options: dict[str, Any], access: Access) -> Certificates | None:
    if not access.certificates:
        return None
    if kind is not SSLConnection:
        raise AccessError("certificates need a URL with rediss")
    if access.key and not access.cert:
        raise AccessError("a key needs its certificate")
    from sidecar.store.tls_connection import Certificates  # noqa: PLC0415 - most need none

    return Certificates(options, access)


def _with_password_file(options: dict[str, Any], access: Access) -> dict[str, Any]:
    if not access.password_file:
        return options
    if "password" in options:
        raise AccessError("the password stands both in the URL and in a file")
    rest = {name: value for name, value in options.items() if name != "username"}
    return {**rest, "credential_provider": PasswordFile(options.get("username"), access.password_file)}


def _tls(kind: type[AbstractConnection], options: dict[str, Any]) -> RedisSSLContext | None:
    """What the URL alone says of TLS; the certificates are read now, not while health is being served."""
    if kind is not SSLConnection:
        return None
    context = SSLConnection(**options).ssl_context
    context.get()
    return context
