"""How a command finds a sidecar and asks it, by the standard library alone.

It asks the one of this machine at its unix socket or its local TCP listener, or with ``--url`` another one at its page
listener. It reads the settings of that listener alone, without pydantic, which takes 150 ms of CPU: the sidecar has
checked all of them when it started. A token comes from ``ARBITER_TOKEN_FILE`` or ``ARBITER_TOKEN``, never from an
argument: other users can read those.
"""

from __future__ import annotations

import http.client
import json
import re
import socket
import ssl
from collections.abc import Callable
from contextlib import closing
from functools import partial
from typing import Any, ClassVar, Final, NamedTuple, TypeVar

import click

from sidecar.cli.options import TOKEN, URL, flag_of, invocation, keep
from sidecar.cli.terminal import EXIT_FAILED, EXIT_NO_SIDECAR, EXIT_USAGE, cause, complain
from sidecar.config import addresses, sources
from sidecar.config.settings import ServerConfig, setting_names
from sidecar.net.credential_files import LONGEST, SHORTEST, KeyPair, Token
from sidecar.server.public_http import TAKES_NO_BODY

F = TypeVar("F", bound=Callable[..., Any])

HINT_FILE: Final = "name its file in ARBITER_TOKEN_FILE (or --token-file)"
HINT: Final = f"{HINT_FILE}, or put it into ARBITER_TOKEN"
WHERE: Final[tuple[str, ...]] = ("config", "local_listen", "socket", "token_file")
"""The settings that are options of the commands that ask a sidecar."""

ANSWER_S: Final = 18.0
"""Time for an answer: the listener waits up to 10 s for Redis, and gives up 4 s later."""

NOT_SERVED: Final = "is not served here"
"""The end of an error of a listener that does not have the path."""

OK: Final = 200
NO_TOKEN: Final = 401
_REFUSED: Final = range(400, 500)
_TCP: Final = "ARBITER_LOCAL_LISTEN"
_TOKEN_FILE: Final = "ARBITER_TOKEN_FILE"  # noqa: S105 - the name of a variable
_REPLY_LIMIT: Final = 16 << 20
_TOKEN: Final = re.compile(rf"[\x21-\x7e]{{{SHORTEST},{LONGEST}}}")
_CHECKS: Final[dict[str, Callable[[str], str]]] = {
    "local_listen": addresses.loopback_or_off,
    "socket": addresses.socket_path,
    **dict.fromkeys(("token_file", "tls_cert", "tls_key"), addresses.path),
}
"""The settings that a command reads, and what raises ValueError for a value that cannot be used."""


class Listener(NamedTuple):
    """The listener that a command asks."""

    setting: str
    """The setting or option that names it."""
    address: str
    """The address as a person writes it."""
    connection: Callable[[], http.client.HTTPConnection]
    """Makes a connection that is not open yet."""
    token: str = ""
    """The token for orders, and for any request to a sidecar elsewhere."""
    is_elsewhere: bool = False
    """Whether it is the page listener of a sidecar elsewhere."""
    prefix: str = ""
    """The path that a proxy in front of it takes away."""

    def __str__(self) -> str:
        return f"{self.address} ({self.setting})"


class NoSidecarError(click.ClickException):
    """No sidecar answers where the settings say; the message names them."""

    exit_code: ClassVar[int] = EXIT_NO_SIDECAR


# -- finding it -------------------------------------------------------------------------------------------------


def where(function: F) -> F:
    """Give a command the options that say where the sidecar is."""
    url_help = "Page listener of a sidecar elsewhere, with the token of ARBITER_TOKEN_FILE or ARBITER_TOKEN."
    texts = {**{name: f"As {sources.variable(name)}." for name in WHERE}, "url": f"{url_help} [{URL}]"}
    for name, text in reversed(texts.items()):
        metavar = "URL" if name == "url" else "VALUE"
        option = click.option(flag_of(name), metavar=metavar, help=text, expose_value=False, callback=keep)
        function = option(function)
    return function


def listener(ctx: click.Context) -> Listener:
    """The listener that this command asks. Raises UsageError, and NoSidecarError if the settings name none."""
    settings, environ = _settings(ctx), invocation(ctx).environ
    flag = ctx.meta.get("url")
    name, url = (URL, environ.get(URL, "")) if flag is None else ("--url", flag)
    if not url:
        return local_listener(settings["socket"], settings["local_listen"], settings["token_file"])
    token = _token(settings["token_file"], environ.get(TOKEN, "").strip())
    return _page_listener(name, url, token, KeyPair(settings["tls_cert"], settings["tls_key"]))


def local_listener(socket_path: str, address: str, token_file: str = "") -> Listener:
    """The unix socket of the sidecar of this machine, or else its TCP listener. Raises NoSidecarError without both."""
    if socket_path:
        return Listener("ARBITER_SOCKET", socket_path, partial(_UnixConnection, socket_path))
    if address == addresses.OFF:
        raise NoSidecarError(f"no local listener to ask: set {_TCP} or ARBITER_SOCKET")
    host, port = addresses.split(address)
    token = Token(token_file).read().decode("latin-1") if token_file else ""
    connection = partial(http.client.HTTPConnection, host, port, timeout=ANSWER_S)
    return Listener(_TCP, address, connection, token if _TOKEN.fullmatch(token) else "")


def _settings(ctx: click.Context) -> dict[str, str]:
    """The settings of listeners. Raises UsageError."""
    flags: dict[str, str] = {name: ctx.meta[name] for name in WHERE if name in ctx.meta}
    given = sources.read(setting_names(), flags, invocation(ctx).environ)
    # A variable that nobody knows is the sidecar's affair.
    problems = [each for each in given.problems if each.startswith(sources.variable("config"))]
    values, raw = dict[str, str](), {"local_listen": ServerConfig().local_listen, **given.merged()}
    for name, check in _CHECKS.items():
        try:
            values[name] = check(str(raw.get(name, "")))
        except ValueError as error:
            problems.append(f"{sources.variable(name)}: {raw[name]!r} from {given.origin(name)} {error}")
    if problems:
        raise click.UsageError("\n".join(problems))
    return values


def _token(token_file: str, token: str) -> str:
    """The token for a sidecar elsewhere, from the file if one is named. Raises UsageError if it cannot be one."""
    name = TOKEN
    if token_file:
        name, token = _TOKEN_FILE, Token(token_file).read().decode("latin-1")
        if not token:
            raise click.UsageError(f"{name}: {token_file} cannot be read, or holds no token")
    if token and not _TOKEN.fullmatch(token):
        raise click.UsageError(f"{name}: a token has {SHORTEST} to {LONGEST} printable characters without blanks")
    return token


def _page_listener(name: str, url: str, token: str, own: KeyPair) -> Listener:
    """The listener at this URL. Raises UsageError, without the URL: it may hold a password."""
    try:
        parts = addresses.web_parts(url, "takes an address such as https://web-1.example.com:9183")
    except ValueError as error:
        raise click.UsageError(f"{name}: {error}") from None
    if "@" in parts.netloc or parts.query or parts.fragment:
        raise click.UsageError(f"{name}: takes no user, password, query or fragment; {HINT}")
    host = str(parts.hostname)
    connection = partial(http.client.HTTPConnection, host, parts.port, timeout=ANSWER_S)
    if parts.scheme == "https":
        connection = partial(http.client.HTTPSConnection, host, parts.port, timeout=ANSWER_S, context=_tls(url, own))
    prefix = parts.path.rstrip("/").removesuffix("/page")
    return Listener("--url", url, connection, token, is_elsewhere=True, prefix=prefix)


def _tls(url: str, own: KeyPair) -> ssl.SSLContext:
    """The system's authorities, or those of SSL_CERT_FILE, and our certificate for a sidecar that asks for one.

    An operator who may not read its key asks without it: most sidecars need none.
    """
    context = ssl.create_default_context()
    try:
        if all(own):
            context.load_cert_chain(*own)
    except PermissionError:
        pass
    except OSError as error:
        raise click.UsageError(f"ARBITER_TLS_CERT: cannot be shown to {url}: {cause(error)}") from None
    return context


class _UnixConnection(http.client.HTTPConnection):
    def __init__(self, path: str) -> None:
        super().__init__("localhost", timeout=ANSWER_S)
        self._path = path

    def connect(self) -> None:
        self.sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.sock.settimeout(self.timeout)
        self.sock.connect(self._path)


# -- asking it --------------------------------------------------------------------------------------------------


class Reply(NamedTuple):
    """The answer of the sidecar: the HTTP status, and the JSON."""

    status: int
    value: dict[str, Any]


def ask(sidecar: Listener, method: str, path: str, value: object = None) -> Reply:
    """Ask the sidecar, and return its answer. Raises NoSidecarError; UsageError if it wants another token."""
    body = None if value is None else json.dumps(value).encode()
    needs_token = sidecar.token and (sidecar.is_elsewhere or method != "GET")
    headers = {"Authorization": f"Bearer {sidecar.token}"} if needs_token else {}
    with closing(sidecar.connection()) as connection:
        try:
            connection.connect()
        except OSError as error:
            raise NoSidecarError(f"no sidecar answers at {sidecar}: {cause(error)}") from None
        try:
            connection.request(method, sidecar.prefix + path, body, headers)
            response = connection.getresponse()
            reply = Reply(response.status, json.loads(response.read(_REPLY_LIMIT)))
        except (OSError, http.client.HTTPException, ValueError) as error:
            raise NoSidecarError(f"{sidecar} does not answer as a sidecar does: {cause(error)}") from None
    _check(sidecar, path.partition("?")[0], reply)
    return reply


def _check(sidecar: Listener, path: str, reply: Reply) -> None:
    """Raise what is wrong with the reply, if it is not that of a sidecar's own listener, or not to our token."""
    if not isinstance(reply.value, dict):
        raise NoSidecarError(f"{sidecar} does not answer as a sidecar does: not an object")
    if reply.status == NO_TOKEN:
        hint = HINT if sidecar.is_elsewhere else HINT_FILE
        raise click.UsageError(f"{sidecar} wants its token, or another one: {hint}")
    if not str(reply.value.get("error")).endswith((NOT_SERVED, TAKES_NO_BODY)):
        return
    if sidecar.is_elsewhere and path in ("/cull", "/revive"):
        raise click.UsageError(f"{sidecar}: {path[1:]} is for one container; give it on that container's machine")
    named = "--url has to name the page" if sidecar.is_elsewhere else f"{_TCP} has to name the local"
    raise NoSidecarError(f"{sidecar}: {path} {NOT_SERVED}; {named} listener of a sidecar")


def refused(reply: Reply, otherwise: str) -> int:
    """Print why the sidecar refused, or why the store did not answer it, and return the exit code."""
    if reply.status in _REFUSED:
        complain(str(reply.value.get("error")))
        return EXIT_USAGE
    complain(f"{reply.value.get('sentence', reply.value.get('error'))}: {otherwise}")
    return EXIT_FAILED
