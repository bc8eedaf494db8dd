"""The parser and the options that the commands share, and how a command finds the sidecar that it asks.

This loads nothing but click. A command reads the settings of its listener alone, without pydantic, which takes 150 ms
of CPU: the sidecar has checked all of them when it started. A token comes from ``ARBITER_TOKEN_FILE`` or
``ARBITER_TOKEN``, never from an argument: other users can read those.
"""

from __future__ import annotations

import getpass
import json
import os
import re
import sys
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, NamedTuple, Self, TypeVar
from urllib.parse import urlsplit

import click

from sidecar import __version__
from sidecar.cli.terminal import EXIT_CODES, PROGRAM
from sidecar.config import addresses, sources
from sidecar.config.settings import Config, parts_of, setting_names
from sidecar.net.credential_files import KeyPair
from sidecar.runlock import durations

F = TypeVar("F", bound=Callable[..., Any])

CONTEXT: Final = {"help_option_names": ["-h", "--help"], "show_default": True}
URL: Final = "ARBITER_URL"
TOKEN: Final = "ARBITER_TOKEN"  # noqa: S105 - the name of a variable
VARIABLES: Final = frozenset({URL, TOKEN})
"""Environment variables that only commands read; to the daemon they are unknown settings."""

HINT: Final = "name its file in ARBITER_TOKEN_FILE (or --token-file), or put it into ARBITER_TOKEN"
WHERE: Final[tuple[str, ...]] = ("config", "local_listen", "socket", "token_file")
"""The settings that are options of the commands that ask a sidecar."""

_NAMES_NOBODY: Final = frozenset({"root", "nobody", "app", "arbiter", "health-arbiter"})
"""Logins under which containers and services run."""

_FLAG: Final = re.compile(r"--?[A-Za-z0-9_-]+")


class Invocation(NamedTuple):
    """The object of click's root context."""

    environ: Mapping[str, str]
    serve: Callable[[dict[str, Any]], int] | None = None
    """What ``run`` does with the settings."""


def invocation(ctx: click.Context) -> Invocation:
    """The invocation of the application that this command belongs to."""
    found: Invocation = ctx.obj
    return found


class Command(click.Command):
    """A command whose errors repeat no unknown word: it may be a password behind a misspelt flag."""

    allow_extra_args = True

    def __init__(self, name: str | None, *, epilog: str = EXIT_CODES, **more: Any) -> None:
        super().__init__(name, epilog=epilog, context_settings=CONTEXT, **more)

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Read the words behind the command. Raises UsageError."""
        try:
            rest = super().parse_args(ctx, args)
        except click.NoSuchOption as error:
            match = _FLAG.match(error.option_name)
            raise click.UsageError(self.unknown(ctx, match[0] if match else "", error.possibilities or ())) from None
        if rest:
            raise click.UsageError(f"a word that is no flag, see {ctx.command_path} --help")
        return rest

    def unknown(self, ctx: click.Context, flag: str, similar: Sequence[str]) -> str:
        """The sentence about a flag that the command does not have."""
        hint = f"; did you mean {similar[0]}?" if similar else f", see {ctx.command_path} --help"
        return f"{flag}: unknown flag{hint}"


class _DurationType(click.ParamType):  # type: ignore[type-arg]  # a type variable only since click 8.4
    name = "duration"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        try:
            return durations.parse(value)
        except ValueError as error:
            self.fail(f"{value!r} {error}", param, ctx)


DURATION: Final = _DurationType()
"""A duration such as ``5m`` on the command line, seconds in the program."""

version_option: Final = click.version_option(__version__, message=f"{PROGRAM} %(version)s")
json_option: Final = click.option("--json", "as_json", is_flag=True, help="Print JSON, with everything that is known.")
author_option: Final = click.option(
    "--author",
    default=None,
    help="Author of the order; by default the login name, unless it names no person, as root does.",
)


def tell(value: object, text: str, *, as_json: bool) -> None:
    """Print the value as JSON for a program, or the text for a person."""
    click.echo(json.dumps(value, indent=2) if as_json else text)


def person() -> str:
    """The person who gives an order, whom others ask about it: asked for, if the login names nobody.

    Raises UsageError without a terminal.
    """
    for name in (_login(), os.environ.get("SUDO_USER", "")):
        if name and name not in _NAMES_NOBODY:
            return name
    if sys.stdin.isatty():
        return str(click.prompt("Author of the order, so that others can ask", err=True))
    raise click.UsageError("--author: is missing, and the login name here names no person")


def _login() -> str:
    try:
        return getpass.getuser()
    except (OSError, KeyError, ImportError):
        return ""  # a container knows few of its users by name


# -- the sidecar that is asked ----------------------------------------------------------------------------------


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


def flag_of(name: str) -> str:
    """The option of a setting."""
    return f"--{name.replace('_', '-')}"


def keep(ctx: click.Context, param: click.Parameter, value: str | None) -> None:
    """Keep what the command line gives for a setting."""
    if value is not None:
        ctx.meta[str(param.name)] = value


def asking(ctx: click.Context) -> Asking:
    """How this command asks. Raises UsageError."""
    environ = invocation(ctx).environ
    flags: dict[str, str] = {name: ctx.meta[name] for name in WHERE if name in ctx.meta}
    given = sources.read({*setting_names()}, flags, environ)
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
