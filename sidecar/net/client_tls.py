"""What a client needs to speak TLS with a sidecar; it loads no event loop, so that a command starts quickly."""

from __future__ import annotations

import ssl
from pathlib import Path
from typing import NamedTuple


class KeyPair(NamedTuple):
    """The paths of a certificate and of its key, both in PEM."""

    cert: str
    key: str


def certificate(path: str) -> bytes | None:
    """The first certificate of this file in DER; None if there is none."""
    try:
        return ssl.PEM_cert_to_DER_cert(first_pem(path))
    except (OSError, ValueError):
        return None


def client_context(pair: KeyPair | None = None) -> ssl.SSLContext:
    """A context for clients that compare certificates themselves: it accepts any, if the server has its key.

    ``pair``: what the client shows if the server asks for a certificate; OSError if it cannot be used.
    """
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    if pair is not None:
        context.load_cert_chain(*pair, password=no_password)
    return context


def first_pem(path: str) -> str:
    """The first certificate of this file; ValueError if there is none."""
    text = Path(path).read_text("latin-1")
    begin = text.index(ssl.PEM_HEADER)
    return text[begin : text.index(ssl.PEM_FOOTER, begin) + len(ssl.PEM_FOOTER)]


def no_password() -> bytes:
    """Give none for a key: without this OpenSSL would ask the terminal."""
    return b""
