"""Parses one series of a metrics page and one value: bytes in, name, labels and number out."""

from __future__ import annotations

import re
from typing import Final, NamedTuple

_LABEL: Final = re.compile(rb'\s*+([A-Za-z_]\w*+)\s*+=\s*+"((?:[^"\\]++|\\.)*+)"\s*+(?:,|\Z)')
_SERIES: Final = re.compile(rb'([A-Za-z_:][\w:]*+)\s*+(?:\{((?:[^"{}]++|"(?:[^"\\]++|\\.)*+")*+)\})?')
_ESCAPE: Final = re.compile(r'\\([\\n"])')


class BadPageError(ValueError):
    """The page cannot be read: a selected line is invalid, or a line is too long. The message names it."""


class Series(NamedTuple):
    """A metric's name and its labels, unescaped."""

    name: str
    labels: dict[str, str]


def parse_series(text: bytes) -> Series:
    """Read ``name{label="value"}``; BadPageError for anything else."""
    match = _SERIES.fullmatch(text.strip())
    if not match:
        raise bad_page(text)
    labels: dict[str, str] = {}
    rest, at = (match[2] or b"").rstrip(), 0
    while at < len(rest):
        pair = _LABEL.match(rest, at)
        label = pair[1].decode() if pair else ""
        if not pair or label in labels:
            raise bad_page(text)
        labels[label] = _unescape(pair[2])
        at = pair.end()
    return Series(match[1].decode(), labels)


def _unescape(text: bytes) -> str:
    try:
        decoded = text.decode()
    except UnicodeDecodeError:
        raise bad_page(text) from None
    if "\\" not in decoded:
        return decoded
    return _ESCAPE.sub(lambda escape: "\n" if escape[1] == "n" else escape[1], decoded)


def number(text: bytes) -> float:
    """Read a value: decimal, ``+Inf``, ``NaN`` in any case; BadPageError for anything else."""
    try:
        if b"_" not in text:
            return float(text)
    except ValueError:
        pass
    raise bad_page(text)


def bad_page(text: bytes) -> BadPageError:
    """An error that shows the beginning of ``text``."""
    return BadPageError(f"cannot read {text[:100]!r}")


def split_line(line: bytes) -> tuple[bytes, list[bytes]]:
    """Split a line into its series and the fields behind it, without an exemplar; quoted text is skipped."""
    match = _SERIES.match(line)
    end = match.end() if match else 0
    return line[:end], line[end:].partition(b" # ")[0].split()


def value_of(fields: list[bytes], line: bytes) -> float:
    """The value in the fields, which may include a timestamp."""
    if not fields or len(fields) > 2:  # noqa: PLR2004 - value and timestamp
        raise bad_page(line)
    if len(fields) > 1:
        number(fields[1])
    return number(fields[0])
