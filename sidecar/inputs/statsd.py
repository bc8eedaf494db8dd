"""What StatsD datagrams say: bytes in, reports out, and how much of it could not be read.

A line is ``NAME:VALUE[:VALUE...]|TYPE[|@RATE][|#TAG:VALUE,...]`` (statsd/docs/metric_types.md, DogStatsD datagram
format 1.0 to 1.4). Counters of these names, plain or behind the prefix of the app's client, are taken:

- ``errors`` that happened; tags as the fields of ``POST /errors``: level, kind, fingerprint, fatal, app_start
- ``requests`` that went well, and ``failed`` ones: together they are the ratio; an error is not yet a failed request
- ``heartbeat``

And two gauges, ``in_flight``: how many requests are under way in the whole app, and ``load``: how busy it is, in any
unit. Of several that come at once the largest counts, since a drain must not end for one that is out of date.

All other metrics of the client, events and service checks are none of our business and no mistake either. A sampled
count is ``count / rate``, exact in decimals and then rounded to the nearest whole number, halves up. Times, containers
and other extensions of DogStatsD are skipped: a report counts when it comes.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any, Final, NamedTuple

from sidecar.core.types import Heartbeat, Ping, Report, Results
from sidecar.inputs.reports import MOST_ERRORS, READERS

LINE_LIMIT: Final = 8_192
"""DogStatsD clients send packets of this size at most."""

KNOWN_LIMIT: Final = 512
KNOWN_LINE_LIMIT: Final = 512
"""Lines that are remembered once read, since most come again: so many, and none longer than this many bytes."""

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

OK: Final = Results(ok=1)
FAILED: Final = Results(failed=1)
UNITS: Final[Mapping[bytes, Report]] = {
    b"errors": Ping(),
    b"requests": OK,
    b"failed": FAILED,
    b"heartbeat": Heartbeat(),
}
"""What a count of one stands for."""

IN_FLIGHT: Final = Results(in_flight=0)
LOAD: Final = Results(load=0.0)
GAUGES: Final[Mapping[bytes, Report]] = {b"in_flight": IN_FLIGHT, b"load": LOAD}
"""What a gauge of zero stands for."""

Times = tuple[Report, int]
"""One unit, and how many of it a line says."""


class Batch(NamedTuple):
    """What some packets said in sum: each kind of report once, and how many ``lines`` there were and of no use."""

    reports: list[Report]
    lines: int
    unreadable: int


def read_packet(data: bytes, prefix: str = "") -> tuple[list[Report], int]:
    """Reports of one packet, equal ones summed, and how many of its lines were unreadable. Raises nothing."""
    batch = PacketReader(prefix).read({data: 1})
    return batch.reports, batch.unreadable


class PacketReader:
    """Reads packets of one listener. ``prefix`` stands before the names; one that ends in no sign gets a dot."""

    def __init__(self, prefix: str = "") -> None:
        joined = f"{prefix}." if prefix[-1:].isalnum() else prefix
        units = {**UNITS, **GAUGES}
        self._units = {**units, **{joined.encode() + name: unit for name, unit in units.items()}}
        self._known: dict[bytes, Times] = {}

    def read(self, packets: Mapping[bytes, int]) -> Batch:
        """Sum up packets, each with how many times it came. Raises nothing."""
        totals: dict[Report, int] = {}
        count = unreadable = 0
        for line, times in _lines(packets).items():
            count += times
            try:
                said = self._known.get(line) or self._read_line(line)
            except ValueError:
                unreadable += times
                continue
            if said is not None:
                unit, number = said
                totals[unit] = totals.get(unit, 0) + number * times
        return Batch(_reports(totals), count, unreadable)

    def _read_line(self, line: bytes) -> Times | None:
        said = self._parse(line.strip())
        if said is not None and len(line) <= KNOWN_LINE_LIMIT:
            if len(self._known) >= KNOWN_LIMIT:
                self._known.clear()  # what is still being sent is soon back
            self._known[line] = said
        return said

    def _parse(self, line: bytes) -> Times | None:
        """None for what is not ours; ValueError for what nobody could read."""
        if not line or line.startswith((EVENT, SERVICE_CHECK)):
            return None
        name, _, rest = line.partition(b":")
        values, _, rest = rest.partition(b"|")
        if not name or not values or not rest:
            raise ValueError("not NAME:VALUE|TYPE")
        unit = self._units.get(name)
        if unit is None:
            return None  # unchecked: the members of a set, for one, may be any text
        type_ = rest.partition(b"|")[0]
        if type_ not in TYPES:
            raise ValueError("no such type")
        if type_ != (GAUGE if unit in _MEASURED else COUNTER):
            return None
        if len(line) > LINE_LIMIT:
            raise ValueError(f"longer than {LINE_LIMIT} bytes")
        sections = _sections(rest)
        return _MEASURED[unit](values) if unit in _MEASURED else _counted(unit, values, sections)


def _lines(packets: Mapping[bytes, int]) -> dict[bytes, int]:
    """Distinct lines that are not empty, and how many times each came."""
    lines: dict[bytes, int] = {}
    for packet, times in packets.items():
        for line in packet.split(b"\n") if b"\n" in packet else (packet,):
            lines[line] = lines.get(line, 0) + times
    for empty in (b"", b"\r"):
        lines.pop(empty, None)
    return lines


def _reports(totals: dict[Report, int]) -> list[Report]:
    ok, failed = totals.pop(OK, 0), totals.pop(FAILED, 0)
    reports: list[Report] = []
    gauges: list[Results] = []
    for unit, count in totals.items():
        if isinstance(unit, Results):
            gauges.append(unit)
        else:
            reports.append(Ping(count, *unit[1:]) if isinstance(unit, Ping) else unit)
    if ok or failed or gauges:
        in_flight = max((gauge.in_flight for gauge in gauges if gauge.in_flight is not None), default=None)
        load = max((gauge.load for gauge in gauges if gauge.load is not None), default=None)
        reports.append(Results(ok, failed, in_flight, load))
    return reports


def _sections(rest: bytes) -> dict[bytes, bytes]:
    """What stands after the type, by its sign; extensions begin with a letter."""
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
    if count > MOST_ERRORS:
        raise ValueError(f"takes at most {MOST_ERRORS}")
    if b"#" in sections and isinstance(unit, Ping):
        unit = Ping(**_tags(sections[b"#"]))
        return (unit, count) if count or unit.app_start else None
    return (unit, count) if count else None


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
"""What reads the values of a gauge."""


def _number(value: bytes) -> int:
    if value.isdigit() and len(value) <= DIGITS:
        return int(value)
    match = WHOLE.fullmatch(value)
    if not match:
        raise ValueError("takes a whole number")
    return int(match[1])


def _scaled(count: int, rate: bytes) -> int:
    """``count / rate`` to the nearest; in whole numbers, since 7 / 0.07 is not 100 in floats."""
    match = RATE.fullmatch(rate)
    if not match:
        raise ValueError("takes a rate")
    decimals = match[2] or b""
    part, whole = int(match[1] + decimals or b"0"), int(b"1" + b"0" * len(decimals))
    if not 0 < part <= whole:
        raise ValueError("takes a rate above 0 and up to 1")
    return (2 * count * whole + part) // (2 * part)


def _tags(section: bytes) -> dict[str, Any]:
    """Fields of a ping by the rules of ``POST /errors``; other tags belong to the app."""
    fields: dict[str, Any] = {}
    for tag in section.split(b","):
        name, colon, value = tag.partition(b":")
        if colon and name in TAGS:
            field, read = TAGS[name]
            if field in fields:
                raise ValueError(f"{field}: given twice")
            fields[field] = read(value.decode())
    return fields


def _flag(value: str) -> bool:
    if value not in FLAGS:
        raise ValueError("takes true or false")
    return FLAGS[value]


TAGS: Final[Mapping[bytes, tuple[str, Callable[[str], Any]]]] = {
    **{name.encode(): READERS[name] for name in ("level", "kind", "fingerprint", "app_start")},
    b"fatal": ("fatal", _flag),
}
"""Tag: field of ``Ping``, and what reads its value or raises ValueError."""
