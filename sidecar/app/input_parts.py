"""The ways in that most sidecars do not use, loaded only when they are configured: datagrams and scrapes."""

from __future__ import annotations

import random
import time
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

from sidecar.config import addresses
from sidecar.core.types import Report, Sample
from sidecar.net.sockets import Inherited, named
from sidecar.telemetry.metrics import DatagramReadings
from sidecar.telemetry.observers import Observers

if TYPE_CHECKING:
    from sidecar.config.settings import Settings
    from sidecar.inputs.datagram import Datagrams
    from sidecar.inputs.scrape import Scraper


Offer = Callable[[Sequence[Report]], bool]
"""Takes what was reported; False when too much is waiting."""


@asynccontextmanager
async def datagrams(
    settings: Settings, offer: Offer, told: Observers, inherited: Inherited
) -> AsyncIterator[Datagrams | None]:
    """Receive StatsD datagrams while the context lasts, if the settings say where."""
    if settings.statsd_listen == addresses.OFF and not settings.statsd_socket:
        yield None
        return
    from sidecar.inputs.datagram import Datagrams  # noqa: PLC0415 - as the head says

    door = Datagrams(offer, on_failure=partial(told.failed, "door"), prefix=settings.statsd_prefix)
    try:
        for opened in (*inherited.get("statsd_listen", ()), *inherited.get("statsd_socket", ())):
            door.adopt(opened)
        if settings.statsd_listen != addresses.OFF and "statsd_listen" not in inherited:
            with named("ARBITER_STATSD_LISTEN", settings.statsd_listen):
                await door.open_udp(*addresses.split(settings.statsd_listen))
        if settings.statsd_socket and "statsd_socket" not in inherited:
            with named("ARBITER_STATSD_SOCKET", settings.statsd_socket):
                await door.open_unix(settings.statsd_socket)
        told.metrics.registry.register(
            DatagramReadings(
                lambda: {
                    "packets": door.packets,
                    "lines": door.lines,
                    "unreadable": door.unreadable,
                    "truncated": door.truncated,
                    "refused": door.refused,
                    "kernel": door.kernel_drops,
                }
            )
        )
        yield door
    finally:
        door.close()


def scraper(settings: Settings, offer: Offer, told: Observers) -> Scraper | None:
    """What scrapes the app's page, if the settings name one."""
    if not settings.scrape_url:
        return None
    from sidecar.config.selectors import parse_selectors  # noqa: PLC0415 - as above
    from sidecar.inputs.scrape import Scraper, parse_target  # noqa: PLC0415 - as the head says
    from sidecar.inputs.wanted_series import Wanted  # noqa: PLC0415 - as above

    reports = _Scraped(offer, told, settings.error_window)
    return Scraper(
        parse_target(settings.scrape_url),
        Wanted(
            parse_selectors(settings.scrape_errors),
            parse_selectors(settings.scrape_requests),
            parse_selectors(settings.scrape_in_flight),
            parse_selectors(settings.scrape_load),
        ),
        interval_s=settings.scrape_interval,
        timeout_s=settings.scrape_timeout,
        max_bytes=settings.scrape_max_bytes,
        offer=reports.offer,
        on_failure=partial(told.failed, "door"),
        rng=random.Random(),  # noqa: S311 - it spreads timers, it guards nothing
    )


class _Scraped:
    """Passes scrapes on, and tells them. What has gathered for longer than the window is too old to say when it was."""

    def __init__(self, offer: Offer, told: Observers, window_s: float) -> None:
        self._offer = offer
        self._told = told
        self._window_s = window_s
        self._last = time.monotonic()

    def offer(self, reports: Sequence[Report]) -> bool:
        return self._offer([self._dated(report) for report in reports])

    def _dated(self, report: Report) -> Report:
        self._told.scraped(report)
        if not isinstance(report, Sample):
            return report
        gap, self._last = time.monotonic() - self._last, time.monotonic()
        return report if gap <= self._window_s else replace(report, errors={}, requests=0)
