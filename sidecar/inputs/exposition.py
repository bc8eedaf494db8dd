"""Finds selected series on a metrics page, which comes in pieces of bytes, and parses only their lines.

Text 0.0.4 and OpenMetrics 1.0, with the quoted names of Prometheus 3. It knows nothing of selectors: a ``Family`` has
the bytes to look for, and ``resolve`` returns the use of a series. Other lines are not validated.
"""

from __future__ import annotations

import re
from array import array
from collections.abc import Callable, Iterable
from typing import Final, Generic, NamedTuple, TypeVar

from sidecar.inputs.series import BadPageError, split_line, value_of

T = TypeVar("T")

LONGEST_LINE: Final = 65_536
_EOF: Final = b"# EOF"
_BLANKS: Final = rb"[{ \t\r\v\f]"
_UNUSUAL: Final = re.compile(rb"\n([^\w:#\n].*)")
"""A line that begins with a brace or a blank: its name may stand anywhere in it."""

_NOT_PLAIN: Final = re.compile(r'["\\\n]')
_LEGACY: Final = re.compile(r"[A-Za-z_:][A-Za-z0-9_:]*")


class Family(NamedTuple):
    """What to look for: ``needle`` is in every selected line; ``usual`` finds the lines that begin with it.

    ``usual`` begins with a newline, so each line is tried once, and finds series and value, or series and the rest. It
    is None for a name that has to be quoted: no line can begin with it.
    """

    needle: bytes
    usual: re.Pattern[bytes] | None


class Page(NamedTuple, Generic[T]):
    """The series found on a page, and their values.

    ``cut_off``: the end of the page is missing.
    """

    found: list[T]
    values: array[float]
    cut_off: bool


def family(name: str, suffixes: Iterable[str] = (), prefilter: bytes = b"") -> Family:
    """Finds the lines of ``name`` (in UTF-8) and of ``name`` with each of the suffixes.

    ``prefilter`` is an expression that matches, behind the name, every selected line that begins with it.
    """
    if not _LEGACY.fullmatch(name):
        # Perhaps with escapes, which have several spellings: look for the longest piece without any.
        return Family(max(_NOT_PLAIN.split(name), key=len).encode(), None)
    tails = b"|".join(re.escape(suffix.encode()) for suffix in suffixes)
    series = re.escape(name.encode()) + (b"(?:" + tails + b")?" if tails else b"")
    series += b"(?=" + _BLANKS + prefilter + rb")(?:\{.*\})?"
    return Family(name.encode(), re.compile(rb"\n(" + series + rb")(?: ([^ \t\r\n_]+)$|(.*))", re.MULTILINE))


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
        families = tuple(families)
        self._usual = tuple((b"\n" + each.needle, each.usual) for each in families if each.usual)
        self._needles = tuple(each.needle for each in families)
        self._resolve = resolve
        self._openmetrics = openmetrics
        self._longest_line = longest_line
        self._rest = b"\n"  # begins with the end of the line before
        self._last_line = b""
        self._found: list[T] = []
        self._values = array("d")

    def feed(self, piece: bytes) -> None:
        """Take the next bytes; BadPageError if the page cannot be read."""
        data = self._rest + piece
        end = data.rfind(b"\n")
        self._rest = data[end:]
        if len(self._rest) - 1 > self._longest_line:
            raise BadPageError(f"a line of more than {self._longest_line} bytes")
        if end:
            self._scan(data[: end + 1])
            self._last_line = data[max(0, end - len(_EOF) - 2) : end + 1]

    def finish(self, *, whole: bool = False) -> Page[T]:
        """The page. ``whole``: its length is known to be right, so a last line without a newline is a line.

        Otherwise that line is not used, because digits of its value may be missing. OpenMetrics ends with ``# EOF``.
        """
        last = self._rest[1:]
        if last and whole:
            self._scan(self._rest)
        if self._openmetrics:
            ending = (last or self._last_line).splitlines()
            return Page(self._found, self._values, cut_off=not ending or ending[-1] != _EOF)
        return Page(self._found, self._values, cut_off=bool(last) and not whole)

    def _scan(self, lines: bytes) -> None:
        """Read whole lines, each behind a newline."""
        for begin, usual in self._usual:
            if begin in lines:
                self._read_usual(usual.findall(lines))
        for line in _UNUSUAL.findall(lines):
            if any(needle in line for needle in self._needles):
                self._read(line.strip())

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

    def _read(self, line: bytes) -> None:
        if not line or line.startswith(b"#"):
            return
        series, fields = split_line(line)
        use = self._resolve(series)
        if use is not None:
            self._values.append(value_of(fields, line))
            self._found.append(use)
