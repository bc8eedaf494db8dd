"""Builds the scraper of the app's metrics page. Imported only if a page is configured, because it costs 15 ms."""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Final

from sidecar.config.scrape_url import parse_target
from sidecar.config.selectors import parse_selectors
from sidecar.core.types import Report, Sample
from sidecar.inputs.scrape import Scraper
from sidecar.inputs.series_selection import SeriesSelection
from sidecar.telemetry.log import logger

if TYPE_CHECKING:
    from sidecar.config.settings import ScrapeConfig
    from sidecar.telemetry.observers import Observers

Offer = Callable[[Sequence[Report]], bool]

SCRAPE_TIMEOUT_S: Final = 2.0
"""Maximum time of a whole scrape; never longer than the interval of scrapes."""


def scraper(config: ScrapeConfig, error_window_s: float, offer: Offer, observers: Observers) -> Scraper:
    """Build the scraper, which passes its reports to ``offer`` and to the observers."""
    reports = _ScrapedReports(offer, observers.scrape, error_window_s)
    return Scraper(
        parse_target(config.scrape_url),
        SeriesSelection(
            parse_selectors(config.scrape_errors),
            parse_selectors(config.scrape_requests),
            parse_selectors(config.scrape_in_flight),
        ),
        interval_s=config.scrape_interval,
        timeout_s=min(SCRAPE_TIMEOUT_S, config.scrape_interval),
        offer=reports.offer,
        on_failure=partial(observers.failed, "listener"),
        on_advice=logger.warning,
        rng=random.Random(),  # noqa: S311 - it spreads timers, it guards nothing
    )


class _ScrapedReports:
    """Passes scrapes to the controller and the observers.

    If the last good scrape is older than the window, the counts since then may be too old to count now: they are
    left out.
    """

    def __init__(self, offer: Offer, observe: Callable[[Report], None], window_s: float) -> None:
        self._offer = offer
        self._observe = observe
        self._window_s = window_s
        self._last = time.monotonic()

    def offer(self, reports: Sequence[Report]) -> bool:
        return self._offer([self._dated(report) for report in reports])

    def _dated(self, report: Report) -> Report:
        self._observe(report)
        if not isinstance(report, Sample):
            return report
        gap, self._last = time.monotonic() - self._last, time.monotonic()
        return report if gap <= self._window_s else replace(report, errors={}, requests=0)
