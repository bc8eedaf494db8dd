"""The connections of redis-py as this project uses them: no retries, no announcements, no reply out of step."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, Protocol, cast

from hiredis import pack_command
from redis import exceptions as theirs
from redis.asyncio import Redis
from redis.asyncio.connection import (
    AbstractConnection,
    Connection,
    ConnectionPool,
    SSLConnection,
    UnixDomainSocketConnection,
)
from redis.asyncio.retry import Retry
from redis.backoff import NoBackoff

from sidecar.store.access import Access, AccessError
from sidecar.store.bounded_parser import BoundedParser
from sidecar.store.certificates import Certificates, TlsConnection
from sidecar.store.connection_watch import ConnectionWatch
from sidecar.store.password_file import PasswordFile

Options = dict[str, Any]
"""The keyword arguments of a connection."""

NO_RETRY: Final = Retry(NoBackoff(), 0)
FAILURES: Final = (OSError, theirs.RedisError, theirs.RedisClusterException)
"""The exceptions of redis-py for a failed exchange."""

_OURS: Final[Mapping[str, Any]] = {
    "protocol": 2,
    "decode_responses": False,
    "driver_info": None,
    "health_check_interval": 0,
    "retry": NO_RETRY,
    "retry_on_timeout": False,
    "parser_class": BoundedParser,
    # The caller bounds the whole exchange; a bound for each send and read would cost a task each.
    "socket_timeout": None,
}


class Client(Protocol):
    """The used part of ``Redis``."""

    async def execute_command(self, *command: str | bytes) -> Any:
        """The reply to one command."""

    async def aclose(self) -> None:
        """End the connection; the next command connects anew."""


def client_of(pool: ConnectionPool) -> Client:
    """A ``Redis`` that leaves replies as they are, and owns the pool."""
    client = Redis.from_pool(pool)
    client.response_callbacks.clear()
    return cast("Client", client)


def options_of(
    parsed: Mapping[str, Any], timeout_s: float, access: Access, watch: ConnectionWatch | None = None
) -> Options:
    """The options for connections, each made within ``timeout_s``, from what ``parse_url`` made of a URL.

    ``watch`` is told of these connections.
    Raises AccessError, or another error of redis-py or the standard library for options that cannot be used.
    """
    options: Options = {**parsed, **_OURS, "socket_connect_timeout": timeout_s}
    if watch is not None:
        options["parser_class"] = watch.parser
    kind = options.pop("connection_class", Connection)
    if access.certificates and kind is not SSLConnection:
        raise AccessError("certificates need a URL with rediss")
    if access.password_file:
        if "password" in options:
            raise AccessError("the password stands both in the URL and in a file")
        options["credential_provider"] = PasswordFile(options.pop("username", None), access.password_file)
    kind(**options)  # refuses options that it does not know
    if kind is SSLConnection:
        named = {name: options.pop(name) for name in tuple(options) if name.startswith("ssl_")}
        options["certificates"] = Certificates(named, access)
    return {**options, "connection_class": _KINDS[kind]}


class InStep(AbstractConnection):
    """Connects anew when the server has closed the connection, or has sent data without a command.

    The pool of ``Redis`` does the same, the pool of ``RedisCluster`` does not.
    """

    async def send_packed_command(self, *args: Any, **options: Any) -> None:
        """Send, over a new connection if need be."""
        if self.is_connected and await self.can_read():
            await self.disconnect(nowait=True)
        await super().send_packed_command(*args, **options)

    def pack_command(self, *args: Any) -> list[bytes]:
        """The command as the server reads it: by hiredis, in a fifth of the time that redis-py takes in Python."""
        words = (*args[0].split(), *args[1:])  # the first may be two words, such as CLUSTER SLOTS
        return [pack_command(words)]


class _Tcp(InStep, Connection):
    pass


class _Unix(InStep, UnixDomainSocketConnection):
    pass


class _Tls(InStep, TlsConnection):
    pass


_KINDS: Final = {Connection: _Tcp, SSLConnection: _Tls, UnixDomainSocketConnection: _Unix}
