"""The findings of ``doctor`` about the checks of a group: those by which Nomad restarts a culled app, and others."""

from __future__ import annotations

from collections.abc import Iterator
from difflib import get_close_matches
from functools import partial
from typing import Final

from sidecar.cli.doctor import findings
from sidecar.cli.doctor.findings import Finding
from sidecar.cli.doctor.job_pair import Check, Pair, restart_of

NOMAD_PATH: Final = "/health/nomad"
IMAGE_PULL_S: Final = 60.0
RESTART_JITTER: Final = 1.25
"""Nomad adds up to a quarter to a restart's delay."""

START_UP_S: Final = 2.0

_ok = partial(findings.ok, "job")
_warn = partial(findings.warn, "job")
_fail = partial(findings.fail, "job")


def of_checks(pair: Pair) -> Iterator[Finding]:
    """Whether one restarts a culled app, and none restarts anything else."""
    asking = pair.asking
    if len(asking) == len(pair.checks):
        yield _warn("no check asks the app itself: a deployment of an app that does not listen is successful")
    if not asking and pair.action == "check":
        yield _fail(f"no check asks {NOMAD_PATH}: Nomad never restarts a culled app")
    for check in pair.checks:
        similar = get_close_matches("CheckRestart", [*check.block], cutoff=0.8)
        for misspelt in {*similar} - {"CheckRestart"}:
            yield _fail(f"{misspelt} in a check of port {check.port}: Nomad ignores it; write CheckRestart")
        if check in asking:
            yield from _of_asking(pair, check)
        elif check.limit:
            yield _warn(f"the check of port {check.port} has a check_restart, which does not ask the fleet")


def _of_asking(pair: Pair, check: Check) -> Iterator[Finding]:
    named, port, asked = f"the check of {check.path}", pair.port("public"), check.block
    if check.port not in ("", str(port)) and pair.ports.get(check.port) != port:
        yield _fail(f"{named} asks port {check.port}, and not {port}, that of ARBITER_PUBLIC_LISTEN")
    trusts = asked.text("Protocol") == "https" and (asked.flag("TLSSkipVerify") or asked.text("TLSServerName"))
    if pair.is_public_secured and not trusts:
        yield _fail(f"{named} fails always: TLS needs protocol https, and tls_skip_verify or tls_server_name")
    if pair.action != "check":
        return
    if check.path != NOMAD_PATH:
        yield _fail(f"{named} fails as the drain begins: it has to ask {NOMAD_PATH}")
    if check.task in ("", pair.arbiter.text("Name")):
        yield _fail(f"{named} restarts the arbiter: put its service into the app's task")
    if not check.limit:
        yield _fail(f"{named} has no check_restart: it restarts nothing")
        return
    yield from _of_times(pair, check)


def _of_times(pair: Pair, check: Check) -> Iterator[Finding]:
    """Nomad counts failures from the first, so it restarts the app at the last of ``limit``. No answer is a failure."""
    grace_s, interval_s = check.block.block("CheckRestart").seconds("Grace", 1.0), check.block.seconds("Interval")
    drain_s, patience_s = pair.settings.culling.drain, interval_s * (check.limit - 1)
    delay_s = RESTART_JITTER * restart_of(pair.group, pair.arbiter).delay_s
    away_s = pair.settings.server.stop_drain + delay_s + START_UP_S + interval_s
    if grace_s < IMAGE_PULL_S:
        yield _warn(f"check_restart grace {grace_s:g} s: pulling the arbiter's image may take longer")
    if patience_s <= away_s:
        text = f"{patience_s:g} s of failures restart the app, and a restarted arbiter is away for {away_s:g} s"
        yield _warn(f"{text}: shorten its restart delay, or raise limit")
    least_s = drain_s + patience_s
    after_start = f"no sooner than {grace_s + patience_s:g} s after its start"  # during the grace none counts
    times = f"{least_s:g} to {least_s + interval_s + 1:g} s after the grant, and {after_start}"
    yield _ok(f"a culled app is restarted {times}: a drain of {drain_s:g} s and {check.limit} polls")
