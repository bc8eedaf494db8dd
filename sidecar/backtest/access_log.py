"""Reads the past of a fleet from access logs: Common Log Format, also Combined, or one JSON object a line.

A status of 500 or more is an error. The kind of the error is the status, such as ``500``. Lines that cannot be read are
counted with the place of the first; a file in which they are many has another format, and is refused.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from math import floor, inf
from pathlib import Path
from typing import Any, Final, NamedTuple

from sidecar.backtest.past import Past, PastContainer, PastError, StepCounts
from sidecar.backtest.plausible_times import EARLIEST_S, latest_s, problem_with
from sidecar.backtest.saved_file import LONGEST_LINE, SavedFile

COMMON: Final = "common"
JSON: Final = "json"
FORMATS: Final = (COMMON, JSON)
ERROR_STATUS: Final = 500
MOST_BROKEN: Final = 0.1
"""A file of which a greater part of the lines cannot be read has another format."""

FIRST_LINES: Final = 20
"""So many lines that cannot be read at the beginning of a file are another format."""

DISORDER_S: Final = 60.0
"""A line is written when its request ends, so the times of neighbours differ; by more than this the clock was set."""

_COMMON: Final = re.compile(
    rb'\S+ \S+ .*?\[(\d\d/[A-Z][a-z]{2}/\d{4}:\d\d:\d\d:\d\d [+-]\d{4})\] "(?:[^"\\]|\\.)*+" (\d{3}) (?:\d+|-)(?:\s|$)'
)
_ROTATED: Final = re.compile(r"(?:\.(?:\d{1,3}|gz|log|json|jsonl|txt|access)|-\d{8})+$")
_MILLISECONDS: Final = (1e11, 1e14)
"""Unix times between these are in milliseconds, up to the year 5138."""

_STATUSES: Final = range(100, 600)
_WITHOUT_ZONE: Final = "times without a zone, read as UTC"
_BACKWARDS: Final = f"times more than {DISORDER_S:g} s before the line above; each counts at its own time"
_BROKEN: Final = "lines that cannot be read, left out"


class Fields(NamedTuple):
    """The names of the fields of a JSON line; ``a.b`` is ``b`` inside of ``a``. ``instance`` empty: by file name."""

    instance: str = "instance"
    time: str = "time"
    status: str = "status"


class _LogRequest(NamedTuple):
    instance: str
    at_s: float
    status: int
    zone: str


class _BrokenLineError(ValueError):
    """The line is no request of this format; the text says why."""


@dataclass
class AccessLogs:
    """Reads access logs into a past of steps of ``step_s`` seconds.

    ``format``: one of ``FORMATS``, or "" to find out. ``instance``: that of all lines of the Common Log Format, "" to
    take it from the name of the file. Times before ``since_s`` or after ``until_s`` are left out.
    """

    step_s: float = 1.0
    format: str = ""
    instance: str = ""
    fields: Fields = field(default_factory=Fields)
    since_s: float = 0.0
    until_s: float = inf
    on_bytes: Callable[[int], None] = lambda _bytes: None

    def read(self, paths: Sequence[Path]) -> Past:
        """The past from these files. Raises PastError with the file and the line."""
        source = str(paths[0]) if len(paths) == 1 else f"{len(paths)} access logs"
        past = Past(source, self.step_s, has_requests=True, is_sampled=False)
        past.unknowns.append("An access log does not tell restarts: they are seen only where an instance was away.")
        for path in paths:
            self._read_file(past, path)
        if not past.containers:
            raise PastError(f"{past.source}: no request within the time that was asked for")
        past.finish()
        return past

    def _read_file(self, past: Past, path: Path) -> None:
        lines = _Lines(self, past, path)
        with SavedFile(path, self.on_bytes) as file:
            for number, line in file.lines():
                if line.strip():
                    lines.take(number, line)
        lines.finish()


class _Lines:
    """The lines of one file, and what is known of them so far."""

    def __init__(self, logs: AccessLogs, past: Past, path: Path) -> None:
        self._logs, self._past, self._path = logs, past, path
        self._format = logs.format
        self._instance = logs.instance or instance_of(path)
        self._end_s = latest_s()
        self._before_s = 0.0
        self._first, self._last = (inf, 0), (-inf, 0)
        self._zones: dict[str, int] = {}
        self._read = self._broken = 0
        self._first_broken = (0, "")
        self._targets: dict[tuple[str, int], tuple[PastContainer, StepCounts | None]] = {}

    def take(self, number: int, line: bytes) -> None:
        """Count one line that is not blank."""
        try:
            request = self._request(line)
        except _BrokenLineError as error:
            self._note_broken(number, str(error))
            return
        self._read += 1
        self._zones.setdefault(request.zone, number)
        if not request.zone:
            self._past.notices.add(_WITHOUT_ZONE, self._place(number))
        if request.at_s < self._before_s - DISORDER_S:
            self._past.notices.add(_BACKWARDS, self._place(number))
        self._before_s = request.at_s
        if self._logs.since_s <= request.at_s <= self._logs.until_s:
            self._count(request)
            if request.at_s < self._first[0]:
                self._first = request.at_s, number
            if request.at_s > self._last[0]:
                self._last = request.at_s, number

    def finish(self) -> None:
        """Note what was unusual. Raises PastError if the file is empty or of another format."""
        number, cause = self._first_broken
        if not self._read and not self._broken:
            raise PastError(f"{self._path}: has no lines")
        if self._broken > MOST_BROKEN * (self._read + self._broken) or not self._read:
            raise self._unknown(f"{self._broken:,} of {self._read + self._broken:,} lines cannot be read")
        self._past.ends += [(at_s, self._place(number)) for at_s, number in (self._first, self._last) if number]
        if self._broken:
            self._past.notices.add(_BROKEN, f"{self._place(number)}: {cause}", self._broken)
        zones = [zone for zone in self._zones if zone]
        if len(zones) > 1:
            sentence = "zones that are mixed; each time counts in its own"
            self._past.notices.add(sentence, f"{self._place(self._zones[zones[1]])}: {' and '.join(zones[:4])}")

    def _count(self, request: _LogRequest) -> None:
        past, step = self._past, floor(request.at_s / self._past.step_s) + 1
        key = (request.instance, request.status if request.status >= ERROR_STATUS else 0)
        if key not in self._targets:
            container = past.container(request.instance)
            errors = past.errors(container, str(request.status)) if request.status >= ERROR_STATUS else None
            self._targets[key] = container, errors
        container, errors = self._targets[key]
        container.requests.add(step, 1)
        container.see(step, step)
        if errors is not None:
            errors.add(step, 1)

    def _request(self, line: bytes) -> _LogRequest:
        if len(line) > LONGEST_LINE:
            raise _BrokenLineError(f"has more than {LONGEST_LINE} bytes")
        if not self._format:
            self._format = JSON if line.lstrip().startswith(b"{") else COMMON
        request = self._of_json(line) if self._format == JSON else self._of_common(line)
        if not EARLIEST_S <= request.at_s <= self._end_s:
            raise _BrokenLineError(problem_with(request.at_s))
        return request

    def _of_common(self, line: bytes) -> _LogRequest:
        match = _COMMON.match(line)
        if match is None:
            raise _BrokenLineError("not the Common Log Format")
        word = match[1].decode()
        return _LogRequest(self._instance, _common_time(word), int(match[2]), word[-5:])

    def _of_json(self, line: bytes) -> _LogRequest:
        try:
            found = json.loads(line)
        except (ValueError, RecursionError):
            raise _BrokenLineError("not JSON") from None
        if not isinstance(found, dict):
            raise _BrokenLineError("not a JSON object")
        names = self._logs.fields
        status = _status(_field(found, names.status, "status"), names.status)
        instance = self._instance if not names.instance else _field(found, names.instance, "instance")
        if isinstance(instance, bool) or not isinstance(instance, str | int) or instance == "":
            raise _BrokenLineError(f"{names.instance}: has to be a text")
        at_s, zone = _json_time(_field(found, names.time, "time"), names.time)
        return _LogRequest(str(instance), at_s, status, zone)

    def _note_broken(self, number: int, cause: str) -> None:
        self._broken += 1
        self._first_broken = self._first_broken if self._first_broken[0] else (number, cause)
        if not self._read and self._broken >= FIRST_LINES:
            raise self._unknown(f"none of the first {self._broken} lines can be read")

    def _unknown(self, sentence: str) -> PastError:
        number, cause = self._first_broken
        return PastError(f"{self._place(number)}: {cause}; {sentence}: the formats are {' and '.join(FORMATS)}")

    def _place(self, number: int) -> str:
        return f"{self._path}: line {number}"


def instance_of(path: Path) -> str:
    """The instance from the name of its log: ``web-1.access.log.2.gz`` is ``web-1``."""
    return _ROTATED.sub("", path.name) or path.name


def _field(found: dict[str, Any], name: str, what: str) -> Any:
    """The value of ``name``, or of ``a.b`` inside. Raises _BrokenLineError."""
    value: Any = found.get(name)
    if value is None and "." in name:
        value = found
        for part in name.split("."):
            value = value.get(part) if isinstance(value, dict) else None
    if value is None:
        known = ", ".join(list(found)[:12])
        raise _BrokenLineError(f"{name}: no such field, set --{what}-field; the line has {known[:200]}")
    return value


def _status(value: Any, name: str) -> int:
    """The status of HTTP; some loggers write 200.0 for 200. Raises _BrokenLineError."""
    text = str(value).removesuffix(".0")
    if not (text.isascii() and text.isdecimal() and len(text) <= len("599")) or int(text) not in _STATUSES:
        raise _BrokenLineError(f"{name}: {str(value)[:40]!r} is no status of HTTP")
    return int(text)


@lru_cache(maxsize=4096)  # all lines of a second have the same time
def _common_time(word: str) -> float:
    try:
        return datetime.strptime(word, "%d/%b/%Y:%H:%M:%S %z").timestamp()
    except ValueError:
        raise _BrokenLineError(f"{word!r} is no time") from None


def _json_time(value: Any, name: str) -> tuple[float, str]:
    """Unix time, and the zone, "" without one: from seconds, from milliseconds, or from text as in ISO 8601."""
    if isinstance(value, str) and not value.replace(".", "", 1).isdecimal():
        return _iso_time(value, name)
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        raise _BrokenLineError(f"{name}: {str(value)[:40]!r} is no time")
    try:
        seconds = float(value)
    except (ValueError, OverflowError):
        raise _BrokenLineError(f"{name}: {str(value)[:40]!r} is no time") from None
    least, most = _MILLISECONDS
    return (seconds / 1000 if least < seconds < most else seconds), "Unix time"


@lru_cache(maxsize=4096)
def _iso_time(text: str, name: str) -> tuple[float, str]:
    try:
        found = datetime.fromisoformat(text)
    except ValueError:
        raise _BrokenLineError(f"{name}: {text[:40]!r} is no time") from None
    offset = found.utcoffset()
    if offset is None:
        return found.replace(tzinfo=UTC).timestamp(), ""
    return found.timestamp(), "UTC" if offset == timedelta() else f"{found:%z}"
