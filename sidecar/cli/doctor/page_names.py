"""The names on a metrics page: advice for selectors that match nothing, and selectors for a page without any."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from difflib import get_close_matches
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from sidecar.inputs.series_selection import Unmatched

NEAREST: Final = 3
_VALUES: Final = 8
"""Maximum number of values that are kept of a label."""

_SERIES: Final = re.compile(r"([A-Za-z_:][\w:]*)(?:\{(.*)\})?")
_TYPE: Final = re.compile(r"# TYPE ([A-Za-z_:][\w:]*) ")
# Possessive: a long line without labels would otherwise take seconds, and a regex holds all threads.
_LABEL: Final = re.compile(r'\b([A-Za-z_]\w*+)\s*+=\s*+"((?:[^"\\]|\\.)*+)"')
_PARTS: Final = ("_bucket", "_sum", "_created")
"""Series of a histogram or a counter that are no count of their own."""

_STATUS: Final = re.compile(r"[1-5](?:[0-9]{2}|xx)", re.IGNORECASE)
_STATUS_LABEL: Final = re.compile(r"(?:\w+_)?(?:status|code|status_?code)")
_FAILURES: Final = re.compile(r"error|exception|fail")
_REQUESTS: Final = re.compile(r"request|response")
_IN_FLIGHT: Final = re.compile(r"in_?flight|in_?progress|active_requests|requests_active_seconds(?:_active)?_count")
_FOREIGN: Final = re.compile(r"promhttp_|prometheus_|_client_|_body_|_size_")
"""Names that count requests other than those that the app answers."""

PageNames = Mapping[str, Mapping[str, frozenset[str]]]
"""By name, the labels of its series, each with some of its values; empty for a name without series."""


def read_names(page: bytes) -> PageNames:
    """Return the names of a page in any of its formats; what cannot be read is left out."""
    names: dict[str, dict[str, set[str]]] = {}
    for line in page.decode(errors="replace").splitlines():
        if declared := _TYPE.match(line):
            names.setdefault(declared[1], {})
        series = _SERIES.match(line)
        if series is None or series[1].endswith(_PARTS):
            continue
        labels = names.setdefault(series[1], {})
        for label, value in _LABEL.findall(series[2] or ""):
            values = labels.setdefault(label, set())
            if len(values) < _VALUES:
                values.add(value)
    return {name: {label: frozenset(values) for label, values in labels.items()} for name, labels in names.items()}


def advice(unmatched: Iterable[Unmatched], names: PageNames) -> Iterator[str]:
    """Yield a sentence for each selector whose name or label is not on the page.

    There is none for a name that is declared, and may have no series before the first error.
    """
    for setting, selector in unmatched:
        spelled = {selector.name, selector.name.removesuffix("_total"), f"{selector.name}_total"} & names.keys()
        has = {label for name in spelled for label in names[name]}
        lacking = [matcher.label for matcher in selector.matchers if matcher.label not in has]
        if not spelled:
            near = get_close_matches(selector.name, names, n=NEAREST, cutoff=0.6)
            nearest = f"; the nearest names are {', '.join(_shown(name, names) for name in near)}" if near else ""
            yield f"ARBITER_{setting.upper()}: nothing on the page is called {selector.name}{nearest}"
        elif has and lacking:
            labels = f"its labels are {', '.join(sorted(has))}"
            yield f"ARBITER_{setting.upper()}: {selector.name} has no label {lacking[0]} on the page; {labels}"


def _shown(name: str, names: PageNames) -> str:
    labels = ",".join(sorted(names[name]))
    return f"{name}{{{labels}}}" if labels else name


def proposals(names: PageNames) -> dict[str, str]:
    """Return selectors by setting (``scrape_errors`` and so on), as far as the names tell."""
    counts = [name for name in names if name.endswith(("_total", "_count")) and not _FOREIGN.search(name)]
    by_status = {name: label for name in counts if (label := _status_label(names[name]))}
    requests = [name for name in by_status if not _FAILURES.search(name)]
    selectors = {}
    if requests:
        best = min(requests, key=lambda name: (not _REQUESTS.search(name), len(names[name]), name))
        selectors["scrape_errors"] = f'{best}{{{by_status[best]}=~"5.."}}'
        selectors["scrape_requests"] = best
    elif failures := [name for name in counts if _FAILURES.search(name)]:
        selectors["scrape_errors"] = min(failures, key=lambda name: (len(names[name]), name))
    if in_flight := [name for name in names if _IN_FLIGHT.search(name) and not _FOREIGN.search(name)]:
        selectors["scrape_in_flight"] = min(in_flight, key=lambda name: (not _REQUESTS.search(name), len(name), name))
    return selectors


def _status_label(labels: Mapping[str, frozenset[str]]) -> str:
    """Return the label with the status of a response; "" if there is none."""
    for label, values in labels.items():
        if _STATUS_LABEL.fullmatch(label) and values and all(map(_STATUS.fullmatch, values)):
            return label
    return ""
