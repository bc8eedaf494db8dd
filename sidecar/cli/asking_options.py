"""How a command finds the sidecar that it asks: a few settings, read without pydantic, which takes 150 ms of CPU.

The sidecar has checked all settings when it started; a command needs those of its listener alone.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, TypeVar

import click

from sidecar.cli import remote
from sidecar.cli.parameters import invocation
from sidecar.config import addresses, sources
from sidecar.config.settings import Config, setting_names
from sidecar.runlock import durations

F = TypeVar("F", bound=Callable[..., Any])

WHERE: Final[tuple[str, ...]] = ("config", "local_listen", "socket", "token_file")
"""The settings that are options of these commands."""


def _seconds(value: object) -> float:
    return durations.parse(str(value))


_READ: Final[dict[str, dict[str, Callable[[Any], object]]]] = {
    "server": {
        "local_listen": addresses.loopback_or_off,
        "socket": addresses.socket_path,
        "token_file": addresses.path,
    },
    "tls": {
        "tls_cert": addresses.path,
        "tls_key": addresses.path,
        "tls_client_ca": addresses.path,
        "tls_listeners": str,
    },
    "redis": {"redis_timeout": _seconds},
    "judging": {"check_interval": _seconds},
}
"""Part -> the settings of it that are read, and how."""


def where(function: F) -> F:
    """Give a command the options that say where the sidecar is."""
    url_help = "Page listener of a sidecar elsewhere, with the token of ARBITER_TOKEN_FILE or ARBITER_TOKEN."
    url_help += " [ARBITER_URL]"
    function = click.option("--url", metavar="URL", help=url_help, expose_value=False, callback=_use_url)(function)
    for name in reversed(WHERE):
        text = f"As {sources.variable(name)}."
        option = click.option(flag_of(name), metavar="VALUE", help=text, expose_value=False, callback=keep)
        function = option(function)
    return function


def flag_of(name: str) -> str:
    """The option of a setting."""
    return f"--{name.replace('_', '-')}"


def keep(ctx: click.Context, param: click.Parameter, value: str | None) -> None:
    """Keep what the command line gives for a setting."""
    if value is not None:
        ctx.meta[str(param.name)] = value


def config(ctx: click.Context) -> Config:
    """The settings by which a command finds its sidecar; all others have their defaults. Raises UsageError."""
    flags: dict[str, str] = {name: ctx.meta[name] for name in WHERE if name in ctx.meta}
    given = sources.read({*setting_names()}, flags, invocation(ctx).environ)
    # A variable that nobody knows is the sidecar's affair.
    if problems := [each for each in given.problems if each.startswith(sources.variable("config"))]:
        raise click.UsageError("\n".join(problems))
    merged, effective = given.merged(), Config()
    parts = {
        part: getattr(effective, part)._replace(**_read(settings, merged, given)) for part, settings in _READ.items()
    }
    return effective._replace(**parts)


def _read(
    settings: dict[str, Callable[[Any], object]], merged: dict[str, Any], given: sources.Sources
) -> dict[str, object]:
    values = {}
    for name, read in settings.items():
        if name in merged:
            try:
                values[name] = read(merged[name])
            except (TypeError, ValueError) as error:
                text = f"{sources.variable(name)}: {merged[name]!r} from {given.origin(name)} {error}"
                raise click.UsageError(text) from None
    return values


def _use_url(ctx: click.Context, _param: click.Parameter, value: str | None) -> None:
    remote.use(ctx, value, invocation(ctx).environ)
