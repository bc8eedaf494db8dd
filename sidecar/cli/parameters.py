"""What the commands share: their options, how their command lines are read, and how an answer becomes an exit code."""

from __future__ import annotations

import getpass
import inspect
import json
import os
import re
from collections.abc import Callable, Mapping
from typing import Any, Final, TypeVar

import click

from sidecar.cli import local_api
from sidecar.cli.exit_codes import EXIT_FAILED, EXIT_NO_SIDECAR, EXIT_USAGE
from sidecar.cli.terminal import complain, say
from sidecar.config.settings import Settings, SettingsError, load
from sidecar.runlock import durations

F = TypeVar("F", bound=Callable[..., Any])

OK: Final = 200
WHERE: Final = ("config", "local_listen", "socket", "token_file")
EXIT_CODES: Final = f"""\
Exit codes: 0 done; {EXIT_FAILED} the shared bucket could not be told or asked, or the answer is no; {EXIT_USAGE} a
command that cannot be understood, or is not allowed; {EXIT_NO_SIDECAR} no sidecar answers on this machine. Its address
comes from the same settings as its own, ARBITER_SOCKET and ARBITER_LOCAL_LISTEN."""

_REFUSED: Final = range(400, 500)
_FLAG: Final = re.compile(r"--?[A-Za-z0-9_-]+")


class Command(click.Command):
    """A command that takes no stray words, and repeats none: it may be a password behind a misspelt flag."""

    allow_extra_args = True

    def __init__(self, *arguments: Any, **more: Any) -> None:
        more["help"] = f"{inspect.cleandoc(more.get('help') or '')}\n\n{more.pop('codes', EXIT_CODES)}"
        super().__init__(*arguments, **more)

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Read the words behind the command."""
        try:
            rest = super().parse_args(ctx, args)
        except click.NoSuchOption as error:
            match = _FLAG.match(error.option_name)
            raise stray(ctx, match[0] if match else "") from None
        if rest:
            raise stray(ctx, "")
        return rest


def stray(ctx: click.Context, flag: str) -> click.UsageError:
    """The error for what the command does not take."""
    path = ctx.command_path
    text = f"{flag or 'a word that is no flag'}: {ctx.info_name} does not take it, see {path} --help"
    return click.UsageError(text)


def where(function: F) -> F:
    """Give a command the flags that say where the sidecar is; their values are in the context."""
    for name in reversed(WHERE):
        flag = f"--{name.replace('_', '-')}"
        text = f"As ARBITER_{name.upper()}."
        function = click.option(flag, name, metavar="VALUE", help=text, expose_value=False, callback=_keep)(function)
    return function


def _keep(ctx: click.Context, param: click.Parameter, value: str | None) -> None:
    if value is not None and param.name is not None:
        ctx.meta[param.name] = value


def settings(ctx: click.Context) -> Settings:
    """The settings by which this command finds its sidecar. Raises SettingsError."""
    flags: dict[str, str] = {name: ctx.meta[name] for name in WHERE if name in ctx.meta}
    try:
        return load(flags, environ(ctx))
    except SettingsError as error:
        if not all(problem.startswith("ARBITER_TOKEN_FILE") for problem in error.problems):
            raise
        # Not everybody may read it, and questions need none; the door says so to who gives an order.
        return load({**flags, "token_file": ""}, environ(ctx))


def environ(ctx: click.Context) -> Mapping[str, str]:
    """The environment that the command runs in."""
    given: Mapping[str, str] = ctx.find_root().obj
    return given


json_option: Final = click.option("--json", "as_json", is_flag=True, help="As JSON, with everything that is known.")
author_option: Final = click.option("--author", default=None, help="Who; by default the login name.")


def duration(ctx: click.Context, param: click.Parameter, value: str) -> float:
    """Read a duration as people write it; seconds inside."""
    try:
        return durations.parse(value)
    except ValueError as error:
        raise click.BadParameter(str(error), ctx, param) from None


def login() -> str:
    """Who runs the command."""
    try:
        return getpass.getuser()
    except (OSError, KeyError, ImportError):
        return f"user {os.getuid()}"  # a container knows few of its users by name


def show(value: object) -> None:
    """Print JSON for a program."""
    say(json.dumps(value, indent=2))


def refused(reply: local_api.Reply, otherwise: str) -> int:
    """The exit code, when the door would not have it or has no answer of the bucket, which is told."""
    if reply.status in _REFUSED:
        complain(str(reply.value.get("error")))
        return EXIT_USAGE
    complain(f"{reply.value.get('sentence', reply.value.get('error'))}: {otherwise}")
    return EXIT_FAILED
