"""Counts the errors in access logs: Common Log Format, also Combined, or one JSON object a line.

A status of 500 or more is an error. Lines that cannot be read are counted, with the place of the first. A file in which
they are many has another format, and is refused.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from functools import lru_cache
from math import inf
from pathlib import Path
from typing import Any, Final, NamedTuple

from sidecar.backtest.error_counts import ErrorCounts, PastError, time_problem
from sidecar.backtest.saved_file import opened

ERROR_STATUS: Final = 500
MOST_BROKEN: Final = 0.1
"""A file of which a greater part of the lines cannot be read has another format."""

FIRST_LINES: Final = 20
"""So many lines that cannot be read at the beginning of a file are another format."""

LONGEST_LINE: Final = 1 << 20
_COMMON: Final = re.compile(
    rb'\S+ \S+ .*?\[(\d\d/[A-Z][a-z]{2}/\d{4}:\d\d:\d\d:\d\d [+-]\d{4})\] "(?:[^"\\]|\\.)*+" (\d{3}) (?:\d+|-)(?:\s|$)'
)
_ROTATED: Final = re.compile(r"(?:\.(?:\d{1,3}|gz|log|json|jsonl|txt|access)|-\d{8})+$")
_MILLISECONDS: Final = (1e11, 1e14)
"""Unix times between these are in milliseconds, up to the year 5138."""

_MARK: Final = b"\xef\xbb\xbf"
"""The byte order mark, which some editors and exports put first."""

_STATUSES: Final = range(100, 600)


class LogOptions(NamedTuple):
    """How logs are read. ``instance``: the container of all lines; "": the JSON field, or the name of the file.

    The fields are those of a JSON line; ``a.b`` is ``b`` inside of ``a``. Only times from ``since_s`` to ``until_s``
    count.
    """

    instance: str = ""
    instance_field: str = "instance"
    time_field: str = "time"
    status_field: str = "status"
    since_s: float = 0.0
    until_s: float = inf


class _LogRequest(NamedTuple):
    instance: str
    at_s: float
    status: int


class _BrokenLineError(ValueError):
    """The line is no request; the text says why."""


def read(paths: Sequence[Path], options: LogOptions, counts: ErrorCounts) -> None:
    """Count the requests of these files. Raises PastError with the file and the line."""
    for path in paths:
        _read_file(path, options, counts)
    if not counts.containers:
        raise PastError(f"{counts.source}: no request within the time of --since and --until")


def instance_of(path: Path) -> str:
    """The container from the name of its log: ``web-1.access.log.2.gz`` is ``web-1``."""
    return _ROTATED.sub("", path.name) or path.name


def _read_file(path: Path, options: LogOptions, counts: ErrorCounts) -> None:
    instance = options.instance or instance_of(path)
    good = broken = 0
    first = ""
    for number, line in _lines(path):
        try:
            request = _request(line, instance, options)
        except _BrokenLineError as error:
            broken += 1
            first = first or f"{path}: line {number}: {error}"
            if not good and broken >= FIRST_LINES:
                break
            continue
        good += 1
        if options.since_s <= request.at_s <= options.until_s:
            counts.add(request.instance, request.at_s, int(request.status >= ERROR_STATUS))
    if not good and not broken:
        raise PastError(f"{path}: has no lines")
    if broken > MOST_BROKEN * (good + broken):
        raise PastError(f"{first}; {broken:,} of {good + broken:,} lines cannot be read")
    if broken:
        counts.notes[f"lines that cannot be read, left out; the first: {first}"] += broken


def _lines(path: Path) -> Iterator[tuple[int, bytes]]:
    """The lines that are not blank, with their numbers; one that is too long is cut behind the next byte."""
    with opened(path) as file:
        number = 0
        while line := file.readline(LONGEST_LINE + 1):
            number += 1
            rest = line
            while len(rest) > LONGEST_LINE and not rest.endswith(b"\n"):
                rest = file.readline(LONGEST_LINE + 1)
            if line.strip():
                yield number, line.removeprefix(_MARK)


def _request(line: bytes, instance: str, options: LogOptions) -> _LogRequest:
    if len(line) > LONGEST_LINE:
        raise _BrokenLineError(f"has more than {LONGEST_LINE} bytes")
    return _of_json(line, instance, options) if line.lstrip().startswith(b"{") else _of_common(line, instance)


def _of_common(line: bytes, instance: str) -> _LogRequest:
    match = _COMMON.match(line)
    if match is None:
        raise _BrokenLineError("neither a JSON object nor the Common Log Format")
    return _LogRequest(instance, _common_time(match[1].decode()), int(match[2]))


def _of_json(line: bytes, instance: str, options: LogOptions) -> _LogRequest:
    try:
        found = json.loads(line)
    except (ValueError, RecursionError):
        raise _BrokenLineError("not JSON") from None
    status = _status(_field(found, options.status_field, "status"), options.status_field)
    if not options.instance:
        value = _field(found, options.instance_field, "instance")
        if isinstance(value, bool) or not isinstance(value, str | int) or value == "":
            raise _BrokenLineError(f"{options.instance_field}: has to be a text")
        instance = str(value)
    return _LogRequest(instance, _json_time(_field(found, options.time_field, "time"), options.time_field), status)


def _field(found: dict[str, Any], name: str, what: str) -> Any:
    """The value of ``name``, or of ``a.b`` inside. Raises _BrokenLineError."""
    value: Any = found.get(name)
    if value is None and "." in name:
        value = found
        for key in name.split("."):
            value = value.get(key) if isinstance(value, dict) else None
    if value is None:
        known = ", ".join(list(found)[:12])
        raise _BrokenLineError(f"{name}: no such field, set --{what}-field; the line has {known[:200]}")
    return value


def _status(value: Any, name: str) -> int:
    """The status of HTTP; some loggers write 200.0 for 200. Raises _BrokenLineError."""
    text = str(value).removesuffix(".0")
    if not (text.isascii() and text.isdecimal() and len(text) == len("200")) or int(text) not in _STATUSES:
        raise _BrokenLineError(f"{name}: {str(value)[:40]!r} is no status of HTTP")
    return int(text)


@lru_cache(maxsize=4096)  # all lines of a second have the same time
def _common_time(text: str) -> float:
    try:
        return _plausible(datetime.strptime(text, "%d/%b/%Y:%H:%M:%S %z").timestamp())
    except _BrokenLineError:
        raise
    except (ValueError, OverflowError):
        raise _BrokenLineError(f"{text!r} is no time") from None


def _json_time(value: Any, name: str) -> float:
    """Unix time from seconds, from milliseconds, or from text as in ISO 8601; without a zone it is UTC."""
    if isinstance(value, str) and not value.replace(".", "", 1).isdecimal():
        return _iso_time(value, name)
    try:
        seconds = float(value) if not isinstance(value, bool) else None
    except (TypeError, ValueError, OverflowError):
        seconds = None
    if seconds is None:
        raise _BrokenLineError(f"{name}: {str(value)[:40]!r} is no time")
    least, most = _MILLISECONDS
    return _plausible(seconds / 1000 if least < seconds < most else seconds)


@lru_cache(maxsize=4096)
def _iso_time(text: str, name: str) -> float:
    try:
        found = datetime.fromisoformat(text)
        unix_s = (found if found.tzinfo else found.replace(tzinfo=UTC)).timestamp()
    except (ValueError, OverflowError):
        raise _BrokenLineError(f"{name}: {text[:40]!r} is no time") from None
    return _plausible(unix_s)


def _plausible(unix_s: float) -> float:
    """The same time. Raises _BrokenLineError if nothing can have been recorded then."""
    if problem := time_problem(unix_s):
        raise _BrokenLineError(problem)
    return unix_s
