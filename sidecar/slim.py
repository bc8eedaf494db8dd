"""Imports aiohttp without the certificates of the world's authorities.

``import aiohttp`` builds two TLS contexts for clients and reads all certificates into both: 40 ms and 2 MiB in every
sidecar, for a client that most of them never use. Whoever makes a TLS connection later brings a context of its own.
"""

from __future__ import annotations

import importlib
import os

PLACES = ("SSL_CERT_FILE", "SSL_CERT_DIR")


def import_aiohttp() -> None:
    """Import aiohttp while OpenSSL looks for certificates where there are none, then put everything back."""
    before = {name: os.environ.get(name) for name in PLACES}
    os.environ.update(dict.fromkeys(PLACES, os.devnull))
    try:
        importlib.import_module("aiohttp.web")
    finally:
        for name, value in before.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value
