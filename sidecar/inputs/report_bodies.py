"""Parses the bodies of ``POST /errors`` and ``/results`` into reports. An error names the field."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable, Iterable
from typing import Any, Final

from sidecar.config.syntax import KIND
from sidecar.core.app_reports import ErrorLevel, ErrorReport, Results
from sidecar.net.http_error import HttpError

MOST_ERRORS: Final = 1_000_000
MOST_REPORTS: Final = 1_000
MESSAGE_LIMIT: Final = 4_096
PRINTABLE: Final = re.compile(r"[\x21-\x7e]{1,64}")
LEVELS: Final[dict[str, ErrorLevel]] = {level.value: level for level in ErrorLevel}
DECODER: Final = json.JSONDecoder(object_pairs_hook=tuple)
"""Objects are decoded as pairs: in a dict, the last of two fields of one name would silently win."""

BLANKS: Final = " \t\r\n"
"""What JSON takes around a value."""

Readers = dict[str, tuple[str, Callable[[object], Any]]]
"""Name in the body -> field of the report, and the parser of its value, which raises ValueError."""

ONE_ERROR: Final = (ErrorReport(),)


class BadReportError(HttpError):
    """The body, or the query, is not valid. The message names the field and what it takes."""

    def __init__(self, sentence: str) -> None:
        super().__init__(400, "body", sentence)


def read_errors(body: bytes) -> tuple[ErrorReport, ...]:
    """Read an empty body (one server error), one object, or an array of objects; one bad object refuses all."""
    if not body:
        return ONE_ERROR
    value = _decoded(body)
    if isinstance(value, tuple):
        return (ErrorReport(**_fields(value, "", READERS)),)
    if not isinstance(value, list) or not value:
        raise BadReportError("body: takes an object or a non-empty array of objects")
    if len(value) > MOST_REPORTS:
        raise BadReportError(f"body: takes at most {MOST_REPORTS} objects, not {len(value)}")
    return tuple(ErrorReport(**_fields(item, f"[{index}].", READERS)) for index, item in enumerate(value))


def read_results(body: bytes) -> Results:
    """Read one object: requests that succeeded and that failed, requests in flight, the load."""
    return Results(**read_object(body, RESULTS))


def read_object(body: bytes, readers: Readers) -> dict[str, Any]:
    """Read one object that is not empty; its values by field of the report."""
    value = _decoded(body)
    if not isinstance(value, tuple) or not value:
        raise BadReportError(f"body: takes an object with fields of {', '.join(readers)}")
    return _fields(value, "", readers)


def _decoded(body: bytes) -> object:
    try:
        text = body.decode().removeprefix("\ufeff").strip(BLANKS)
        value, end = DECODER.raw_decode(text)
    except (ValueError, RecursionError) as error:
        raise BadReportError(f"body: not JSON ({_cause(error)})") from None
    if end < len(text):
        raise BadReportError(f"body: not JSON (Extra data at character {end})")
    return value


def _cause(error: Exception) -> str:
    if isinstance(error, json.JSONDecodeError):
        return f"{error.msg} at character {error.pos}"
    if isinstance(error, UnicodeDecodeError):
        return "the text is not UTF-8"
    return "nested too deeply" if isinstance(error, RecursionError) else "a number is too long"


def read_pairs(pairs: Iterable[tuple[str, str]], readers: Readers) -> dict[str, Any]:
    """Read the pairs of a query string, as an object is read; there may be none."""
    return _fields(tuple(pairs), "", readers)


def _fields(item: object, path: str, readers: Readers) -> dict[str, Any]:
    if not isinstance(item, tuple):
        raise BadReportError(f"body{path.rstrip('.')}: takes an object")
    fields: dict[str, Any] = {}
    for name, value in item:
        if name not in readers:
            raise BadReportError(f"{path}{name[:64]}: no such field{_hint(name[:64], readers)}")
        field, read = readers[name]
        if field in fields:
            raise BadReportError(f"{path}{name}: given twice")
        try:
            fields[field] = read(value)
        except ValueError as error:
            raise BadReportError(f"{path}{name}: {error}") from None
    return fields


def _hint(name: str, readers: Readers) -> str:
    from difflib import get_close_matches  # noqa: PLC0415 - a tenth of a MiB that only a misspelt field needs

    near = get_close_matches(name, readers, n=1)
    return f", did you mean {near[0]}?" if near else f"; it takes {', '.join(readers)}"


def _count(value: object) -> int:
    if type(value) is not int or not 0 <= value <= MOST_ERRORS:
        raise ValueError(f"takes a whole number from 0 to {MOST_ERRORS}")
    return value


def _load(value: object) -> float:
    try:
        load = float(value) if type(value) in (int, float) else math.nan  # type: ignore[arg-type]  # just checked
    except OverflowError:
        load = math.inf
    if not 0 <= load < math.inf:
        raise ValueError("takes a number of 0 or more")
    return load


def _level(value: object) -> ErrorLevel:
    if not isinstance(value, str) or value not in LEVELS:
        raise ValueError(f"takes one of {', '.join(LEVELS)}")
    return LEVELS[value]


def _kind(value: object) -> str:
    if not isinstance(value, str) or not KIND.fullmatch(value):
        raise ValueError("takes 1 to 64 of A-Z a-z 0-9 _ . : / -")
    return value


def _message(value: object) -> str | None:
    if value is not None and (not isinstance(value, str) or len(value) > MESSAGE_LIMIT):
        raise ValueError(f"takes a text of at most {MESSAGE_LIMIT} characters")
    return value


def _token(value: object) -> str | None:
    if value is not None and (not isinstance(value, str) or not PRINTABLE.fullmatch(value)):
        raise ValueError("takes 1 to 64 printable ASCII characters without blanks")
    return value


def _fatal(value: object) -> bool:
    if not isinstance(value, bool):
        raise ValueError("takes true or false")  # noqa: TRY004 - the one error type the caller names fields for
    return value


READERS: Final[Readers] = {
    "count": ("errors", _count),
    "level": ("level", _level),
    "kind": ("kind", _kind),
    "message": ("message", _message),
    "fingerprint": ("fingerprint", _token),
    "fatal": ("fatal", _fatal),
    "app_start": ("app_start", _token),
    "version": ("version", _token),
}

RESULTS: Final[Readers] = {
    **{name: (name, _count) for name in ("ok", "failed", "in_flight")},
    "load": ("load", _load),
}
