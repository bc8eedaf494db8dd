"""The settings as options of a command, and the configuration that results. It loads pydantic."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import cache
from typing import Any

import click

from sidecar.cli.asking_options import VARIABLES, flag_of, keep
from sidecar.cli.parameters import Command, invocation
from sidecar.config import load as loading
from sidecar.config.load import SettingsError, load
from sidecar.config.settings import PREFIX, Config
from sidecar.config.shown import ADVANCED, FIRST, table
from sidecar.config.sources import former


@cache
def _options() -> dict[str, click.Option]:
    """Every setting as an option, by name."""
    rows = [(variable.removeprefix(PREFIX).lower(), default, text) for variable, default, text in table()]
    return {name: _option(name, default, text) for name, default, text in rows}


def _option(name: str, default: str, text: str) -> click.Option:
    is_switch = default in ("true", "false")
    how = {"is_flag": False, "flag_value": "true", "metavar": "[VALUE]"} if is_switch else {"metavar": "VALUE"}
    text = f"{text} Default: {default}." if default else text
    return click.Option([flag_of(name)], help=text, expose_value=False, callback=keep, **how)


class SettingsCommand(Command):
    """A command that takes every setting as an option. A switch needs no value.

    ``explains_settings``: its help has all of them; the help of others says where they are.
    """

    def __init__(
        self, name: str | None, *, params: Sequence[click.Parameter] = (), explains_settings: bool = False, **more: Any
    ) -> None:
        super().__init__(name, params=[*params, *_options().values()], **more)
        self._explains_settings = explains_settings

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the command's own options, the settings that matter most, the others by part, and the advanced ones."""
        settings = _options()
        _section(ctx, formatter, "Options", (param for param in self.get_params(ctx) if param.name not in settings))
        if not self._explains_settings:
            with formatter.section("Settings"):
                formatter.write_text("Every setting is an option too: health-arbiter run --help explains them.")
            return
        _section(ctx, formatter, "Settings that matter most", map(settings.__getitem__, FIRST))
        for part in Config():
            title = str(type(part).__doc__).partition(".")[0]
            names = [name for name in part._fields if name not in (*FIRST, *ADVANCED)]
            _section(ctx, formatter, title, map(settings.__getitem__, names))
        _section(ctx, formatter, "Advanced: hardly anybody changes these", map(settings.__getitem__, ADVANCED))

    def unknown(self, ctx: click.Context, flag: str, similar: Sequence[str]) -> str:
        """The sentence about a flag that is not a setting, or not any more."""
        moved = former(flag.removeprefix("--").replace("-", "_"), flag_of)
        return f"{flag}: {moved}" if moved else super().unknown(ctx, flag, similar)


def _section(ctx: click.Context, formatter: click.HelpFormatter, title: str, params: Iterable[click.Parameter]) -> None:
    if rows := [record for param in params if (record := param.get_help_record(ctx))]:
        with formatter.section(title):
            formatter.write_dl(rows)


def given(ctx: click.Context) -> dict[str, str]:
    """The settings that the command line gives, by name."""
    return {name: ctx.meta[name] for name in _options() if name in ctx.meta}


def values(ctx: click.Context) -> dict[str, Any]:
    """The value of every setting. Raises UsageError, with a line for each problem."""
    try:
        return loading.values(given(ctx), invocation(ctx).environ)
    except SettingsError as error:
        raise click.UsageError(str(error)) from None


def config(ctx: click.Context) -> Config:
    """The configuration of this container, without the variables of commands. Raises UsageError as ``values``."""
    variables = invocation(ctx).environ
    flags, environ = given(ctx), {name: variables[name] for name in variables if name not in VARIABLES}
    try:
        return load(flags, environ)
    except SettingsError as error:
        if not all(problem.startswith("ARBITER_TOKEN_FILE") for problem in error.problems):
            raise click.UsageError(str(error)) from None
        return load({**flags, "token_file": ""}, environ)  # not every user may read it, and a GET needs no token
