"""``doctor``: problems in Redis, in the sidecar of this machine and around it."""

from __future__ import annotations

import click

from sidecar.cli.doctor import examination
from sidecar.cli.parameters import invocation, json_option
from sidecar.cli.remote import URL
from sidecar.cli.settings_options import SettingsCommand, config, given
from sidecar.config.load import origins


@click.command(cls=SettingsCommand)
@click.option(
    "--job", metavar="FILE", default=None, help="Also look at this job of Nomad in JSON; - reads it from the input."
)
@click.option("--scrape", metavar="URL", default=None, help="Also propose selectors for this metrics page of the app.")
@click.option("--url", hidden=True)
@json_option
@click.pass_context
def doctor(ctx: click.Context, /, *, job: str | None, scrape: str | None, url: str | None, as_json: bool) -> int:
    """Find problems in Redis, in the sidecar here and around it.

    \b
    nomad job run -output app.nomad.hcl | health-arbiter doctor --job -

    With --job and without settings it looks at the job alone. The exit code is 1 if one of the findings is a
    failure, else 69 if no sidecar answers here, unless --job or --scrape is given. It leaves nothing behind.
    """  # noqa: D301 - \b makes click leave the line as it is
    if url is not None or (invocation(ctx).environ.get(URL) and not (job or scrape)):
        name = URL if url is None else "--url"
        raise click.UsageError(f"{name}: not for doctor: it looks at the machine on which it runs, so run it there")
    is_set_here = {*origins(given(ctx), invocation(ctx).environ).values()} - {"default", "nomad"}
    is_here = job is None or bool(is_set_here)
    return examination.main(config(ctx), as_json=as_json, job=job, page=scrape, is_here=is_here)
