"""Parses StatsD packets: bytes in, reports out, and the number of unreadable lines.

A line is ``NAME:VALUE[:VALUE...]|TYPE[|@RATE][|#TAG:VALUE,...]`` (statsd/docs/metric_types.md, DogStatsD datagram
format 1.0 to 1.4). These counters are read, with or without the prefix of the app's client:

- ``errors``, with the fields of ``POST /errors`` as tags: level, kind, fingerprint, fatal, app_start
- ``requests`` that succeeded and ``failed`` ones, for the success rate; an error alone is no failed request
- ``heartbeat``

So are two gauges: ``in_flight``, the number of requests in progress in the whole app, and ``load``, how busy it is, in
any unit. Of several in one batch the largest counts, because an old value must not end a drain.

All other metrics, events and service checks are skipped without an error. A sampled count is ``count / rate``, rounded
to the nearest whole number. Timestamps, containers and other extensions of DogStatsD are skipped: a report counts when
it comes.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from functools import lru_cache
from typing import Any, Final, NamedTuple

from sidecar.core.app_reports import ErrorReport, Heartbeat, Report, Results
from sidecar.inputs.report_bodies import MOST_ERRORS, READERS

COUNTER: Final = b"c"
GAUGE: Final = b"g"
TYPES: Final = frozenset((COUNTER, GAUGE, b"ms", b"h", b"d", b"s", b"m"))
EVENT: Final = b"_e{"
SERVICE_CHECK: Final = b"_sc|"
USUAL: Final = re.compile(rb"([^:|]+):([0-9]{1,6})\|c(?:\|#([^|]*))?")
"""A counter with a count and perhaps tags: nearly every line, which takes half the time so."""

DECIMAL: Final = re.compile(rb"[0-9]{0,15}(?:\.[0-9]{0,20})?(?:[eE][+-]?[0-9]{1,2})?")
"""What ``float`` takes besides is no number of StatsD, such as a sign, which changes a gauge, or a digit separator."""

FLAGS: Final = {"true": True, "false": False}

ERROR: Final = ErrorReport()
OK: Final = Results(ok=1)
FAILED: Final = Results(failed=1)
UNITS: Final[Mapping[bytes, Report]] = {
    b"errors": ERROR,
    b"requests": OK,
    b"failed": FAILED,
    b"heartbeat": Heartbeat(),
}
"""The report of a count of one."""

ADVICE_AFTER: Final = 3
"""Number of lines whose names end in a known one after which ``ParsedPackets.advice`` says so."""

SHOWN_LIMIT: Final = 100

KNOWN_TAGS: Final = 512
"""Number of sets of tags whose error is remembered: those of an app come again and again."""

Times = tuple[Report, int]
"""The report of one unit, and the number of units."""


class ParsedPackets(NamedTuple):
    """The sum of some packets."""

    reports: list[Report]  # each kind once
    lines: int
    unreadable: int  # of these lines
    advice: str  # for the operator, once: lines came with a prefix before the known names, and none without


class PacketReader:
    """Parses packets. ``prefix`` of the names gets a dot unless it ends in a sign."""

    def __init__(self, prefix: str = "") -> None:
        joined = f"{prefix}." if prefix[-1:].isalnum() else prefix
        self._counters = {**UNITS, **{joined.encode() + name: unit for name, unit in UNITS.items()}}
        self._gauges = {**GAUGES, **{joined.encode() + name: read for name, read in GAUGES.items()}}
        self._prefixed = 0
        self._is_understood = False
        self._advice = ""

    def read(self, packets: Mapping[bytes, int]) -> ParsedPackets:
        """Sum up packets, each with the number of times it came. Raises nothing."""
        totals: dict[Report, int] = {}
        lines = unreadable = 0
        for packet, times in packets.items():
            for line in filter(None, map(bytes.strip, packet.split(b"\n"))):
                lines += times
                try:
                    counted = self._parse(line)
                except ValueError:
                    unreadable += times
                    continue
                if counted is not None:
                    unit, number = counted
                    totals[unit] = totals.get(unit, 0) + number * times
        if totals:
            self._is_understood, self._advice = True, ""
        advice, self._advice = self._advice, ""
        return ParsedPackets(_reports(totals), lines, unreadable, advice)

    def _parse(self, line: bytes) -> Times | None:
        """None for other metrics; ValueError for an unreadable line."""
        if (usual := USUAL.fullmatch(line)) and (unit := self._counters.get(usual[1])) is not None:
            return _times(_tagged(unit, usual[3]), int(usual[2]))
        if line.startswith((EVENT, SERVICE_CHECK)):
            return None
        name, _, rest = line.partition(b":")
        values, _, rest = rest.partition(b"|")
        if not name or not values or not rest:
            raise ValueError("not NAME:VALUE|TYPE")
        unit, read_gauge = self._counters.get(name), self._gauges.get(name)
        if unit is None and read_gauge is None:
            if not self._is_understood:
                self._look_for_prefix(name)
            return None  # no further check: the members of a set, for example, may be any text
        type_, *sections = rest.split(b"|")
        if type_ not in TYPES:
            raise ValueError("no such type")
        if type_ == COUNTER and unit is not None:
            return _counted(unit, values, _by_sign(sections))
        if type_ == GAUGE and read_gauge is not None:
            _by_sign(sections)  # they have no meaning for a gauge, and must be readable
            return read_gauge(values)
        return None

    def _look_for_prefix(self, name: bytes) -> None:
        word = next((each for each in (*UNITS, *GAUGES) if name.endswith(each)), b"")
        prefix = name.removesuffix(word).decode(errors="replace")
        if word and not prefix[-1:].isalnum():
            self._prefixed += 1
            if self._prefixed == ADVICE_AFTER:
                self._advice = _advice(name.decode(errors="replace"), prefix.removesuffix("."), word.decode())


def _advice(name: str, prefix: str, word: str) -> str:
    name, prefix = name[:SHOWN_LIMIT], prefix[:SHOWN_LIMIT]
    return (
        f"StatsD lines come as {name!r}, and none as {word!r}: if {prefix!r} is the prefix of the app's client, "
        f"set ARBITER_STATSD_PREFIX={prefix}"
    )


def _reports(totals: dict[Report, int]) -> list[Report]:
    ok, failed = totals.pop(OK, 0), totals.pop(FAILED, 0)
    reports: list[Report] = []
    gauges: list[Results] = []
    for unit, count in totals.items():
        if isinstance(unit, Results):
            gauges.append(unit)
        else:
            reports.append(ErrorReport(count, *unit[1:]) if isinstance(unit, ErrorReport) else unit)
    if ok or failed or gauges:
        in_flight = max((gauge.in_flight for gauge in gauges if gauge.in_flight is not None), default=None)
        load = max((gauge.load for gauge in gauges if gauge.load is not None), default=None)
        reports.append(Results(ok, failed, in_flight, load))
    return reports


def _by_sign(parts: Iterable[bytes]) -> dict[bytes, bytes]:
    """The sections behind the type, by their sign; extensions begin with a letter."""
    sections: dict[bytes, bytes] = {}
    for section in parts:
        sign = section[:1]
        if sign.isalpha():
            continue
        if sign not in (b"@", b"#") or sign in sections:
            raise ValueError("takes one |@RATE and one |#TAGS")
        sections[sign] = section[1:]
    return sections


def _counted(unit: Report, values: bytes, sections: Mapping[bytes, bytes]) -> Times | None:
    count = sum(map(_number, values.split(b":")))
    if b"@" in sections:
        count = _scaled(count, sections[b"@"])
    return _times(_tagged(unit, sections.get(b"#")), count)


def _tagged(unit: Report, tags: bytes | None) -> Report:
    """The report with the fields that tags have; only errors have some."""
    return _error(tuple(FIELD.findall(tags))) if tags and unit is ERROR else unit


def _times(unit: Report, count: int) -> Times | None:
    """None if there is nothing to report."""
    if count > MOST_ERRORS:
        raise ValueError(f"takes at most {MOST_ERRORS}")
    return (unit, count) if count or (isinstance(unit, ErrorReport) and unit.app_start) else None


def _in_flight(values: bytes) -> Times:
    return Results(in_flight=max(map(_number, values.split(b":")))), 1


def _load(values: bytes) -> Times:
    return Results(load=max(map(_decimal, values.split(b":")))), 1


GAUGES: Final[Mapping[bytes, Callable[[bytes], Times]]] = {b"in_flight": _in_flight, b"load": _load}
"""The parsers of the values of gauges."""


def _decimal(text: bytes) -> float:
    if not DECIMAL.fullmatch(text):
        raise ValueError("takes a number of 0 or more")
    return float(text)


def _number(text: bytes) -> int:
    number = _decimal(text)
    if number > MOST_ERRORS or not number.is_integer():
        raise ValueError(f"takes a whole number of at most {MOST_ERRORS}")
    return int(number)


def _scaled(count: int, rate: bytes) -> int:
    share = _decimal(rate)
    if not 0 < share <= 1:
        raise ValueError("takes a rate above 0 and up to 1")
    return int(min(count / share, MOST_ERRORS + 1) + 0.5)


@lru_cache(KNOWN_TAGS)
def _error(tags: tuple[tuple[bytes, bytes], ...]) -> ErrorReport:
    """One error with these fields, by the rules of ``POST /errors``."""
    fields: dict[str, Any] = {}
    for name, value in tags:
        field, read = TAGS[name]
        if field in fields:
            raise ValueError(f"{field}: given twice")
        fields[field] = read(value.decode())
    return ErrorReport(**fields)


def _flag(value: str) -> bool:
    if value not in FLAGS:
        raise ValueError("takes true or false")
    return FLAGS[value]


TAGS: Final[Mapping[bytes, tuple[str, Callable[[str], Any]]]] = {
    **{name.encode(): READERS[name] for name in ("level", "kind", "fingerprint", "app_start")},
    b"fatal": ("fatal", _flag),
}
"""Tag -> field of ``ErrorReport``, and the parser of its value, which raises ValueError."""

FIELD: Final = re.compile(rb"(?:^|,)(" + b"|".join(TAGS) + rb"):([^,]*)")
"""A tag that is a field of ``ErrorReport``; other tags are skipped."""
