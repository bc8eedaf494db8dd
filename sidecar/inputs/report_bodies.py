"""Parses the bodies of ``POST /errors`` and ``/results`` into reports. An error names the field."""

from __future__ import annotations

import math
import re
from typing import Final

from sidecar.config.syntax import KIND
from sidecar.core.app_reports import ErrorLevel, ErrorReport, Results
from sidecar.net.json_fields import BadFieldError, Readers, decoded, read_fields, read_object

MOST_ERRORS: Final = 1_000_000
MOST_REPORTS: Final = 1_000
MESSAGE_LIMIT: Final = 4_096
PRINTABLE: Final = re.compile(r"[\x21-\x7e]{1,64}")
LEVELS: Final[dict[str, ErrorLevel]] = {level.value: level for level in ErrorLevel}
ONE_ERROR: Final = (ErrorReport(),)


def read_errors(body: bytes) -> tuple[ErrorReport, ...]:
    """Read an empty body (one server error), one object, or an array of objects; one bad object refuses all."""
    if not body:
        return ONE_ERROR
    value = decoded(body)
    if isinstance(value, tuple):
        return (ErrorReport(**read_fields(value, "", READERS)),)
    if not isinstance(value, list) or not value:
        raise BadFieldError("body: takes an object or a non-empty array of objects")
    if len(value) > MOST_REPORTS:
        raise BadFieldError(f"body: takes at most {MOST_REPORTS} objects, not {len(value)}")
    return tuple(ErrorReport(**read_fields(item, f"[{index}].", READERS)) for index, item in enumerate(value))


def read_results(body: bytes) -> Results:
    """Read one object: requests that succeeded and that failed, requests in flight, the load."""
    return Results(**read_object(body, RESULTS))


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
