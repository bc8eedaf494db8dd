"""The files that show who speaks: a bearer token (RFC 6750), a certificate and its key.

Commands read the file of the token directly. In the sidecar a thread reads it (``request_check``): the disk may hang.
Nothing here loads an event loop, so that a command starts quickly.
"""

from __future__ import annotations

import hmac
import os
import ssl
import stat
from pathlib import Path
from typing import Final, NamedTuple

SHORTEST: Final = 16
"""Bytes. A shorter token could be guessed and is not valid."""

LONGEST: Final = 4096


class Token:
    """The content of the file at ``path``, without surrounding white space. It is read at each use."""

    def __init__(self, path: str) -> None:
        self._path = Path(path)

    @property
    def is_there(self) -> bool:
        """Whether the file holds a token."""
        return bool(self.read())

    @property
    def headers(self) -> dict[str, str]:
        """The headers of a request that needs the token; empty if there is none."""
        token = self.read().decode("latin-1")
        return {"Authorization": f"Bearer {token}"} if token else {}

    def read(self) -> bytes:
        """The token as it is now, ``b""`` if there is none."""
        try:
            content = _content(self._path)
        except (OSError, ValueError):  # ValueError: no file system takes such a path
            return b""
        token = content.strip()
        return token if len(token) >= SHORTEST and len(content) <= LONGEST else b""


def bearer_token(header: str | None) -> bytes:
    """The token in an ``Authorization`` header, ``b""`` if it has none."""
    scheme, _, token = (header or "").partition(" ")
    return token.strip().encode("utf-8", "surrogateescape") if scheme.lower() == "bearer" else b""


def is_same(given: bytes, token: bytes) -> bool:
    """Compare in constant time; False whenever there is no token to compare with."""
    return hmac.compare_digest(given, token) and bool(token)


def _content(path: Path) -> bytes:
    """At most ``LONGEST`` + 1 bytes of a regular file; reading anything else might never end."""
    handle = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    try:
        return os.read(handle, LONGEST + 1) if stat.S_ISREG(os.fstat(handle).st_mode) else b""
    finally:
        os.close(handle)


class KeyPair(NamedTuple):
    """The paths of a certificate and of its key, both in PEM."""

    cert: str
    key: str


def first_pem(path: str) -> str:
    """The first certificate of this file; ValueError if there is none."""
    text = Path(path).read_text("latin-1")
    begin = text.index(ssl.PEM_HEADER)
    return text[begin : text.index(ssl.PEM_FOOTER, begin) + len(ssl.PEM_FOOTER)]


def no_password() -> bytes:
    """Give none for a key: without this OpenSSL would ask the terminal."""
    return b""
