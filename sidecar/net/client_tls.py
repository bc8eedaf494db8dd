"""The files of a certificate; it loads no event loop, so that a command starts quickly."""

from __future__ import annotations

import ssl
from pathlib import Path
from typing import NamedTuple


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
