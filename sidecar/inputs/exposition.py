"""Finds selected series on a metrics page, which comes in pieces of bytes, and parses only their lines.

Text 0.0.4 and OpenMetrics 1.0. It knows nothing of selectors: it looks for the names of metrics, and ``resolve``
returns the use of a series. Other lines are not validated. Nearly every line is read by one regular expression; the
rest, such as a line with a timestamp, by ``_read``.
"""

from __future__ import annotations

import re
from array import array
from collections.abc import Callable, Iterable
from typing import Final, Generic, NamedTuple, TypeVar

T = TypeVar("T")

LONGEST_LINE: Final = 65_536
_EOF: Final = b"\n# EOF"
_LINE: Final = rb"\n(%b(?=[{ \t\r\v\f])(?:\{.*\})?)(?: ([^ \t\r\n_]+)$|(.*))"
"""Finds series and value behind the end of a line, or series and the rest."""
_LABEL: Final = re.compile(rb'\s*+([A-Za-z_]\w*+)\s*+=\s*+"((?:[^"\\]++|\\.)*+)"\s*+(?:,|\Z)')
_SERIES: Final = re.compile(rb'([A-Za-z_:][\w:]*+)\s*+(?:\{((?:[^"{}]++|"(?:[^"\\]++|\\.)*+")*+)\})?')
_ESCAPE: Final = re.compile(r'\\([\\n"])')


class BadPageError(ValueError):
    """The page cannot be read: a selected line is invalid, or a line is too long. The message names it."""


class Series(NamedTuple):
    """A metric's name and its labels, unescaped."""

    name: str
    labels: dict[str, str]


class Page(NamedTuple, Generic[T]):
    """The series found on a page, and their values.

    ``cut_off``: the end of the page is missing.
    """

    uses: list[T]
    values: array[float]
    cut_off: bool


class Scanner(Generic[T]):
    """Reads the series of these metrics on one page, in pieces.

    Memory: the readings, and an incomplete line of at most ``longest_line`` bytes. ``resolve`` takes a series as the
    page spells it and returns its use, or None if it has none; it raises BadPageError if that is no series
    (``parse_series`` does).
    """

    def __init__(
        self,
        names: Iterable[str],
        resolve: Callable[[bytes], T | None],
        *,
        openmetrics: bool,
        longest_line: int = LONGEST_LINE,
    ) -> None:
        self._lines = {b"\n" + name.encode(): re.compile(_LINE % name.encode(), re.MULTILINE) for name in names}
        self._resolve = resolve
        self._openmetrics = openmetrics
        self._longest_line = longest_line
        self._rest = b"\n"  # begins with the end of the line before
        self._tail = b"\n"
        self._uses: list[T] = []
        self._values = array("d")

    def feed(self, piece: bytes) -> None:
        """Take the next bytes; BadPageError if the page cannot be read."""
        self._tail = (self._tail + piece[-10:])[-10:]
        data = self._rest + piece
        end = data.rfind(b"\n")
        self._rest = data[end:]
        if len(self._rest) - 1 > self._longest_line:
            raise BadPageError(f"a line of more than {self._longest_line} bytes")
        if end:
            self._scan(data[: end + 1])

    def finish(self, *, whole: bool = False) -> Page[T]:
        """The page. ``whole``: its length is known to be right, so a last line without a newline is a line.

        Otherwise that line is not used, because digits of its value may be missing. OpenMetrics ends with ``# EOF``.
        """
        has_rest = len(self._rest) > 1
        if has_rest and whole:
            self._scan(self._rest)
        if self._openmetrics:
            return Page(self._uses, self._values, cut_off=not self._tail.rstrip().endswith(_EOF))
        return Page(self._uses, self._values, cut_off=has_rest and not whole)

    def _scan(self, lines: bytes) -> None:
        """Read whole lines, each behind a newline."""
        for begin, line in self._lines.items():
            if begin not in lines:
                continue
            for series, value, rest in line.findall(lines):
                try:
                    number = float(value)
                    use = self._resolve(series)
                except ValueError:  # an exemplar, a timestamp, a digit separator of Python, or no line at all
                    self._read((series + (rest or b" " + value)).strip())
                else:
                    self._keep(use, number)

    def _read(self, line: bytes) -> None:
        series, fields = _split_line(line)
        use = self._resolve(series)
        if use is not None:
            self._keep(use, _value_of(fields, line))

    def _keep(self, use: T | None, value: float) -> None:
        if use is not None:
            self._values.append(value)
            self._uses.append(use)


def parse_series(text: bytes) -> Series:
    """Read ``name{label="value"}``; BadPageError for anything else."""
    match = _SERIES.fullmatch(text.strip())
    if not match:
        raise _bad_page(text)
    labels: dict[str, str] = {}
    rest, at = (match[2] or b"").rstrip(), 0
    while at < len(rest):
        pair = _LABEL.match(rest, at)
        label = pair[1].decode() if pair else ""
        if not pair or label in labels:
            raise _bad_page(text)
        labels[label] = _unescape(pair[2])
        at = pair.end()
    return Series(match[1].decode(), labels)


def _unescape(text: bytes) -> str:
    try:
        decoded = text.decode()
    except UnicodeDecodeError:
        raise _bad_page(text) from None
    if "\\" not in decoded:
        return decoded
    return _ESCAPE.sub(lambda escape: "\n" if escape[1] == "n" else escape[1], decoded)


def _number(text: bytes) -> float:
    """Read a value: decimal, ``+Inf``, ``NaN`` in any case; BadPageError for anything else."""
    try:
        if b"_" not in text:
            return float(text)
    except ValueError:
        pass
    raise _bad_page(text)


def _bad_page(text: bytes) -> BadPageError:
    """An error that shows the beginning of ``text``."""
    return BadPageError(f"cannot read {text[:100]!r}")


def _split_line(line: bytes) -> tuple[bytes, list[bytes]]:
    """Split a line into its series and the fields behind it, without an exemplar; quoted text is skipped."""
    match = _SERIES.match(line)
    end = match.end() if match else 0
    return line[:end], line[end:].partition(b" # ")[0].split()


def _value_of(fields: list[bytes], line: bytes) -> float:
    """The value in the fields, which may include a timestamp."""
    if not fields or len(fields) > 2:  # noqa: PLR2004 - value and timestamp
        raise _bad_page(line)
    if len(fields) > 1:
        _number(fields[1])
    return _number(fields[0])
