"""Everything that is looked for on one app's pages: selectors to families of lines, and a series to its use."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final

from sidecar.config.selectors import Selector
from sidecar.inputs.exposition import Family, family
from sidecar.inputs.increments import MOST_SERIES, Role, Use
from sidecar.inputs.series import Series, parse_series

CROWDED_PAGES: Final = 60
"""After so many pages with too many series those that have gone may make room."""

_START: Final = "process_start_time_seconds"
_TOTAL: Final = "_total"
_CREATED: Final = "_created"


class Wanted:
    """What the selectors of errors, requests, requests in flight and load mean, series by series.

    Series are remembered by 64 bits of how the page spells them, at most ``most_series`` (two of 20,000 are alike once
    in 10^11 processes; their texts would take most of our memory). ``overflow`` counts those of the present page for
    which there was no room.
    """

    def __init__(
        self,
        errors: Sequence[Selector],
        requests: Sequence[Selector] = (),
        in_flight: Sequence[Selector] = (),
        load: Sequence[Selector] = (),
        *,
        most_series: int = MOST_SERIES,
    ) -> None:
        self._errors = tuple(errors)
        self._requests = tuple(requests)
        self._in_flight = tuple(in_flight)
        self._load = tuple(load)
        self._most_series = most_series
        self._uses: dict[int, Use | None] = {}
        self._unwanted = self._crowded = 0
        self._openmetrics = False
        self._spellings = self._spell()
        self.overflow = 0
        self.families = tuple(_families((*errors, *requests), (*in_flight, *load)))

    def begin(self, *, openmetrics: bool) -> None:
        """A new page comes, in this format."""
        self._crowded += bool(self.overflow)
        if self._crowded >= CROWDED_PAGES or openmetrics is not self._openmetrics:
            self._uses.clear()
            self._crowded = self._unwanted = 0
        if openmetrics is not self._openmetrics:
            self._openmetrics = openmetrics
            self._spellings = self._spell()
        self.overflow = 0

    def use(self, series: bytes) -> Use | None:
        """What a series, as the page spells it, is used for, if for anything; BadPageError when it is none."""
        try:
            return self._uses[hash(series)]
        except KeyError:
            return self._learn(series)

    def _learn(self, text: bytes) -> Use | None:
        use = self._means(parse_series(text))
        if use is None:
            if self._unwanted < self._most_series:
                self._unwanted += 1
                self._uses[hash(text)] = None
        elif use.role is Role.START:
            return use  # always, and not worth the room
        elif len(self._uses) - self._unwanted < self._most_series:
            self._uses[hash(text)] = use
        else:
            self.overflow += 1
            return None
        return use

    def _means(self, series: Series) -> Use | None:
        name, labels = series
        if name == _START:
            return Use(0, Role.START)
        in_flight, load = _is_meant(self._in_flight, series), _is_meant(self._load, series)
        if in_flight or load:
            return Use(_key(series), _ROLES[in_flight, load])
        error, request = self._meant_by(self._errors, series), self._meant_by(self._requests, series)
        counter = error or request
        if counter is None:
            return None
        key = _key(Series(counter.name, labels))
        if name == _created(counter.name):
            return Use(key, Role.CREATED)
        return Use(key, Role.COUNTER, error.kind_of(labels) if error else None, requests=request is not None)

    def _meant_by(self, selectors: Iterable[Selector], series: Series) -> Selector | None:
        """The first selector that means this counter, or the time of its creation."""
        for selector in selectors:
            if series.name in self._spellings[selector.name] and selector.matches(series.labels):
                return selector
        return None

    def _spell(self) -> dict[str, frozenset[str]]:
        """OpenMetrics adds ``_total`` to what the same app's text page may call by its plain name."""
        spellings = {}
        for name in {selector.name for selector in (*self._errors, *self._requests)}:
            stem = name.removesuffix(_TOTAL)
            plain = {stem, stem + _TOTAL} if self._openmetrics else {name}
            spellings[name] = frozenset({*plain, _created(name)})
        return spellings

    @property
    def utf8(self) -> bool:
        """Whether a selector has a name that has to be quoted."""
        everything = (*self._errors, *self._requests, *self._in_flight, *self._load)
        return any(not selector.legacy for selector in everything)


_ROLES: Final = {(True, False): Role.LEVEL, (False, True): Role.LOAD, (True, True): Role.BOTH}
"""By whether a series tells what is in flight, and whether the load."""


def _is_meant(selectors: Iterable[Selector], series: Series) -> bool:
    return any(selector.name == series.name and selector.matches(series.labels) for selector in selectors)


def _key(series: Series) -> int:
    """64 bits that do not depend on the labels' order and spelling."""
    return hash((series.name, frozenset(series.labels.items())))


def _created(name: str) -> str:
    return name.removesuffix(_TOTAL) + _CREATED


def _families(counters: Sequence[Selector], levels: Sequence[Selector]) -> Iterable[Family]:
    """One family a metric: its condition is that of one of its selectors, or none when one of them has none."""
    yield family(_START)
    for stem in {selector.name.removesuffix(_TOTAL): None for selector in counters}:
        same = [selector for selector in counters if selector.name.removesuffix(_TOTAL) == stem]
        yield family(stem, (_TOTAL, _CREATED), _any(same))
    for name in {selector.name: None for selector in levels}:
        yield family(name, (), _any([selector for selector in levels if selector.name == name]))


def _any(selectors: Sequence[Selector]) -> bytes:
    conditions = {selector.prefilter(): None for selector in selectors}
    return b"" if b"" in conditions else b"(?:" + b"|".join(conditions) + b")"
