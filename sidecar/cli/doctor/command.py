"""``doctor``: problems in Redis, in the sidecar of this machine, and in a job of Nomad.

It changes nothing and prints no secret.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator
from typing import Final

import click

from sidecar.cli.doctor import Finding, FindingLevel, job, job_findings, redis_findings, sidecar_findings, warn
from sidecar.cli.options import invocation, json_option, tell
from sidecar.cli.settings_commands import SettingsCommand, config, given
from sidecar.cli.terminal import EXIT_FAILED, EXIT_NO_SIDECAR, coloured, plain
from sidecar.config.addresses import Target
from sidecar.config.load import origins
from sidecar.config.settings import Config

_WIDTH: Final = max(map(len, FindingLevel))


@click.command(cls=SettingsCommand)
@click.option(
    "--job", "job_file", metavar="FILE", help="Also look at this job of Nomad in JSON; - reads it from the input."
)
@click.option("--scrape", metavar="URL", help="Also propose selectors for this metrics page of the app.")
@json_option
@click.pass_context
def doctor(ctx: click.Context, /, *, job_file: str | None, scrape: str | None, as_json: bool) -> int:
    """Find problems in Redis, in the sidecar here and around it.

    \b
    nomad job run -output app.nomad.hcl | health-arbiter doctor --job -

    With --job and without settings it looks at the job alone. The exit code is 1 if one of the findings is a
    failure, else 69 if no sidecar answers on this machine, unless --job or --scrape is given. It leaves nothing behind.
    """  # noqa: D301 - \b makes click leave the line as it is
    is_set_here = {*origins(given(ctx), invocation(ctx).environ).values()} - {"default", "nomad"}
    spec = None if job_file is None else job.read(job_file)
    page = None if scrape is None else sidecar_findings.target(scrape)
    examined = _examined(config(ctx), spec, page, is_here=spec is None or bool(is_set_here))
    findings = asyncio.run(_all(examined, print_each=not as_json))
    failed = any(each.level is FindingLevel.FAIL for each in findings)
    if as_json:
        tell({"failed": failed, "findings": [each._asdict() for each in findings]}, "", as_json=True)
    if failed:
        return EXIT_FAILED
    is_missed = spec is None and page is None and any(each.what == sidecar_findings.NO_SIDECAR for each in findings)
    return EXIT_NO_SIDECAR if is_missed else 0


async def _all(examined: AsyncIterator[Finding], *, print_each: bool) -> list[Finding]:
    """Every finding; with ``print_each`` each is printed as soon as it is found."""
    findings = []
    async for each in examined:
        findings.append(each)
        if print_each:
            click.echo(coloured(plain(f"{each.level:<{_WIDTH}} {each.what}: {each.sentence}"), each.level))
    return findings


async def _examined(
    effective: Config, spec: job.Block | None, page: Target | None, *, is_here: bool
) -> AsyncIterator[Finding]:
    """Look at this machine and its store, if settings say where they are, and at what the options name."""
    if is_here:
        if effective.redis.redis_url:
            async for found in redis_findings.of_redis(effective):
                yield found
        else:
            yield warn("store", effective.alone)
        for found in (*sidecar_findings.of_sidecar(effective), *sidecar_findings.of_files(effective, os.environ)):
            yield found
    for found in () if spec is None else job_findings.of_job(spec):
        yield found
    if page is not None or effective.app.scrape_url:
        for found in await sidecar_findings.of_page(effective.app, page):
            yield found
