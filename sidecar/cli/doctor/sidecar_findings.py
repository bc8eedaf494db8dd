"""The findings of ``doctor`` about the sidecar of this machine: its listeners, its store, its limit and its files."""

from __future__ import annotations

import http.client
from collections.abc import Iterator, Mapping
from contextlib import closing
from ipaddress import ip_address
from typing import Final

from sidecar.cli import local_api
from sidecar.cli.asking_options import Asking
from sidecar.cli.doctor.findings import Finding, fail, ok, warn
from sidecar.cli.terminal import cause
from sidecar.config import addresses, contradictions, redis_urls
from sidecar.config.settings import Config, JudgingConfig
from sidecar.core.measure import noise
from sidecar.net.address_gate import parse_networks

NO_SIDECAR: Final = "no_sidecar"
"""The finding that none answers on this machine. A job can be checked without one."""

TIMEOUT_S: Final = 2.0
_MINUTE_S: Final = 60.0
_LEAST_PERCENT: Final = 0.01
_WILDCARDS: Final = {"0.0.0.0": "127.0.0.1", "::": "::1"}  # noqa: S104 - where it listens, and where to ask instead


def of_sidecar(config: Config) -> Iterator[Finding]:
    """Whether one answers here, with these settings, and what it knows of itself."""
    asking = Asking.of(config)
    try:
        fleet = local_api.ask(asking, "GET", "/fleet").value
        why = local_api.ask(asking, "GET", "/why?format=json").value
    except local_api.NoSidecarError as error:
        yield warn(NO_SIDECAR, error.message)
        return
    if "store" in fleet:
        yield from of_store(config.redis.redis_url, fleet["store"])
    names = ("namespace", "service", "instance", "mode")
    if differs := [name for name in names if fleet.get(name) != getattr(config.identity, name)]:
        named = ", ".join(f"ARBITER_{name.upper()}" for name in differs)
        yield warn("sidecar", f"the one that answers runs with other settings: {named}")
        return
    if fleet.get("error") not in (None, local_api.ALONE):
        yield warn("sidecar", f"it answers, but the store does not answer it: {fleet.get('sentence')}")
    else:
        yield ok("sidecar", "it answers at its local listener")
    yield from (warn("sidecar", sentence) for sentence in why.get("warnings", ()))
    usual = float((why.get("window") or {}).get("usual") or 0.0)
    yield from of_limit(config.judging, usual, int((fleet.get("fleet") or {}).get("alive") or 1))
    yield from of_public_listener(config)


def of_store(own: str, theirs: str) -> Iterator[Finding]:
    """Whether the store that the sidecar shows is the store of this command."""
    own = redis_urls.shown(own)
    if own != theirs:
        yield warn("store", f"the sidecar's is {theirs}, and this command's {own}: ARBITER_REDIS_URL differs")


def of_limit(judging: JudgingConfig, usual: float, containers: int) -> Iterator[Finding]:
    """Whether the limit of errors is above what chance gives; ``usual``: errors in a window while all is well."""
    if usual <= 0:
        return  # nothing is known, or nothing fails
    limit, window_s = judging.error_limit, judging.error_window
    least = noise.least_limit(usual, window_s, containers)
    well = f"your containers have {usual * _MINUTE_S / window_s:.2g} errors a minute when well"
    if limit >= least:
        yield ok("limit", f"{well}; noise hardly ever reaches a limit of {limit}")
        return
    percent = 100 * noise.share_of_windows(usual, limit)
    often = f"in {percent:.2g} % of all windows" if percent >= _LEAST_PERCENT else "now and then"
    effect = "culls for noise" if judging.outlier == "off" else "means little, and only ARBITER_OUTLIER spares them"
    text = f"a limit of {limit} {effect}: noise reaches it {often}; ARBITER_ERROR_LIMIT={least} is above it"
    yield warn("limit", f"{well}; {text}")


def of_files(config: Config, environ: Mapping[str, str]) -> Iterator[Finding]:
    """Whether the files of the settings are there and closed, and whether Nomad's checks of this node are answered."""
    problems = [*contradictions.warnings(config)]
    yield from (warn("files", problem) for problem in problems)
    if not problems:
        yield ok("files", "those that the settings name are there, and no other user can read a secret")
    if not config.state_directory:
        yield warn("state", "no directory: a cull does not survive the sidecar; ARBITER_STATE_DIR names one")
    yield from _of_nomad_checks(config, environ)


def _of_nomad_checks(config: Config, environ: Mapping[str, str]) -> Iterator[Finding]:
    networks = parse_networks(config.server.public_allow)
    hosts = {value for name, value in environ.items() if value and name.startswith(("NOMAD_IP_", "NOMAD_HOST_IP_"))}
    for host in sorted(hosts) if networks else ():
        if not any(ip_address(host) in network for network in networks):
            text = f"ARBITER_PUBLIC_ALLOW leaves out {host}, the address of this Nomad client: its checks fail unless"
            yield warn("nomad", f"{text} they come from another address, and it restarts the app")


def of_public_listener(config: Config) -> Iterator[Finding]:
    """Whether the checks of the sidecar go on; with TLS nobody asks, because no certificate has this address.

    The other listeners are open if it answers at all: until then it does not.
    """
    if config.tls.covers("public"):
        return
    at = config.server.public_listen
    host, port = addresses.split(at)
    try:
        with closing(http.client.HTTPConnection(_WILDCARDS.get(host, host), port, timeout=TIMEOUT_S)) as connection:
            connection.request("GET", "/livez")
            status = connection.getresponse().status
    except (OSError, http.client.HTTPException) as error:
        yield fail("public", f"nothing answers at {at}: {cause(error)}")
        return
    is_live = status == http.HTTPStatus.OK
    yield ok("public", f"{at}: /livez is 200") if is_live else fail("public", f"/livez is {status}: its checks stopped")
