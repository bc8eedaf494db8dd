"""Finds selected series on a metrics page, which comes in pieces of bytes, and parses only their lines.

Text 0.0.4 and OpenMetrics 1.0, with the quoted names of Prometheus 3. It knows nothing of selectors: a ``Family`` has
the bytes to look for, and ``resolve`` returns the use of a series. Other lines are not validated.
"""

from __future__ import annotations

import re
from array import array
from collections.abc import Callable, Iterable
from typing import Final, Generic, NamedTuple, TypeVar

from sidecar.inputs.series import BadPageError, split_quickly, split_strictly, value_of

T = TypeVar("T")

LONGEST_LINE: Final = 65_536
_NEWLINE: Final = 10
_EOF: Final = b"# EOF"
_OTHER: Final = re.compile(rb"[\w:]|\s*+(?:#|\Z)")
"""A comment, or a line that begins with a plain name."""

_NOT_PLAIN: Final = re.compile(r'["\\\n]')
_LEGACY: Final = re.compile(r"[A-Za-z_:][A-Za-z0-9_:]*")


class Family(NamedTuple):
    """What to look for: ``needle`` is in every selected line, ``pattern`` matches such a line from the needle on.

    ``usual`` is for lines with the needle at their beginning only: it finds series and value, or series and the rest.
    """

    needle: bytes
    pattern: re.Pattern[bytes]
    usual: re.Pattern[bytes] | None


class Page(NamedTuple, Generic[T]):
    """The series found on a page, and their values; a line found by two families is read twice.

    ``cut_off``: the end of the page is missing.
    """

    found: list[T]
    values: array[float]
    cut_off: bool

    @property
    def readings(self) -> list[tuple[T, float]]:
        """Pairs of series and value, in ten times the memory."""
        return list(zip(self.found, self.values, strict=True))


def family(name: str, suffixes: Iterable[str] = (), prefilter: bytes = b"") -> Family:
    """Finds the lines of ``name`` (in UTF-8) and of ``name`` with each of the suffixes.

    ``prefilter`` is an expression that matches, behind the name, every selected line.
    """
    if not _LEGACY.fullmatch(name):
        # Quoted, perhaps with escapes, which have several spellings: look for the longest piece without any.
        needle = max(_NOT_PLAIN.split(name), key=len).encode()
        return Family(needle, re.compile(re.escape(needle) + b".*"), None)
    tails = b"|".join(re.escape(suffix.encode()) for suffix in suffixes)
    begin = re.escape(name.encode()) + (b"(?:" + tails + b")?" if tails else b"")
    follows = rb"[{ \t\r\v\f]" + prefilter
    # A quote behind it: a name in braces, perhaps behind the labels. The prefilter does not apply to such a line.
    pattern = re.compile(begin + b'(?:"|' + follows + b").*")
    usual = re.compile(b"(" + begin + b"(?=" + follows + rb")(?:\{.*\})?)(?: ([^ \t\r\n_]+)$|(.*))", re.MULTILINE)
    return Family(name.encode(), pattern, usual)


class Scanner(Generic[T]):
    """Reads one page in pieces. Memory: the readings, and an incomplete line of at most ``longest_line`` bytes.

    ``resolve`` takes a series as the page spells it and returns its use, or None if it has none; it raises
    BadPageError if that is no series (``parse_series`` does).
    """

    def __init__(
        self,
        families: Iterable[Family],
        resolve: Callable[[bytes], T | None],
        *,
        openmetrics: bool = False,
        longest_line: int = LONGEST_LINE,
    ) -> None:
        self._families = tuple(families)
        self._resolve = resolve
        self._openmetrics = openmetrics
        self._longest_line = longest_line
        self._rest = b""
        self._last_line = b""
        self._found: list[T] = []
        self._values = array("d")

    def feed(self, piece: bytes) -> None:
        """Take the next bytes; BadPageError if the page cannot be read."""
        data = self._rest + piece
        end = data.rfind(b"\n") + 1
        self._rest = data[end:]
        if len(self._rest) > self._longest_line:
            raise BadPageError(f"a line of more than {self._longest_line} bytes")
        if end:
            self._scan(data, end)
            self._last_line = data[max(0, end - len(_EOF) - 3) : end]

    def finish(self, *, whole: bool = False) -> Page[T]:
        """The page. ``whole``: its length is known to be right, so a last line without a newline is a line.

        Otherwise that line is not used, because digits of its value may be missing. OpenMetrics ends with ``# EOF``.
        """
        last = self._rest
        if last and whole:
            self._scan(last, len(last))
        if self._openmetrics:
            ending = (last or self._last_line).splitlines()
            return Page(self._found, self._values, cut_off=not ending or ending[-1] != _EOF)
        return Page(self._found, self._values, cut_off=bool(last) and not whole)

    def _scan(self, data: bytes, end: int) -> None:
        for needle, pattern, usual in self._families:
            begin = data.find(needle, 0, end)
            if begin < 0:
                continue
            if usual:
                if not _begins_lines(needle, data, begin, end):
                    behind = _behind_comments(needle, data, begin, end)
                    self._read_unusual(pattern.finditer(data, begin, behind), data, is_plain=True)
                    begin = behind
                if _begins_lines(needle, data, begin, end):
                    self._read_usual(usual.findall(data, begin, end))
                    continue
            self._read_unusual(pattern.finditer(data, begin, end), data, is_plain=usual is not None)

    def _read_unusual(self, hits: Iterable[re.Match[bytes]], data: bytes, *, is_plain: bool) -> None:
        """Read lines that may have the needle anywhere; a plain name may begin the line."""
        for hit in hits:
            start = hit.start()
            if is_plain and (not start or data[start - 1] == _NEWLINE):
                self._read(hit[0])
            else:
                self._look_back(data, start, hit.end())

    def _read_usual(self, hits: Iterable[tuple[bytes, bytes, bytes]]) -> None:
        """Read lines with as few calls as possible, because there may be thousands."""
        resolve, found, values = self._resolve, self._found.append, self._values.append
        for series, value, rest in hits:
            try:
                number = float(value)
                use = resolve(series)
            except ValueError:  # an exemplar, a timestamp, a digit separator of Python, or no line at all
                self._read(series + (rest or b" " + value))
            else:
                if use is not None:
                    values(number)
                    found(use)

    def _look_back(self, data: bytes, start: int, end: int) -> None:
        """Read a line with the needle inside, unless it is a comment, or begins with another name."""
        line = data[data.rfind(b"\n", 0, start) + 1 : end]
        if not _OTHER.match(line):
            self._read(line.strip())

    def _read(self, line: bytes) -> None:
        """Split a line at its last brace, and strictly if that gives no series: an exemplar may have braces too."""
        try:
            series, fields = split_quickly(line)
            use = self._resolve(series)
        except BadPageError:
            series, fields = split_strictly(line)
            use = self._resolve(series)
        if use is not None:
            self._values.append(value_of(fields, line))
            self._found.append(use)


def _begins_lines(needle: bytes, data: bytes, begin: int, end: int) -> bool:
    """Whether every needle between these places is at the beginning of a line."""
    first = begin == 0 and data.startswith(needle)
    return data.count(needle, begin, end) == data.count(b"\n" + needle, max(0, begin - 1), end) + first


def _behind_comments(needle: bytes, data: bytes, begin: int, end: int) -> int:
    """The place behind the last line that has the needle behind a blank, as the comments before the samples do."""
    named = data.rfind(b" " + needle, max(0, begin - 1), end)
    return begin if named < 0 else data.find(b"\n", named, end) + 1 or end
