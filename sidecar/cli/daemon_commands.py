"""``run``, ``check-config`` and ``doctor``: the daemon, its settings, and problems in them and around it."""

from __future__ import annotations

from typing import Final

import click

from sidecar.cli.exit_codes import EXIT_CODES
from sidecar.cli.parameters import invocation, json_option, version_option
from sidecar.cli.remote import URL
from sidecar.cli.settings_options import SettingsCommand, config, given, settings
from sidecar.cli.terminal import complain
from sidecar.config import secret_files, shown
from sidecar.config.settings import origins
from sidecar.config.slices import config_of

_EPILOG: Final = f"""\
{EXIT_CODES}

Every option of a setting is also an environment variable (--error-limit is ARBITER_ERROR_LIMIT) and a key of the TOML
file (error_limit). Options win over the environment, the environment over the file, the file over the preset. A switch
such as --standby needs no value. Durations: 10s, 500ms, 5m, 1h; a bare number is seconds."""


@click.command(cls=SettingsCommand, explains_settings=True, epilog=_EPILOG)
@version_option
@click.pass_context
def run(ctx: click.Context, /) -> int:
    """Run the sidecar. This is what happens without a command."""
    serve = invocation(ctx).serve
    effective = settings(ctx)
    return serve(effective) if serve else 0


@click.command(cls=SettingsCommand, epilog=_EPILOG)
@click.option("--changed", is_flag=True, help="Only the settings that differ from their defaults.")
@version_option
@json_option
@click.pass_context
def check_config(ctx: click.Context, /, *, changed: bool, as_json: bool) -> int:
    """Print the effective settings and their origins."""
    write = shown.as_json if as_json else shown.effective
    effective = settings(ctx)
    text = write(effective, origins(given(ctx), invocation(ctx).environ), is_changed_only=changed)
    if text:
        click.echo(text)
    else:
        complain("every setting has its default")
    for sentence in secret_files.open_to_others(config_of(effective.model_dump())):
        complain(f"warning: {sentence}")
    return 0


@click.command(cls=SettingsCommand)
@click.option("--job", metavar="FILE", default=None, help="Also look at this job file of Nomad: JSON, or HCL.")
@click.option("--scrape", metavar="URL", default=None, help="Also propose selectors for this metrics page of the app.")
@click.option("--url", hidden=True)
@json_option
@click.pass_context
def doctor(ctx: click.Context, /, *, job: str | None, scrape: str | None, url: str | None, as_json: bool) -> int:
    """Find problems in Redis, in the sidecar here and around it.

    With --job and without settings it looks at the job file alone. The exit code is 1 if one of the findings is a
    failure, else 69 if no sidecar answers here, unless --job or --scrape is given. It leaves nothing behind.
    """
    if url is not None or (invocation(ctx).environ.get(URL) and not (job or scrape)):
        name = URL if url is None else "--url"
        raise click.UsageError(f"{name}: not for doctor: it looks at the machine on which it runs, so run it there")
    from sidecar.cli.doctor import examination  # noqa: PLC0415 - 7 MiB for Redis, in the child of a run and for help

    is_set_here = {*origins(given(ctx), invocation(ctx).environ).values()} - {"default", "nomad"}
    is_here = job is None or bool(is_set_here)
    return examination.main(config(ctx), as_json=as_json, job=job, page=scrape, is_here=is_here)
