"""``run`` and ``check-config``: the daemon and its settings."""

from __future__ import annotations

from typing import Final

import click

from sidecar.cli.exit_codes import EXIT_CODES
from sidecar.cli.parameters import invocation, json_option, version_option
from sidecar.cli.settings_options import SettingsCommand, given, values
from sidecar.cli.terminal import complain
from sidecar.config import contradictions, shown
from sidecar.config.load import origins
from sidecar.config.settings import config_of

_EPILOG: Final = f"""\
{EXIT_CODES}

Every option of a setting is also an environment variable (--error-limit is ARBITER_ERROR_LIMIT) and a key of the TOML
file (error_limit). Options win over the environment, the environment over the file, the file over the preset. A switch
such as --standby needs no value. Durations: 10s, 500ms, 5m, 1h; a bare number is seconds."""


@click.command(cls=SettingsCommand, explains_settings=True, epilog=_EPILOG)
@version_option
@click.pass_context
def run(ctx: click.Context, /) -> int:
    """Run the sidecar beside one container."""
    serve = invocation(ctx).serve
    effective = values(ctx)
    return serve(effective) if serve else 0


@click.command(cls=SettingsCommand, epilog=_EPILOG)
@click.option("--changed", is_flag=True, help="Only the settings that differ from their defaults.")
@version_option
@json_option
@click.pass_context
def check_config(ctx: click.Context, /, *, changed: bool, as_json: bool) -> int:
    """Print the effective settings and their origins."""
    write = shown.as_json if as_json else shown.effective
    effective = values(ctx)
    text = write(effective, origins(given(ctx), invocation(ctx).environ), is_changed_only=changed)
    if text:
        click.echo(text)
    else:
        complain("every setting has its default")
    for sentence in contradictions.warnings(config_of(effective)):
        complain(f"warning: {sentence}")
    return 0
