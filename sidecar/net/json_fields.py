"""Reads what a client says: the fields of a JSON object in the body, or of the query. An error names the field."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from typing import Any, Final

from sidecar.net.http_error import HttpError

DECODER: Final = json.JSONDecoder(object_pairs_hook=tuple)
"""Objects are decoded as pairs: in a dict, the last of two fields of one name would silently win."""

BLANKS: Final = " \t\r\n"
"""What JSON takes around a value."""

Readers = dict[str, tuple[str, Callable[[object], Any]]]
"""Name of a field -> field of the record, and the parser of its value, which raises ValueError."""


class BadFieldError(HttpError):
    """The body, or the query, is not valid. The message names the field and what it takes."""

    def __init__(self, sentence: str) -> None:
        super().__init__(400, "body", sentence)


def read_object(body: bytes, readers: Readers) -> dict[str, Any]:
    """Read one object that is not empty; its values by field of the record."""
    value = decoded(body)
    if not isinstance(value, tuple) or not value:
        raise BadFieldError(f"body: takes an object with fields of {', '.join(readers)}")
    return read_fields(value, "", readers)


def decoded(body: bytes) -> object:
    """Decode a body; an object becomes a tuple of pairs."""
    try:
        text = body.decode().removeprefix("\ufeff").strip(BLANKS)
        value, end = DECODER.raw_decode(text)
    except (ValueError, RecursionError) as error:
        raise BadFieldError(f"body: not JSON ({_cause(error)})") from None
    if end < len(text):
        raise BadFieldError(f"body: not JSON (Extra data at character {end})")
    return value


def _cause(error: Exception) -> str:
    if isinstance(error, json.JSONDecodeError):
        return f"{error.msg} at character {error.pos}"
    if isinstance(error, UnicodeDecodeError):
        return "the text is not UTF-8"
    return "nested too deeply" if isinstance(error, RecursionError) else "a number is too long"


def read_pairs(pairs: Iterable[tuple[str, str]], readers: Readers) -> dict[str, Any]:
    """Read the pairs of a query string, as an object is read; there may be none."""
    return read_fields(tuple(pairs), "", readers)


def read_fields(item: object, path: str, readers: Readers) -> dict[str, Any]:
    """Read one object; ``path`` leads to it in the body. Its values by field of the record."""
    if not isinstance(item, tuple):
        raise BadFieldError(f"body{path.rstrip('.')}: takes an object")
    fields: dict[str, Any] = {}
    for name, value in item:
        if name not in readers:
            raise BadFieldError(f"{path}{name[:64]}: no such field{_hint(name[:64], readers)}")
        field, read = readers[name]
        if field in fields:
            raise BadFieldError(f"{path}{name}: given twice")
        try:
            fields[field] = read(value)
        except ValueError as error:
            raise BadFieldError(f"{path}{name}: {error}") from None
    return fields


def _hint(name: str, readers: Readers) -> str:
    from difflib import get_close_matches  # noqa: PLC0415 - a tenth of a MiB that only a misspelt field needs

    near = get_close_matches(name, readers, n=1)
    return f", did you mean {near[0]}?" if near else f"; it takes {', '.join(readers)}"
