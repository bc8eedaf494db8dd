"""Reads answers of Prometheus to ``query_range`` in pieces, so that a month of a fleet needs no memory.

The one known shape is ``{"data":{"resultType":"matrix","result":[{"metric":{..},"values":[[t,"v"],..]},..]}}``
(https://prometheus.io/docs/prometheus/latest/querying/api/); several answers may follow each other. A general parser
of JSON would make an object of each point, which takes minutes for 34.5 million. Here a piece of many points is checked
by counts of its brackets and quotes, split once, and converted by ``map``.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from typing import Any, Final, NamedTuple

PIECE: Final = 1 << 22
LARGEST_VALUE: Final = 1 << 20
"""Bytes of the labels of one series, or of any other part but its points."""

_SPACE: Final = re.compile(rb"[ \t\r\n]*")
_END: Final = re.compile(rb"\][ \t\r\n]*\]")
_SPACES_AND_SIGNS: Final = b'[]" \t\r\n'
_decode: Final = json.JSONDecoder().raw_decode


class MatrixError(ValueError):
    """The text is no answer to ``query_range``; it says what is wrong, behind which byte."""


class Points(NamedTuple):
    """A run of points of one series: Unix times and values, as texts."""

    times: list[bytes]
    values: list[bytes]


class SeriesRun(NamedTuple):
    """One series of an answer: its labels, and its points, to be read before the next series."""

    labels: dict[str, str]
    points: Iterator[Points]


def series(read: Callable[[int], bytes]) -> Iterator[SeriesRun]:
    """The series of all answers that ``read`` gives. Raises MatrixError, and what ``read`` raises."""
    text = _Text(read)
    if text.peek() == b"<":
        raise text.problem("this is a web page, not JSON: perhaps that of a login")
    while True:
        yield from _answer(text)
        if not text.peek():
            return


def _answer(text: _Text) -> Iterator[SeriesRun]:
    found = False
    for key in text.members():
        if key == "data":
            found = True
            yield from _data(text)
        elif key == "error":
            raise text.problem(f"Prometheus answered with an error: {text.value()}")
        else:
            text.value()
    if not found:
        raise text.problem("the answer has no data")


def _data(text: _Text) -> Iterator[SeriesRun]:
    for key in text.members():
        if key == "result":
            for _ in text.items():
                yield from _series(text)
        elif (value := text.value()) != "matrix" and key == "resultType":
            raise text.problem(f"the answer is a {value}, not a matrix: it has to be one of query_range")


def _series(text: _Text) -> Iterator[SeriesRun]:
    labels: dict[str, str] | None = None
    for key in text.members():
        if key == "metric":
            found = text.value()
            if not isinstance(found, dict) or not all(isinstance(value, str) for value in found.values()):
                raise text.problem("metric: the labels have to be texts")
            labels = found
        elif key == "values":
            if labels is None:
                raise text.problem("values: the labels (metric) have to come before them")
            run = text.points()
            yield SeriesRun(labels, run)
            for _ in run:  # whatever was left unread
                pass
        elif key == "value":
            raise text.problem("the answer is one of query, not of query_range: each series has one value")
        else:
            raise text.problem(f"{key}: not understood; only counters can be read, not native histograms")


class _Text:
    """The text from left to right, in pieces."""

    def __init__(self, read: Callable[[int], bytes]) -> None:
        self._read = read
        self._buffer = b""
        self._at = 0
        self._before = 0

    def problem(self, sentence: str) -> MatrixError:
        """An error with the place."""
        return MatrixError(f"byte {self._before + self._at:,}: {sentence}")

    def peek(self) -> bytes:
        """The next byte that is no space; empty at the end."""
        while True:
            self._at = _SPACE.match(self._buffer, self._at).end()  # type: ignore[union-attr]  # it always matches
            if self._at < len(self._buffer) or not self._more():
                return self._buffer[self._at : self._at + 1]

    def members(self) -> Iterator[str]:
        """The keys of an object; the caller reads each value before the next key."""
        for _ in self._parts(b"{", b"}"):
            key = self.value()
            if not isinstance(key, str):
                raise self.problem("expected a key in quotes")
            self._take(b":")
            yield key

    def items(self) -> Iterator[None]:
        """The items of an array; the caller reads each of them."""
        return self._parts(b"[", b"]")

    def value(self) -> Any:
        """A small value."""
        self.peek()
        while True:
            rest = self._buffer[self._at : self._at + LARGEST_VALUE]
            try:
                found, end = _decode(rest.decode())
            except ValueError as error:
                if len(rest) >= LARGEST_VALUE or not self._more():
                    raise self.problem(f"not JSON: {_cause(error, rest)}") from None
                continue
            taken = len(rest.decode()[:end].encode())
            if taken < len(rest) or not self._more():  # a number may go on in the next piece
                self._at += taken
                return found

    def points(self) -> Iterator[Points]:
        """The points of an array ``[[t,"v"],..]``, in runs."""
        self._take(b"[")
        if self.peek() == b"]":
            self._at += 1
            return
        while True:
            end = _END.search(self._buffer, self._at)
            cut = end.start() + 1 if end else self._buffer.rfind(b"],", self._at) + 1
            if cut > self._at:
                yield self._split(self._buffer[self._at : cut])
                self._at = end.end() if end else cut + 1
            if end:
                return
            if not self._more():
                raise self.problem("the end of the answer is missing")

    def _split(self, text: bytes) -> Points:
        words = text.translate(None, _SPACES_AND_SIGNS).split(b",")
        count = len(words) // 2
        signs = [text.count(sign) for sign in (b"[", b"]", b'"')]
        if signs != [count, count, 2 * count] or len(words) != 2 * count or b"_" in text:
            raise self.problem('expected points such as [1700000000,"12"]')
        return Points(words[0::2], words[1::2])

    def _parts(self, begin: bytes, end: bytes) -> Iterator[None]:
        self._take(begin)
        if self.peek() == end:
            self._at += 1
            return
        while True:
            yield
            if self.peek() == end:
                self._at += 1
                return
            self._take(b",")

    def _take(self, sign: bytes) -> None:
        found = self.peek()
        if found != sign:
            raise self.problem(f"expected {sign.decode()}" + ("" if found else ", but the text ends"))
        self._at += 1

    def _more(self) -> bool:
        piece = self._read(PIECE)
        self._before += self._at
        self._buffer = self._buffer[self._at :] + piece
        self._at = 0
        return bool(piece)


def _cause(error: ValueError, rest: bytes) -> str:
    if not rest:
        return "the text ends"
    return error.msg.lower() if isinstance(error, json.JSONDecodeError) else "it is not UTF-8 text"
