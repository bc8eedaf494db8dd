"""The findings of ``doctor`` about the sidecar of this machine: its listeners, its store, its limit, its files.

And about the app's metrics page: selectors that match nothing, and selectors to use.
"""

from __future__ import annotations

import http.client
import random
from collections.abc import Iterator, Mapping
from contextlib import closing
from ipaddress import ip_address
from typing import Final

import click

from sidecar.cli import local_api
from sidecar.cli.doctor import Finding, fail, ok, page_names, warn
from sidecar.cli.terminal import cause
from sidecar.config import addresses, file_warnings, redis_urls
from sidecar.config.addresses import Target, parse_target
from sidecar.config.selectors import parse_selectors
from sidecar.config.settings import AppConfig, Config, JudgingConfig
from sidecar.core.claims import ALONE
from sidecar.core.measure import noise
from sidecar.net.address_gate import parse_networks

NO_SIDECAR: Final = "no_sidecar"
"""The finding that none answers on this machine. A job can be checked without one."""

TIMEOUT_S: Final = 2.0
PAGE_TIMEOUT_S: Final = 5.0
_MINUTE_S: Final = 60.0
_LEAST_PERCENT: Final = 0.01
_WILDCARDS: Final = {"0.0.0.0": "127.0.0.1", "::": "::1"}  # noqa: S104 - where it listens, and where to ask instead


def of_sidecar(config: Config) -> Iterator[Finding]:
    """Whether one answers here, with these settings, and what it knows of itself."""
    try:
        listener = local_api.local_listener(config.server.socket, config.server.local_listen)
        fleet = local_api.ask(listener, "GET", "/fleet").value
        why = local_api.ask(listener, "GET", "/why?format=json").value
    except local_api.NoSidecarError as error:
        yield warn(NO_SIDECAR, error.message)
        return
    here = {name: getattr(config.identity, name) for name in ("namespace", "service", "instance", "mode")}
    here["redis_url"] = redis_urls.shown(config.redis.redis_url)
    there = {**fleet, "redis_url": fleet.get("store")}
    differing = [
        f"ARBITER_{name.upper()} (there {there.get(name)}, here {value})"
        for name, value in here.items()
        if there.get(name) != value
    ]
    if differing:
        yield warn("sidecar", f"the one that answers runs with other settings: {', '.join(differing)}")
        return
    if fleet.get("error") not in (None, ALONE):
        yield warn("sidecar", f"it answers, but the store does not answer it: {fleet.get('sentence')}")
    else:
        yield ok("sidecar", "it answers at its local listener")
    yield from (warn("sidecar", sentence) for sentence in why.get("warnings", ()))
    usual = float((why.get("window") or {}).get("usual") or 0.0)
    yield from of_limit(config.judging, usual, int((fleet.get("fleet") or {}).get("alive") or 1))
    yield from of_public_listener(config)


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
    problems = [*file_warnings.warnings(config)]
    yield from (warn("files", problem) for problem in problems)
    if not problems:
        yield ok("files", "those that the settings name are there, and no other user can read a secret")
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


# -- the app's metrics page -------------------------------------------------------------------------------------


def target(url: str) -> Target:
    """Return the page of this URL. Raises UsageError if it is none."""
    try:
        return parse_target(url)
    except ValueError as error:
        raise click.UsageError(f"--scrape: {error}") from None


async def of_page(config: AppConfig, page: Target | None) -> list[Finding]:
    """Look at ``page`` to propose selectors, or else at the configured page to check its selectors."""
    from sidecar.inputs.scrape import MissError, Scraper  # noqa: PLC0415 - 15 MiB, which few commands need
    from sidecar.inputs.series_selection import SeriesSelection  # noqa: PLC0415 - as above

    texts = (config.scrape_errors, config.scrape_requests, config.scrape_in_flight)
    selection = SeriesSelection(*(parse_selectors("" if page is not None else text) for text in texts))
    scraper = Scraper(
        page or parse_target(config.scrape_url),
        selection,
        interval_s=1.0,
        timeout_s=PAGE_TIMEOUT_S,
        take=lambda _: None,
        on_failure=lambda _: None,
        rng=random.Random(),  # noqa: S311 - nothing is spread here
    )
    try:
        missed = await scraper.scrape()
        names = page_names.read_names(await scraper.beginning())
    except Exception as error:  # noqa: BLE001 - whatever the client raises, the page cannot be read
        word = str(error) if isinstance(error, MissError) else getattr(missed, "cause", "connection")
        return [fail("scrape", f"the metrics page cannot be read: {word}")]
    finally:
        await scraper.close()
    if page is None:
        unmatched = [warn("scrape", sentence) for sentence in page_names.advice(selection.unmatched, names)]
        return unmatched or [ok("scrape", "each selector has a name that is on the metrics page")]
    proposed = page_names.proposals(names)
    if not proposed:
        text = "no series counts answers by status, or errors: write a counter of errors, or report in another way"
        return [warn("scrape", f"{len(names)} names are on the page, and {text}")]
    return [ok("scrape", f"ARBITER_{setting.upper()}='{selector}'") for setting, selector in proposed.items()]
