"""The token that opens what is not for everybody: a bearer token (RFC 6750) in a file, compared and never told.

The file is read at each use, for it is small and may change at any time; nobody who asks for health comes by here.
"""

from __future__ import annotations

import hmac
import os
import stat
from pathlib import Path
from typing import Final

SHORTEST: Final = 16
LONGEST: Final = 4096
"""Bytes; what is shorter can be guessed, and is no token; nor does a larger file hold one."""


class Token:
    """What stands in the file at ``path``, without the white space round it."""

    def __init__(self, path: str) -> None:
        self._path = Path(path)

    def matches(self, header: str | None) -> bool:
        """Whether this ``Authorization`` brings the token; False whenever there is none to compare it with."""
        scheme, _, given = (header or "").partition(" ")
        token = self._read()
        is_same = hmac.compare_digest(given.strip().encode("utf-8", "surrogateescape"), token)
        return is_same and bool(token) and scheme.lower() == "bearer"

    @property
    def is_there(self) -> bool:
        """Whether there is any token at all."""
        return bool(self._read())

    @property
    def headers(self) -> dict[str, str]:
        """What a request takes to bring it; nothing if there is none."""
        token = self._read().decode("latin-1")
        return {"Authorization": f"Bearer {token}"} if token else {}

    def _read(self) -> bytes:
        try:
            content = _content(self._path)
        except (OSError, ValueError):  # also for a path that no file system would take
            return b""
        token = content.strip()
        return token if len(token) >= SHORTEST and len(content) <= LONGEST else b""


def _content(path: Path) -> bytes:
    """What a regular file holds, and one byte more than it may: at anything else one could wait for ever."""
    handle = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    try:
        return os.read(handle, LONGEST + 1) if stat.S_ISREG(os.fstat(handle).st_mode) else b""
    finally:
        os.close(handle)
