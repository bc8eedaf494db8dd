"""The parser and the options that the commands share. This loads nothing but click, as ``--help`` does."""

from __future__ import annotations

import getpass
import json
import os
import re
import sys
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, NamedTuple

import click

from sidecar import __version__
from sidecar.cli.terminal import EXIT_CODES, PROGRAM
from sidecar.runlock import durations

CONTEXT: Final = {"help_option_names": ["-h", "--help"], "show_default": True}
URL: Final = "ARBITER_URL"
TOKEN: Final = "ARBITER_TOKEN"  # noqa: S105 - the name of a variable
VARIABLES: Final = frozenset({URL, TOKEN})
"""Environment variables that only commands read; to the daemon they are unknown settings."""

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
    given: Invocation = ctx.obj
    return given


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


def flag_of(name: str) -> str:
    """The option of a setting."""
    return f"--{name.replace('_', '-')}"


def keep(ctx: click.Context, param: click.Parameter, value: str | None) -> None:
    """Keep what the command line gives for a setting."""
    if value is not None:
        ctx.meta[str(param.name)] = value
