"""Builds the scraper; imported only if there is a page to scrape."""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Final

from sidecar.config.addresses import parse_target
from sidecar.config.selectors import parse_selectors
from sidecar.core.app_reports import Report, Sample
from sidecar.inputs.scrape import Scraper
from sidecar.inputs.series_selection import SeriesSelection
from sidecar.telemetry.log import logger

if TYPE_CHECKING:
    from sidecar.config.settings import AppConfig, JudgingConfig
    from sidecar.telemetry import Observers

SCRAPE_TIMEOUT_S: Final = 2.0
"""Maximum time of a whole scrape; never longer than the interval of scrapes."""

Offer = Callable[[Sequence[Report]], bool]
"""Takes reports; False if too many are waiting."""


def scraper(config: AppConfig, judging: JudgingConfig, offer: Offer, observers: Observers) -> Scraper:
    """Build the scraper, which passes its reports to ``offer`` and to the observers.

    If the last good scrape is older than the window, the counts since then may be too old to count now: they are
    left out.
    """
    scraped_at = time.monotonic()

    def dated(report: Report) -> Report:
        nonlocal scraped_at
        observers.scrape(report)
        if not isinstance(report, Sample):
            return report
        gap_s, scraped_at = time.monotonic() - scraped_at, time.monotonic()
        return report if gap_s <= judging.error_window else replace(report, errors={}, requests=0)

    return Scraper(
        parse_target(config.scrape_url),
        SeriesSelection(
            parse_selectors(config.scrape_errors),
            parse_selectors(config.scrape_requests),
            parse_selectors(config.scrape_in_flight),
        ),
        interval_s=judging.check_interval,
        timeout_s=min(SCRAPE_TIMEOUT_S, judging.check_interval),
        offer=lambda reports: offer([dated(report) for report in reports]),
        on_failure=partial(observers.failed, "listener"),
        on_advice=logger.info,
        rng=random.Random(),  # noqa: S311 - it spreads timers, it guards nothing
    )
