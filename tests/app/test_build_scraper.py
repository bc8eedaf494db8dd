"""What a scrape passes on: to the observers all of it, to the controller no counts that may be too old."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from sidecar.app.build_scraper import scraper
from sidecar.config.settings import AppConfig, JudgingConfig
from sidecar.core.app_reports import Missed, Report, Sample
from sidecar.telemetry import Observers

CONFIG = AppConfig(scrape_url="http://127.0.0.1:9/m", scrape_errors="errors_total")
SAMPLE = Sample({"web": 3}, requests=9, in_flight=2)


@pytest.mark.parametrize("is_taken", [True, False])
def test_observers_and_the_controller_get_every_scrape(*, is_taken: bool) -> None:
    offered: list[Report] = []
    observed: list[Report] = []

    def offer(reports: Sequence[Report]) -> bool:
        offered.extend(reports)
        return is_taken

    observers = Observers()
    observers.scrapes.append(observed.append)
    built = scraper(CONFIG, JudgingConfig(), offer, observers)
    assert built._offer([Missed("timeout"), SAMPLE]) is is_taken
    assert offered == observed == [Missed("timeout"), SAMPLE]


def test_counts_since_a_scrape_that_is_older_than_the_window_are_left_out() -> None:
    offered: list[Report] = []

    def offer(reports: Sequence[Report]) -> bool:
        offered.extend(reports)
        return True

    assert scraper(CONFIG, JudgingConfig(error_window=0), offer, Observers())._offer([SAMPLE])
    assert offered == [Sample({}, requests=0, in_flight=2)]
