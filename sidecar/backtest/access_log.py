"""Counts the errors in access logs: Common Log Format, also Combined, or one JSON object a line.

A status of 500 or more is an error. Lines that cannot be read are counted, with the place of the first. A file in which
they are many has another format, and is refused.
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from datetime import datetime
from functools import lru_cache
from pathlib import Path
from typing import Any, Final

from sidecar.backtest.error_counts import ErrorCounts, PastError, opened, unix_s

ERROR_STATUS: Final = 500
MOST_BROKEN: Final = 0.1
"""A file of which a greater part of the lines cannot be read has another format."""

FIELDS: Final = ("instance", "time", "status")
LONGEST_LINE: Final = 1 << 20
_COMMON: Final = re.compile(
    rb'\S+ \S+ .*?\[(\d\d/[A-Z][a-z]{2}/\d{4}:\d\d:\d\d:\d\d [+-]\d{4})\] "(?:[^"\\]|\\.)*+" (\d{3}) (?:\d+|-)(?:\s|$)'
)
_ROTATED: Final = re.compile(r"(?:\.(?:\d{1,3}|gz|log|json|jsonl|txt|access)|-\d{8})+$")


def read(paths: Sequence[Path], fields: Sequence[str], counts: ErrorCounts) -> None:
    """Count the requests of these files. Raises PastError with the file and the line.

    ``fields``: the names of the three ``FIELDS`` in a line of JSON, ``a.b`` for ``b`` inside of ``a``. Without one for
    the container, as in the Common Log Format, the file is that of one container, and has its name.
    """
    for path in paths:
        _read_file(path, fields, counts)
    if not counts.containers:
        raise PastError(f"{counts.source}: no request since then")


def instance_of(path: Path) -> str:
    """The container from the name of its log: ``web-1.access.log.2.gz`` is ``web-1``."""
    return _ROTATED.sub("", path.name) or path.name


def _read_file(path: Path, fields: Sequence[str], counts: ErrorCounts) -> None:
    own, lines, broken, first = instance_of(path), 0, 0, ""
    with opened(path) as file:
        for number, line in enumerate(iter(lambda: file.readline(LONGEST_LINE), b""), start=1):
            if not line.strip():
                continue
            lines += 1
            try:
                instance, at_s, status = _request(line.removeprefix(b"\xef\xbb\xbf"), fields)  # a byte order mark
            except (ValueError, TypeError, LookupError, OverflowError, RecursionError) as error:
                broken += 1
                first = first or f"{path}: line {number}: {error}"
                continue
            counts.add(instance or own, at_s, int(status >= ERROR_STATUS))
    if not lines:
        raise PastError(f"{path}: has no lines")
    if broken > MOST_BROKEN * lines:
        raise PastError(f"{first}; {broken:,} of {lines:,} lines cannot be read")
    if broken:
        counts.notes[f"lines that cannot be read, left out; the first: {first}"] += broken


def _request(line: bytes, fields: Sequence[str]) -> tuple[str, float, int]:
    """Container, Unix time and status of a line; the container is empty if the line does not have it."""
    if line.lstrip().startswith(b"{"):
        found = json.loads(line)
        instance, at, status = (_field(found, name) for name in fields)
        return str(instance), unix_s(str(at)), int(float(status))
    if (match := _COMMON.match(line)) is None:
        raise ValueError("neither a JSON object nor the Common Log Format")
    return "", _common_time(match[1].decode()), int(match[2])


def _field(found: dict[str, Any], name: str) -> Any:
    if not name:
        return ""
    value: Any = found.get(name)
    for key in name.split(".") if value is None and "." in name else ():
        value = (found if value is None else value)[key]
    if value is None or value == "":
        raise ValueError(f"no field {name!r}: set --fields; the line has {', '.join(found)[:200]}")
    return value


@lru_cache(maxsize=4096)  # as with unix_s
def _common_time(text: str) -> float:
    return unix_s(str(datetime.strptime(text, "%d/%b/%Y:%H:%M:%S %z").timestamp()))
