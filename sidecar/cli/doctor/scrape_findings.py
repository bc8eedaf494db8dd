"""The findings of ``doctor`` about the app's metrics page: selectors that match nothing, and selectors to use."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING

import click

from sidecar.cli.doctor.findings import Finding, fail, ok, warn
from sidecar.config.addresses import Target, parse_target
from sidecar.config.selectors import parse_selectors

if TYPE_CHECKING:
    from sidecar.config.settings import AppConfig

TIMEOUT_S = 5.0


def target(url: str) -> Target:
    """Return the page of this URL. Raises UsageError if it is none."""
    try:
        return parse_target(url)
    except ValueError as error:
        raise click.UsageError(f"--scrape: {error}") from None


async def of_page(config: AppConfig, page: Target | None) -> list[Finding]:
    """Look at ``page`` to propose selectors, or else at the configured page to check its selectors."""
    from sidecar.inputs import page_names  # noqa: PLC0415 - with aiohttp's client 15 MiB, which few commands need
    from sidecar.inputs.scrape import MissError, Scraper  # noqa: PLC0415 - as above
    from sidecar.inputs.series_selection import SeriesSelection  # noqa: PLC0415 - as above

    selection = SeriesSelection(
        *(
            parse_selectors("" if page is not None else text)
            for text in (config.scrape_errors, config.scrape_requests, config.scrape_in_flight)
        )
    )
    scraper = Scraper(
        page or parse_target(config.scrape_url),
        selection,
        interval_s=1.0,
        timeout_s=TIMEOUT_S,
        offer=lambda _: True,
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
        found = [warn("scrape", sentence) for sentence in page_names.advice(selection.unmatched, names)]
        return found or [ok("scrape", "each selector has a name that is on the metrics page")]
    proposed = page_names.proposals(names)
    if not proposed:
        text = "no series counts answers by status, or errors: write a counter of errors, or report in another way"
        return [warn("scrape", f"{len(names)} names are on the page, and {text}")]
    return [ok("scrape", f"ARBITER_{setting.upper()}='{selector}'") for setting, selector in proposed.items()]
