"""``doctor``: problems in Redis, in the sidecar of this machine, and in a job of Nomad.

It changes nothing and prints no secret.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Iterable
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
    findings = list[Finding]()

    def take(new: Iterable[Finding]) -> None:
        for finding in new:
            findings.append(finding)
            if not as_json:
                line = plain(f"{finding.level:<{_WIDTH}} {finding.what}: {finding.sentence}")
                click.echo(coloured(line, finding.level))

    asyncio.run(_examine(config(ctx), spec, page, take, is_here=spec is None or bool(is_set_here)))
    failed = any(finding.level is FindingLevel.FAIL for finding in findings)
    if as_json:
        tell({"failed": failed, "findings": [finding._asdict() for finding in findings]}, "", as_json=True)
    if failed:
        return EXIT_FAILED
    is_missed = spec is None and page is None and any(each.what == sidecar_findings.NO_SIDECAR for each in findings)
    return EXIT_NO_SIDECAR if is_missed else 0


async def _examine(
    effective: Config,
    spec: job.Block | None,
    page: Target | None,
    take: Callable[[Iterable[Finding]], None],
    *,
    is_here: bool,
) -> None:
    """Look at this machine and its store, if settings say where they are, and at what the options name.

    ``take`` gets the findings as they are made.
    """
    if is_here:
        is_shared = effective.redis.redis_url
        take(await redis_findings.of_redis(effective) if is_shared else [warn("store", effective.alone)])
        take(sidecar_findings.of_sidecar(effective))
        take(sidecar_findings.of_files(effective, os.environ))
    if spec is not None:
        take(job_findings.of_job(spec))
    if page is not None or effective.app.scrape_url:
        take(await sidecar_findings.of_page(effective.app, page))
