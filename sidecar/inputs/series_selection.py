"""The use of each series of the app's page, from the selectors of the settings."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final, NamedTuple

from sidecar.config.selectors import Selector
from sidecar.inputs.counter_increments import MOST_SERIES, Role, SeriesUse
from sidecar.inputs.exposition import Family, family
from sidecar.inputs.series import Series, parse_series

CROWDED_PAGES: Final = 60
"""After this many pages with too many series the selection forgets all, because some may have left the page."""

_START: Final = "process_start_time_seconds"
_TOTAL: Final = "_total"
_CREATED: Final = "_created"


class Unmatched(NamedTuple):
    """A selector that has selected nothing, and the setting that has it."""

    setting: str
    selector: Selector


class SeriesSelection:
    """Finds the use of each series, by the selectors of errors, requests and requests in flight.

    At most ``most_series`` are remembered, each by a hash of 64 bits: their texts would take most of the memory, and
    two of 20,000 have the same hash once in 10^11 processes. ``overflow`` counts the selected series of the present
    page beyond ``most_series``; ``unmatched`` has the selectors that have never selected a series, by setting.
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
        self._openmetrics = False
        self._spellings = self._spell()
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
        self.families = tuple(_families((*errors, *requests), in_flight))

    def begin(self, *, openmetrics: bool) -> None:
        """Begin a page of this format."""
        self._crowded += bool(self.overflow)
        if self._crowded >= CROWDED_PAGES or openmetrics is not self._openmetrics:
            self._uses.clear()
            self._crowded = self._unused = 0
        if openmetrics is not self._openmetrics:
            self._openmetrics = openmetrics
            self._spellings = self._spell()
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
        name, labels = series
        if name == _START:
            return SeriesUse(0, Role.START)
        if self.unmatched:
            self.unmatched = [each for each in self.unmatched if not self._selects(each.selector, series)]
        if _is_selected(self._in_flight, series):
            return SeriesUse(_key(series), Role.LEVEL)
        error, request = self._selector_of(self._errors, series), self._selector_of(self._requests, series)
        counter = error or request
        if counter is None:
            return None
        key = _key(Series(counter.name, labels))
        if name == _created(counter.name):
            return SeriesUse(key, Role.CREATED)
        return SeriesUse(key, Role.COUNTER, error.kind_of(labels) if error else None, requests=request is not None)

    def _selector_of(self, selectors: Iterable[Selector], series: Series) -> Selector | None:
        """The first selector that selects this counter, or its ``_created``."""
        return next((selector for selector in selectors if self._selects(selector, series)), None)

    def _selects(self, selector: Selector, series: Series) -> bool:
        return series.name in self._spellings.get(selector.name, (selector.name,)) and selector.matches(series.labels)

    def _spell(self) -> dict[str, frozenset[str]]:
        """By selector, the names of the counter: OpenMetrics adds ``_total``, which the text format may leave out."""
        spellings = {}
        for name in {selector.name for selector in (*self._errors, *self._requests)}:
            stem = name.removesuffix(_TOTAL)
            plain = {stem, stem + _TOTAL} if self._openmetrics else {name}
            spellings[name] = frozenset({*plain, _created(name)})
        return spellings

    @property
    def has_quoted_names(self) -> bool:
        """Whether a selector has a name that has to be quoted."""
        selectors = (*self._errors, *self._requests, *self._in_flight)
        return any(not selector.legacy for selector in selectors)


def _is_selected(selectors: Iterable[Selector], series: Series) -> bool:
    return any(selector.name == series.name and selector.matches(series.labels) for selector in selectors)


def _key(series: Series) -> int:
    """A hash that does not depend on the order and spelling of the labels."""
    return hash((series.name, frozenset(series.labels.items())))


def _created(name: str) -> str:
    return name.removesuffix(_TOTAL) + _CREATED


def _families(counters: Sequence[Selector], levels: Sequence[Selector]) -> Iterable[Family]:
    """One family for each metric, with the conditions of all its selectors; with none if one selector has none."""
    yield family(_START)
    for stem in {selector.name.removesuffix(_TOTAL): None for selector in counters}:
        same = [selector for selector in counters if selector.name.removesuffix(_TOTAL) == stem]
        yield family(stem, (_TOTAL, _CREATED), _any(same))
    for name in {selector.name: None for selector in levels}:
        yield family(name, (), _any([selector for selector in levels if selector.name == name]))


def _any(selectors: Sequence[Selector]) -> bytes:
    conditions = {selector.prefilter(): None for selector in selectors}
    return b"" if b"" in conditions else b"(?:" + b"|".join(conditions) + b")"
