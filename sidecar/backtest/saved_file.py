"""Opens a file of the operator, plain or with gzip."""

from __future__ import annotations

import gzip
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO, Final, cast

from sidecar.backtest.error_counts import PastError

_GZIP: Final = b"\x1f\x8b"


@contextmanager
def opened(path: Path) -> Iterator[BinaryIO]:
    """The file, which may be a pipe. Raises PastError if it cannot be read, also while it is being read."""
    try:
        with path.open("rb") as raw:
            is_gzip = raw.peek(len(_GZIP)).startswith(_GZIP)
            yield cast("BinaryIO", gzip.GzipFile(fileobj=raw)) if is_gzip else raw
    except (EOFError, zlib.error, gzip.BadGzipFile) as error:
        raise PastError(f"{path}: the gzip data is damaged or cut off: {str(error).lower()}") from None
    except OSError as error:
        raise PastError(f"{path}: cannot be read: {(error.strerror or str(error)).lower()}") from None
