"""Parses StatsD packets: bytes in, reports out, and the number of unreadable lines.

A line is ``NAME:VALUE[:VALUE...]|TYPE[|@RATE][|#TAG:VALUE,...]`` (statsd/docs/metric_types.md, DogStatsD datagram
format 1.0 to 1.4). These counters are read, with or without the prefix of the app's client:

- ``errors``, with the fields of ``POST /errors`` as tags: level, kind, fingerprint, fatal, app_start
- ``requests`` that succeeded and ``failed`` ones, for the success rate; an error alone is no failed request
- ``heartbeat``

So are two gauges: ``in_flight``, the number of requests in progress in the whole app, and ``load``, how busy it is, in
any unit. Of several in one batch the largest counts, because an old value must not end a drain.

All other metrics, events and service checks are skipped without an error. A sampled count is ``count / rate``, computed
in decimals and rounded to the nearest whole number, halves up. Timestamps, containers and other extensions of DogStatsD
are skipped: a report counts when it comes.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from itertools import groupby
from typing import Any, Final, NamedTuple, TypeVar

from sidecar.core.types import ErrorReport, Heartbeat, Report, Results
from sidecar.inputs.report_bodies import MOST_ERRORS, READERS

LINE_LIMIT: Final = 8_192
"""DogStatsD clients send no larger packets."""

USUAL: Final = re.compile(
    rb"^(?:([^\s:|]{1,256}):([0-9]{1,7})\|c(?:\|#([^\s|]{0,4096}))?(?:\|[A-Za-z][^\s|]{0,512}){0,4}|(?!\r?$)(.+))$",
    re.MULTILINE,
)
"""A line that is not empty: name, count and tags of a counter as clients write it, or any other line as a whole.

One search for all lines takes a third of the time of a parser in Python. A line of the first kind is not too long.
"""

KNOWN_LIMIT: Final = 512
KNOWN_LINE_LIMIT: Final = 512
"""Maximum number of remembered sets of tags and unusual lines, and of the bytes of a line: most come again."""

COUNTER: Final = b"c"
GAUGE: Final = b"g"
TYPES: Final = frozenset((COUNTER, GAUGE, b"ms", b"h", b"d", b"s", b"m"))
EVENT: Final = b"_e{"
SERVICE_CHECK: Final = b"_sc|"
DECIMAL: Final = re.compile(rb"[0-9]{1,15}(?:\.[0-9]{1,20})?(?:[eE][+-]?[0-9]{1,2})?")
WHOLE: Final = re.compile(rb"([0-9]{1,7})\.0{1,20}")
DIGITS: Final = len(str(MOST_ERRORS))
RATE: Final = re.compile(rb"([01]?)(?:\.([0-9]{1,40}))?")
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

STRANGERS: Final = 64
"""Maximum number of unknown names that are looked at."""

ADVICE_AFTER: Final = 3
"""Number of lines with a name that resembles a known one after which ``PacketReader.advice`` says so."""

LONGEST_NAME: Final = 256
"""Longer names are not compared with the known ones: 64 KiB would take 20 ms."""

SHOWN_LIMIT: Final = 100

IN_FLIGHT: Final = Results(in_flight=0)
LOAD: Final = Results(load=0.0)
GAUGES: Final[Mapping[bytes, Report]] = {b"in_flight": IN_FLIGHT, b"load": LOAD}
"""The report of a gauge of zero."""

K = TypeVar("K")
V = TypeVar("V")
Times = tuple[Report, int]
"""The report of one unit, and the number of units."""


class ParsedPackets(NamedTuple):
    """The sum of some packets: each kind of report once, the number of ``lines``, and of ``unreadable`` ones."""

    reports: list[Report]
    lines: int
    unreadable: int


class PacketReader:
    """Parses packets. ``prefix`` of the names gets a dot unless it ends in a sign.

    ``advice``: a sentence for the operator if lines came with names that resemble the known ones, and none with those.
    """

    def __init__(self, prefix: str = "") -> None:
        joined = f"{prefix}." if prefix[-1:].isalnum() else prefix
        units = {**UNITS, **GAUGES}
        self._units = {**units, **{joined.encode() + name: unit for name, unit in units.items()}}
        self._counters = {name: unit for name, unit in self._units.items() if unit not in _MEASURED}
        self._tagged: dict[tuple[tuple[bytes, bytes], ...], ErrorReport] = {}
        self._known: dict[bytes, Times] = {}
        self._strangers: dict[bytes, bytes] = {}
        self._lookalikes = self._times = 0
        self._is_understood = False
        self.advice = ""

    def read(self, packets: Mapping[bytes, int]) -> ParsedPackets:
        """Sum up packets, each with the number of times it came. Raises nothing."""
        totals: dict[Report, int] = {}
        lines = unreadable = 0
        for times, equally_often in groupby(packets, packets.__getitem__):
            self._times = times
            for name, value, tags, other in USUAL.findall(b"\n".join(equally_often)):
                lines += times
                try:
                    said = self._read_other(other) if other else self._read_counter(name, value, tags)
                except ValueError:
                    unreadable += times
                    continue
                if said is not None:
                    unit, number = said
                    totals[unit] = totals.get(unit, 0) + number * times
        if totals:
            self._is_understood, self.advice = True, ""
            self._strangers.clear()
        return ParsedPackets(_reports(totals), lines, unreadable)

    def _meet(self, name: bytes) -> None:
        """Look at a name that is not known, until one is."""
        if len(name) > LONGEST_NAME:
            return
        known = self._strangers.get(name)
        if known is None and len(self._strangers) < STRANGERS:
            known = self._strangers[name] = _resembled(name)
        if known and self._lookalikes < ADVICE_AFTER:
            self._lookalikes += self._times
            if self._lookalikes >= ADVICE_AFTER:
                self.advice = _advice(name, known)

    def _read_counter(self, name: bytes, value: bytes, tags: bytes) -> Times | None:
        unit = self._counters.get(name)
        if unit is None:
            if not self._is_understood:
                self._meet(name)
            return None
        if tags and unit is ERROR:
            fields = tuple(FIELD.findall(tags))
            unit = self._tagged.get(fields) or self._learn(fields)
        number = int(value)
        return (unit, number) if 0 < number <= MOST_ERRORS else _times(unit, number)

    def _learn(self, fields: tuple[tuple[bytes, bytes], ...]) -> ErrorReport:
        unit = _error(fields)
        _remember(self._tagged, fields, unit)
        return unit

    def _read_other(self, line: bytes) -> Times | None:
        said = self._known.get(line)
        if said is None:
            said = self._parse(line.strip())
            if said is not None and len(line) <= KNOWN_LINE_LIMIT:
                _remember(self._known, line, said)
        return said

    def _parse(self, line: bytes) -> Times | None:
        """None for other metrics; ValueError for an unreadable line."""
        if not line or line.startswith((EVENT, SERVICE_CHECK)):
            return None
        name, _, rest = line.partition(b":")
        values, _, rest = rest.partition(b"|")
        if not name or not values or not rest:
            raise ValueError("not NAME:VALUE|TYPE")
        unit = self._units.get(name)
        if unit is None:
            if not self._is_understood:
                self._meet(name)
            return None  # no further check: the members of a set, for example, may be any text
        type_ = rest.partition(b"|")[0]
        if type_ not in TYPES:
            raise ValueError("no such type")
        if type_ != (GAUGE if unit in _MEASURED else COUNTER):
            return None
        if len(line) > LINE_LIMIT:
            raise ValueError(f"longer than {LINE_LIMIT} bytes")
        sections = _sections(rest)
        return _MEASURED[unit](values) if unit in _MEASURED else _counted(unit, values, sections)


def _resembled(name: bytes) -> bytes:
    """Return the known name that ends this one, or that resembles its last part; empty if there is none."""
    from difflib import get_close_matches  # noqa: PLC0415 - a tenth of a MiB that a client with the right names spares

    last = name.decode(errors="replace").rpartition(".")[2].rpartition("/")[2]
    known = [each.decode() for each in (*UNITS, *GAUGES)]
    ends = [each for each in known if last == each or last.endswith(tuple(f"{sign}{each}" for sign in "_:-"))]
    return "".join(ends or get_close_matches(last, known, n=1, cutoff=0.8)).encode()


def _advice(name: bytes, known: bytes) -> str:
    shown, wanted = name.decode(errors="replace")[:SHOWN_LIMIT], known.decode()
    if shown.endswith(wanted):
        prefix = shown.removesuffix(wanted).removesuffix(".")
        return (
            f"StatsD lines come as {shown!r}, and none as {wanted!r}: if {prefix!r} is the prefix of the app's client, "
            f"set ARBITER_STATSD_PREFIX={prefix}"
        )
    return f"StatsD lines come as {shown!r}, which is not counted, and none as {wanted!r}"


def _remember(known: dict[K, V], key: K, value: V) -> None:
    if len(known) >= KNOWN_LIMIT:
        known.clear()  # what the app still sends comes back soon
    known[key] = value


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


def _sections(rest: bytes) -> dict[bytes, bytes]:
    """The sections behind the type, by their sign; extensions begin with a letter."""
    sections: dict[bytes, bytes] = {}
    for section in rest.split(b"|")[1:] if b"|" in rest else ():
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
    if b"#" in sections and unit == ERROR:
        unit = _error(FIELD.findall(sections[b"#"]))
    return _times(unit, count)


def _times(unit: Report, count: int) -> Times | None:
    """None if there is nothing to report."""
    if count > MOST_ERRORS:
        raise ValueError(f"takes at most {MOST_ERRORS}")
    return (unit, count) if count or (isinstance(unit, ErrorReport) and unit.app_start) else None


def _in_flight(values: bytes) -> Times:
    in_flight = max(map(_number, values.split(b":")))
    if in_flight > MOST_ERRORS:
        raise ValueError(f"takes at most {MOST_ERRORS}")
    return Results(in_flight=in_flight), 1


def _load(values: bytes) -> Times:
    loads = [float(value) for value in values.split(b":") if DECIMAL.fullmatch(value)]
    if len(loads) <= values.count(b":"):
        raise ValueError("takes a number of 0 or more")
    return Results(load=max(loads)), 1


_MEASURED: Final[Mapping[Report, Callable[[bytes], Times]]] = {IN_FLIGHT: _in_flight, LOAD: _load}
"""The parsers of gauges."""


def _number(value: bytes) -> int:
    if value.isdigit() and len(value) <= DIGITS:
        return int(value)
    match = WHOLE.fullmatch(value)
    if not match:
        raise ValueError("takes a whole number")
    return int(match[1])


def _scaled(count: int, rate: bytes) -> int:
    """``count / rate`` rounded, in whole numbers, because 7 / 0.07 is not 100 in floats."""
    match = RATE.fullmatch(rate)
    if not match:
        raise ValueError("takes a rate")
    decimals = match[2] or b""
    part, whole = int(match[1] + decimals or b"0"), int(b"1" + b"0" * len(decimals))
    if not 0 < part <= whole:
        raise ValueError("takes a rate above 0 and up to 1")
    return (2 * count * whole + part) // (2 * part)


def _error(tags: Iterable[tuple[bytes, bytes]]) -> ErrorReport:
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
