"""The token that opens what is not for everybody: a bearer token (RFC 6750) in a file, compared and never told.

The file is read at each use, for it is small and may change at any time. That waits for its disk: fit for a command,
and for a thread (``admission``), never for a loop.
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

    @property
    def is_there(self) -> bool:
        """Whether there is any token at all."""
        return bool(self.read())

    @property
    def headers(self) -> dict[str, str]:
        """What a request takes to bring it; nothing if there is none."""
        token = self.read().decode("latin-1")
        return {"Authorization": f"Bearer {token}"} if token else {}

    def read(self) -> bytes:
        """The token that is there now, ``b""`` if there is none."""
        try:
            content = _content(self._path)
        except (OSError, ValueError):  # also for a path that no file system would take
            return b""
        token = content.strip()
        return token if len(token) >= SHORTEST and len(content) <= LONGEST else b""


def given(header: str | None) -> bytes:
    """What an ``Authorization`` header brings, ``b""`` if that is no bearer token."""
    scheme, _, token = (header or "").partition(" ")
    return token.strip().encode("utf-8", "surrogateescape") if scheme.lower() == "bearer" else b""


def is_same(brought: bytes, token: bytes) -> bool:
    """Whether that is the token, in constant time; False whenever there is none to compare it with."""
    return hmac.compare_digest(brought, token) and bool(token)


def _content(path: Path) -> bytes:
    """What a regular file holds, and one byte more than it may: at anything else one could wait for ever."""
    handle = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    try:
        return os.read(handle, LONGEST + 1) if stat.S_ISREG(os.fstat(handle).st_mode) else b""
    finally:
        os.close(handle)
