"""The use of each series of the app's page, from the selectors of the settings."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final, NamedTuple

from sidecar.config.selectors import Selector
from sidecar.inputs.counter_increments import MOST_SERIES, Role, SeriesUse
from sidecar.inputs.exposition import Series, parse_series

CROWDED_PAGES: Final = 60
"""After this many pages with too many series the selection forgets all, because some may have left the page."""

_START: Final = "process_start_time_seconds"


class Unmatched(NamedTuple):
    """A selector that has selected nothing, and the setting that has it."""

    setting: str
    selector: Selector


class SeriesSelection:
    """Finds the use of each series, by the selectors of errors, requests and requests in flight.

    At most ``most_series`` are remembered, each by a hash of 64 bits: their texts would take most of the memory, and
    two of 20,000 have the same hash once in 10^11 processes. ``overflow`` counts the selected series of the present
    page beyond ``most_series``; ``names`` are the metrics to look for; ``unmatched`` has the selectors that have never
    selected a series, by setting.
    """

    def __init__(
        self,
        errors: Sequence[Selector],
        requests: Sequence[Selector] = (),
        in_flight: Sequence[Selector] = (),
        *,
        most_series: int = MOST_SERIES,
    ) -> None:
        self._errors = tuple(errors)
        self._requests = tuple(requests)
        self._in_flight = tuple(in_flight)
        self._most_series = most_series
        self._uses: dict[int, SeriesUse | None] = {}
        self._unused = self._crowded = 0
        self.overflow = 0
        self.unmatched = [
            Unmatched(setting, selector)
            for setting, selectors in (
                ("scrape_errors", self._errors),
                ("scrape_requests", self._requests),
                ("scrape_in_flight", self._in_flight),
            )
            for selector in selectors
        ]
        self.names = {_START, *(selector.name for selector in (*errors, *requests, *in_flight))}

    def begin(self) -> None:
        """Begin a page."""
        self._crowded += bool(self.overflow)
        if self._crowded >= CROWDED_PAGES:
            self._uses.clear()
            self._crowded = self._unused = 0
        self.overflow = 0

    def use(self, series: bytes) -> SeriesUse | None:
        """The use of a series as the page spells it, None if it has none; BadPageError if it is no series."""
        try:
            return self._uses[hash(series)]
        except KeyError:
            return self._learn(series)

    def _learn(self, text: bytes) -> SeriesUse | None:
        use = self._use_of(parse_series(text))
        if use is None:
            if self._unused < self._most_series:
                self._unused += 1
                self._uses[hash(text)] = None
        elif use.role is Role.START:
            return use  # a single series need not be remembered
        elif len(self._uses) - self._unused < self._most_series:
            self._uses[hash(text)] = use
        else:
            self.overflow += 1
            return None
        return use

    def _use_of(self, series: Series) -> SeriesUse | None:
        if series.name == _START:
            return SeriesUse(0, Role.START)
        if self.unmatched:
            self.unmatched = [each for each in self.unmatched if not each.selector.selects(*series)]
        key = hash((series.name, frozenset(series.labels.items())))  # whatever the order and spelling of the labels
        if _selector_of(self._in_flight, series):
            return SeriesUse(key, Role.LEVEL)
        error, request = _selector_of(self._errors, series), _selector_of(self._requests, series)
        if error is None and request is None:
            return None
        kind = error.kind_of(series.labels) if error else None
        return SeriesUse(key, Role.COUNTER, kind, requests=request is not None)


def _selector_of(selectors: Iterable[Selector], series: Series) -> Selector | None:
    """The first selector that selects this series."""
    return next((selector for selector in selectors if selector.selects(*series)), None)
