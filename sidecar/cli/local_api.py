"""How a command finds a sidecar and asks it, by the standard library alone.

It asks that of this machine at its local listener, or with ``--url`` another one at its page listener. It reads the
settings of that listener alone, without pydantic, which takes 150 ms of CPU: the sidecar has checked all of them when
it started. A token comes from ``ARBITER_TOKEN_FILE`` or ``ARBITER_TOKEN``, never from an argument: other users can read
those.
"""

from __future__ import annotations

import http.client
import json
import re
import socket
import ssl
from collections.abc import Callable, Iterator
from contextlib import closing
from typing import Any, ClassVar, Final, NamedTuple, Self, TypeVar
from urllib.parse import urlsplit

import click

from sidecar.cli.options import TOKEN, URL, flag_of, invocation, keep
from sidecar.cli.terminal import EXIT_FAILED, EXIT_NO_SIDECAR, EXIT_USAGE, cause, complain
from sidecar.config import addresses, sources
from sidecar.config.settings import Config, parts_of, setting_names
from sidecar.net.credential_files import LONGEST, SHORTEST, KeyPair, Token
from sidecar.runlock import durations
from sidecar.server.public_http import TAKES_NO_BODY

F = TypeVar("F", bound=Callable[..., Any])

HINT: Final = "name its file in ARBITER_TOKEN_FILE (or --token-file), or put it into ARBITER_TOKEN"
WHERE: Final[tuple[str, ...]] = ("config", "local_listen", "socket", "token_file")
"""The settings that are options of the commands that ask a sidecar."""

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
_REMOTE: Final = "--url"
_REPLY_LIMIT: Final = 16 << 20
_TOKEN: Final = re.compile(rf"[\x21-\x7e]{{{SHORTEST},{LONGEST}}}")


class Remote(NamedTuple):
    """The page listener of a sidecar elsewhere."""

    url: str
    host: str
    port: int
    is_tls: bool
    prefix: str
    """The path that a proxy in front of it has taken away."""


class Asking(NamedTuple):
    """What a command needs to know to ask a sidecar."""

    local_listen: str
    socket: str
    token_file: str
    own: KeyPair | None
    """The certificate that the command shows to a sidecar elsewhere, if that asks for one."""
    redis_timeout_s: float
    check_interval_s: float
    remote: Remote | None = None
    """The sidecar of ``--url``; None: that of this machine."""
    token: str = ""
    """The token itself, for a sidecar elsewhere."""

    @classmethod
    def of(cls, config: Config) -> Self:
        """The same for the sidecar of this machine, by all of its settings."""
        server, tls = config.server, config.tls
        own = KeyPair(tls.tls_cert, tls.tls_key) if tls.tls_client_ca else None
        times = config.redis.redis_timeout, config.judging.check_interval
        return cls(server.local_listen, server.socket, server.token_file, own, *times)


def where(function: F) -> F:
    """Give a command the options that say where the sidecar is."""
    url_help = "Page listener of a sidecar elsewhere, with the token of ARBITER_TOKEN_FILE or ARBITER_TOKEN."
    texts = {**{name: f"As {sources.variable(name)}." for name in WHERE}, "url": f"{url_help} [{URL}]"}
    for name, text in reversed(texts.items()):
        metavar = "URL" if name == "url" else "VALUE"
        option = click.option(flag_of(name), metavar=metavar, help=text, expose_value=False, callback=keep)
        function = option(function)
    return function


def asking(ctx: click.Context) -> Asking:
    """How this command asks. Raises UsageError."""
    environ = invocation(ctx).environ
    flags: dict[str, str] = {name: ctx.meta[name] for name in WHERE if name in ctx.meta}
    given = sources.read(setting_names(), flags, environ)
    # A variable that nobody knows is the sidecar's affair.
    if problems := [each for each in given.problems if each.startswith(sources.variable("config"))]:
        raise click.UsageError("\n".join(problems))
    values = {name: value for part in Config() for name, value in part._asdict().items()} | _read(given)
    url = ctx.meta.get("url")
    name, text = (URL, environ.get(URL, "")) if url is None else ("--url", url)
    remote = _remote(name, text) if text else None
    return Asking.of(parts_of(values))._replace(remote=remote, token=environ.get(TOKEN, "").strip())


def _seconds(value: object) -> float:
    return durations.parse(str(value))


_READ: Final[dict[str, Callable[[Any], object]]] = {
    "local_listen": addresses.loopback_or_off,
    "socket": addresses.socket_path,
    **dict.fromkeys(("token_file", "tls_cert", "tls_key", "tls_client_ca"), addresses.path),
    **dict.fromkeys(("redis_timeout", "check_interval"), _seconds),
}
"""The settings that a command reads, and how."""


def _read(given: sources.Sources) -> dict[str, object]:
    values, merged = {}, given.merged()
    for name, read in _READ.items():
        if name in merged:
            try:
                values[name] = read(merged[name])
            except (TypeError, ValueError) as error:
                text = f"{sources.variable(name)}: {merged[name]!r} from {given.origin(name)} {error}"
                raise click.UsageError(text) from None
    return values


def _remote(name: str, url: str) -> Remote:
    """Read the address. The error does not repeat it, because it may hold a password."""
    try:
        parts = urlsplit(url)
        host, port = parts.hostname, parts.port
    except ValueError:
        host = port = parts = None
    if parts is None or parts.scheme not in ("http", "https") or not host:
        raise click.UsageError(f"{name}: takes an address such as https://web-1.example.com:9183")
    if "@" in parts.netloc or parts.query or parts.fragment:
        raise click.UsageError(f"{name}: takes no user, password, query or fragment; {HINT}")
    is_tls = parts.scheme == "https"
    return Remote(url, host, port or (443 if is_tls else 80), is_tls, parts.path.rstrip("/").removesuffix("/page"))


# -- asking it --------------------------------------------------------------------------------------------------


class Reply(NamedTuple):
    """The answer of the sidecar: the HTTP status, and the JSON."""

    status: int
    value: dict[str, Any]


class NoSidecarError(click.ClickException):
    """No sidecar answers where the settings say; the message names them."""

    exit_code: ClassVar[int] = EXIT_NO_SIDECAR


class _Way(NamedTuple):
    """A listener of the sidecar: the setting or option that names it, its place, and a connection that is not open."""

    name: str
    place: str
    connection: http.client.HTTPConnection

    def __str__(self) -> str:
        return f"{self.place} ({self.name})"


def ask(asking: Asking, method: str, path: str, value: object = None) -> Reply:
    """Ask the sidecar of ``--url``, or the local one over the unix socket or else over TCP, and return its answer.

    Raises NoSidecarError; UsageError if the sidecar wants another token.
    """
    failures = []
    for way in _ways(asking):
        with closing(way.connection):
            try:
                way.connection.connect()
            except OSError as error:
                failures.append(f"no sidecar answers at {way}: {cause(error)}")
                continue
            headers = _headers(asking, way, method)
            prefix = asking.remote.prefix if asking.remote else ""
            try:
                reply = _exchange(way.connection, method, prefix + path, value, headers)
            except (OSError, http.client.HTTPException, ValueError) as error:
                raise NoSidecarError(f"{way} does not answer as a sidecar does: {cause(error)}") from None
        return _checked(reply, way, path.partition("?")[0])
    raise NoSidecarError("; ".join(failures) or f"no local listener to ask: set {_TCP} or ARBITER_SOCKET")


def refused(reply: Reply, otherwise: str) -> int:
    """Print why the sidecar refused, or why the store did not answer it, and return the exit code."""
    if reply.status in _REFUSED:
        complain(str(reply.value.get("error")))
        return EXIT_USAGE
    complain(f"{reply.value.get('sentence', reply.value.get('error'))}: {otherwise}")
    return EXIT_FAILED


def _ways(asking: Asking) -> Iterator[_Way]:
    timeout_s = asking.redis_timeout_s + SLACK_S
    if asking.remote is not None:
        yield _Way(_REMOTE, asking.remote.url, _remote_connection(asking.remote, timeout_s, asking.own))
        return
    if asking.socket:
        yield _Way("ARBITER_SOCKET", asking.socket, _UnixConnection(asking.socket, timeout_s))
    if asking.local_listen != addresses.OFF:
        host, port = addresses.split(asking.local_listen)
        yield _Way(_TCP, asking.local_listen, http.client.HTTPConnection(host, port, timeout=timeout_s))


def _remote_connection(remote: Remote, timeout_s: float, own: KeyPair | None) -> http.client.HTTPConnection:
    if not remote.is_tls:
        return http.client.HTTPConnection(remote.host, remote.port, timeout=timeout_s)
    context = ssl.create_default_context()  # the system's authorities, or those of SSL_CERT_FILE
    try:
        if own is not None:
            context.load_cert_chain(*own)
    except OSError as error:
        raise click.UsageError(f"ARBITER_TLS_CERT: cannot be shown to {remote.url}: {cause(error)}") from None
    return http.client.HTTPSConnection(remote.host, remote.port, timeout=timeout_s, context=context)


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


def _headers(asking: Asking, way: _Way, method: str) -> dict[str, str]:
    """The token where it is needed: for all requests to another machine, for local orders over TCP."""
    is_remote, is_order = way.name == _REMOTE, way.name == _TCP and method != "GET"
    if not (is_remote or is_order):
        return {}
    name, token = "ARBITER_TOKEN_FILE", Token(asking.token_file).read().decode("latin-1") if asking.token_file else ""
    if is_remote and asking.token_file and not token:
        raise click.UsageError(f"{name}: {asking.token_file} cannot be read, or holds no token")
    if is_remote and not asking.token_file:
        name, token = TOKEN, asking.token
    if token and not _TOKEN.fullmatch(token):
        raise click.UsageError(f"{name}: a token has {SHORTEST} to {LONGEST} printable characters without blanks")
    return {"Authorization": f"Bearer {token}"} if token else {}


def _exchange(
    connection: http.client.HTTPConnection, method: str, path: str, value: object, headers: dict[str, str]
) -> Reply:
    connection.request(method, path, None if value is None else json.dumps(value).encode(), headers)
    response = connection.getresponse()
    answer = json.loads(response.read(_REPLY_LIMIT))
    if not isinstance(answer, dict):
        raise ValueError("not an object")  # noqa: TRY004 - one error for all that is not an answer
    return Reply(response.status, answer)


def _checked(reply: Reply, way: _Way, path: str) -> Reply:
    """The reply, unless it is not that of a sidecar's own listener, or not to our token."""
    is_remote = way.name == _REMOTE
    if is_remote and reply.status == NO_TOKEN:
        raise click.UsageError(f"{way} wants its token, or another one: {HINT}")
    if not str(reply.value.get("error")).endswith((NOT_SERVED, TAKES_NO_BODY)):
        return reply
    if is_remote and path in ("/cull", "/revive"):
        raise click.UsageError(f"{way}: {path[1:]} is for one container; give it on that container's machine")
    named = "--url has to name the page" if is_remote else "ARBITER_LOCAL_LISTEN has to name the local"
    raise NoSidecarError(f"{way}: {path} {NOT_SERVED}; {named} listener of a sidecar")
