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

from sidecar.backtest.error_counts import ErrorCounts, PastError, is_plausible, opened

ERROR_STATUS: Final = 500
MOST_BROKEN: Final = 0.1
"""A file of which a greater part of the lines cannot be read has another format."""

LONGEST_LINE: Final = 1 << 20
_COMMON: Final = re.compile(
    rb'\S+ \S+ .*?\[(\d\d/[A-Z][a-z]{2}/\d{4}:\d\d:\d\d:\d\d [+-]\d{4})\] "(?:[^"\\]|\\.)*+" (\d{3}) (?:\d+|-)(?:\s|$)'
)
_ROTATED: Final = re.compile(r"(?:\.(?:\d{1,3}|gz|log|json|jsonl|txt|access)|-\d{8})+$")
_MILLISECONDS: Final = 1e11
"""A number from here on is a time in milliseconds: in seconds it would be the year 5138."""


class LogOptions(NamedTuple):
    """How logs are read. The fields are those of a JSON line; ``a.b`` is ``b`` inside of ``a``."""

    instance: str = ""
    """The container of all lines; empty: the JSON field, or the name of the file."""
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
            good += 1
        except _BrokenLineError as error:
            broken += 1
            first = first or f"{path}: line {number}: {error}"
            continue
        if options.since_s <= request.at_s <= options.until_s:
            counts.add(request.instance, request.at_s, int(request.status >= ERROR_STATUS))
    if not good and not broken:
        raise PastError(f"{path}: has no lines")
    if broken > MOST_BROKEN * (good + broken):
        raise PastError(f"{first}; {broken:,} of {good + broken:,} lines cannot be read")
    if broken:
        counts.notes[f"lines that cannot be read, left out; the first: {first}"] += broken


def _lines(path: Path) -> Iterator[tuple[int, bytes]]:
    """The lines that are not blank, with their numbers; a line that is too long comes in several pieces."""
    with opened(path) as file:
        for number, line in enumerate(iter(lambda: file.readline(LONGEST_LINE), b""), start=1):
            if line.strip():
                yield number, line.removeprefix(b"\xef\xbb\xbf")  # the byte order mark of some exports


def _request(line: bytes, instance: str, options: LogOptions) -> _LogRequest:
    if line.lstrip().startswith(b"{"):
        return _of_json(line, instance, options)
    if (match := _COMMON.match(line)) is None:
        raise _BrokenLineError("neither a JSON object nor the Common Log Format")
    return _LogRequest(instance, _common_time(match[1].decode()), int(match[2]))


def _of_json(line: bytes, instance: str, options: LogOptions) -> _LogRequest:
    try:
        found = json.loads(line)
    except (ValueError, RecursionError):
        raise _BrokenLineError("not JSON") from None
    if not options.instance:
        instance = str(_field(found, options.instance_field, "instance"))
    status, at = _field(found, options.status_field, "status"), _field(found, options.time_field, "time")
    try:
        return _LogRequest(instance, _json_time(str(at)), int(float(status)))
    except (TypeError, ValueError, OverflowError):
        text = f"{str(at)[:40]!r} and {str(status)[:40]!r} are no time and status of HTTP"
        raise _BrokenLineError(text) from None


def _field(found: dict[str, Any], name: str, what: str) -> Any:
    """The value of ``name``, or of ``a.b`` inside. Raises _BrokenLineError."""
    value: Any = found.get(name)
    if value is None and "." in name:
        value = found
        for key in name.split("."):
            value = value.get(key) if isinstance(value, dict) else None
    if value is None or value == "":
        raise _BrokenLineError(f"{name}: no such field, set --{what}-field; the line has {', '.join(found)[:200]}")
    return value


@lru_cache(maxsize=4096)  # all lines of a second have the same time
def _common_time(text: str) -> float:
    try:
        return _checked(datetime.strptime(text, "%d/%b/%Y:%H:%M:%S %z").timestamp())
    except (ValueError, OverflowError):
        raise _BrokenLineError(f"{text!r} is no time") from None


@lru_cache(maxsize=4096)
def _json_time(text: str) -> float:
    """Unix time from seconds, from milliseconds, or from text as in ISO 8601; without a zone it is UTC."""
    try:
        seconds = float(text)
    except ValueError:
        moment = datetime.fromisoformat(text)
        return _checked((moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp())
    return _checked(seconds / 1000 if seconds > _MILLISECONDS else seconds)


def _checked(unix_s: float) -> float:
    if not is_plausible(unix_s):
        raise ValueError("before the year 2000, or after tomorrow")
    return unix_s
