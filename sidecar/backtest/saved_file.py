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


class SavedFile:
    """One file, as a context. ``on_bytes`` gets the number of bytes of the file that were read since the last call.

    Raises PastError for a file that cannot be read, and for gzip data that is damaged.
    """

    def __init__(self, path: Path, on_bytes: Callable[[int], None] = lambda _bytes: None) -> None:
        self.path = path
        self._on_bytes = on_bytes
        self._reported = 0

    def __enter__(self) -> Self:
        try:
            self._raw = self.path.open("rb")
            is_gzip = self._raw.read(len(_GZIP)) == _GZIP
            self._raw.seek(0)
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
        self._report()
        return piece

    def lines(self) -> Iterator[tuple[int, bytes]]:
        """The lines with their numbers from 1. Raises PastError for one of more than a megabyte."""
        number = 0
        while line := self._guarded(lambda: self._file.readline(LONGEST_LINE + 1), number + 1):
            number += 1
            if len(line) > LONGEST_LINE:
                raise PastError(f"{self.path}: line {number}: has more than {LONGEST_LINE} bytes")
            yield number, line
            if number % 1000 == 0:
                self._report()
        self._report()

    def _report(self) -> None:
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
