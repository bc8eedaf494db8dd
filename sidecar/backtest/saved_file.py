"""A file of the operator, plain or with gzip, read in pieces or by lines."""

from __future__ import annotations

import gzip
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path
from types import TracebackType
from typing import BinaryIO, Final, Self, cast

from sidecar.backtest.past import PastError

LONGEST_LINE: Final = 1 << 20
_GZIP: Final = b"\x1f\x8b"
_MARK: Final = b"\xef\xbb\xbf"
"""The byte order mark, which some editors and exports put first."""

_STANDARD_INPUT: Final = "-"


class SavedFile:
    """One file, as a context; it may be a pipe, and ``-`` is the standard input.

    ``on_bytes`` gets the number of bytes of the file that were read since the last call; of a pipe nobody knows it.
    Raises PastError for a file that cannot be read, and for gzip data that is damaged.
    """

    def __init__(self, path: Path, on_bytes: Callable[[int], None] = lambda _bytes: None) -> None:
        self.path = path
        self._on_bytes = on_bytes
        self._reported = 0
        self._is_first = True

    def __enter__(self) -> Self:
        try:
            is_standard = str(self.path) == _STANDARD_INPUT
            self._raw = open(0, "rb", closefd=False) if is_standard else self.path.open("rb")
            is_gzip = self._raw.peek(len(_GZIP)).startswith(_GZIP)
            self._has_place = self._raw.seekable()
        except OSError as error:
            raise PastError(f"{self.path}: cannot be read: {(error.strerror or str(error)).lower()}") from None
        self._file = cast("BinaryIO", gzip.GzipFile(fileobj=self._raw)) if is_gzip else self._raw
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._raw.close()

    def read(self, size: int) -> bytes:
        """The next bytes; empty at the end."""
        piece = self._guarded(lambda: self._file.read(size))
        if self._is_first:
            self._is_first = False
            piece = piece.removeprefix(_MARK) or self._guarded(lambda: self._file.read(size))
        self._report()
        return piece

    def lines(self) -> Iterator[tuple[int, bytes]]:
        """The lines with their numbers from 1. One of more than ``LONGEST_LINE`` bytes is cut behind the next byte."""
        number = 0
        while line := self._guarded(lambda: self._file.readline(LONGEST_LINE + 1), number + 1):
            number += 1
            part = line
            while len(part) > LONGEST_LINE and not part.endswith(b"\n"):
                part = self._guarded(lambda: self._file.readline(LONGEST_LINE + 1), number)
            yield number, line.removeprefix(_MARK) if number == 1 else line
            if number % 1000 == 0:
                self._report()
        self._report()

    def _report(self) -> None:
        if not self._has_place:
            return
        at = self._raw.tell()
        self._on_bytes(at - self._reported)
        self._reported = at

    def _guarded(self, read: Callable[[], bytes], line: int = 0) -> bytes:
        try:
            return read()
        except (EOFError, zlib.error, gzip.BadGzipFile) as error:
            place = f"{self.path}: line {line}" if line else str(self.path)
            raise PastError(f"{place}: the gzip data is damaged or cut off: {str(error).lower()}") from None
        except OSError as error:
            raise PastError(f"{self.path}: cannot be read: {(error.strerror or str(error)).lower()}") from None
