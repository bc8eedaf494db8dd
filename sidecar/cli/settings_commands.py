"""The commands that take every setting as an option: ``run``, ``check-config``, ``message``. This loads pydantic."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping, Sequence
from functools import cache
from typing import Any, Final

import click

from sidecar.cli.options import VARIABLES, Command, flag_of, invocation, json_option, keep, tell, version_option
from sidecar.cli.terminal import EXIT_CODES, EXIT_FAILED, complain
from sidecar.config import file_warnings, shown
from sidecar.config.load import SettingsError, origins, values
from sidecar.config.settings import PREFIX, Config, config_of
from sidecar.config.shown import ADVANCED, FIRST, table
from sidecar.config.sources import former

_EPILOG: Final = f"""\
{EXIT_CODES}

Every option of a setting is also an environment variable (--error-limit is ARBITER_ERROR_LIMIT) and a key of the TOML
file (error_limit). Options win over the environment, the environment over the file, the file over the preset. A switch
such as --standby needs no value. Durations: 10s, 500ms, 5m, 1h; a bare number is seconds."""


# -- the settings as options ------------------------------------------------------------------------------------


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


def config(ctx: click.Context) -> Config:
    """The configuration of this container, without the variables of commands.

    Raises UsageError, with a line for each problem.
    """
    variables = invocation(ctx).environ
    return config_of(_values(ctx, {name: variables[name] for name in variables if name not in VARIABLES}))


def _values(ctx: click.Context, environ: Mapping[str, str]) -> dict[str, Any]:
    """The value of every setting. Raises UsageError, with a line for each problem."""
    try:
        return values(given(ctx), environ)
    except SettingsError as error:
        raise click.UsageError(str(error)) from None


# -- the commands -----------------------------------------------------------------------------------------------


@click.command(cls=SettingsCommand, explains_settings=True, epilog=_EPILOG)
@version_option
@click.pass_context
def run(ctx: click.Context, /) -> int:
    """Run the sidecar beside one container."""
    serve = invocation(ctx).serve
    effective = _values(ctx, invocation(ctx).environ)
    return serve(effective) if serve else 0


@click.command(cls=SettingsCommand, epilog=_EPILOG)
@click.option("--changed", is_flag=True, help="Only the settings that differ from their defaults.")
@version_option
@json_option
@click.pass_context
def check_config(ctx: click.Context, /, *, changed: bool, as_json: bool) -> int:
    """Print the effective settings and their origins."""
    write = shown.as_json if as_json else shown.effective
    effective = _values(ctx, invocation(ctx).environ)
    text = write(effective, origins(given(ctx), invocation(ctx).environ), is_changed_only=changed)
    if text:
        click.echo(text)
    else:
        complain("every setting has its default")
    for sentence in file_warnings.warnings(config_of(effective)):
        complain(f"warning: {sentence}")
    return 0


@click.command(cls=SettingsCommand)
@json_option
@click.pass_context
def message(ctx: click.Context, /, *, as_json: bool) -> int:
    """Send a test message to the webhook.

    It prints the answer. The exit code is 1 when the webhook did not take it, 2 when the settings name none.
    """
    from sidecar.app import build_optional  # noqa: PLC0415 - the HTTP client of the messages, for this command alone

    effective = config(ctx)
    if not effective.notify.has_webhook:
        raise click.UsageError("no webhook is set: ARBITER_WEBHOOK_URL")
    outcome, is_sent = asyncio.run(build_optional.send_test_message(effective))
    tell({"outcome": outcome, "sent": is_sent}, outcome, as_json=as_json)
    return 0 if is_sent else EXIT_FAILED
