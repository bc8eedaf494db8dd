"""Parses one series of a metrics page and one value: bytes in, name, labels and number out."""

from __future__ import annotations

import re
from typing import Final, NamedTuple

_QUOTED: Final = rb'"((?:[^"\\]++|\\.)*+)"'
_TERM: Final = re.compile(rb"\s*+(?:" + _QUOTED + rb"|([A-Za-z_:][\w:]*+))\s*+(?:=\s*+" + _QUOTED + rb"\s*+)?(?:,|\Z)")
_SERIES: Final = re.compile(rb'([A-Za-z_:][\w:]*+)?\s*+(?:\{((?:[^"{}]++|"(?:[^"\\]++|\\.)*+")*+)\})?')
_ESCAPE: Final = re.compile(r'\\([\\n"])')


class BadPageError(ValueError):
    """The page cannot be read: a selected line is invalid, or a line is too long. The message names it."""


class Series(NamedTuple):
    """A metric's name and its labels, unescaped."""

    name: str
    labels: dict[str, str]


def parse_series(text: bytes) -> Series:
    """Read ``name{label="value"}`` or ``{"name",label="value"}``; BadPageError for anything else."""
    match = _SERIES.fullmatch(text.strip())
    if not match:
        raise bad_page(text)
    names = [match[1]] if match[1] else []
    labels: dict[str, str] = {}
    rest, at = (match[2] or b"").rstrip(), 0
    while at < len(rest):
        term = _TERM.match(rest, at)
        if not term:
            raise bad_page(text)
        at = term.end()
        _take_term(term, text, names, labels)
    if len(names) != 1:
        raise bad_page(text)
    return Series(_unescape(names[0]), labels)


def _take_term(term: re.Match[bytes], text: bytes, names: list[bytes], labels: dict[str, str]) -> None:
    quoted, bare, value = term.groups()
    if value is None:
        if quoted is None:
            raise bad_page(text)
        names.append(quoted)
        return
    label = _unescape(bare if quoted is None else quoted)
    if label in labels:
        raise bad_page(text)
    labels[label] = _unescape(value)


def _decoded(text: bytes) -> str:
    try:
        return text.decode()
    except UnicodeDecodeError:
        raise bad_page(text) from None


def _unescape(text: bytes) -> str:
    decoded = _decoded(text)
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
