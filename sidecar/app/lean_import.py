"""Imports aiohttp without what most sidecars never use: all certificates, and a C++ library.

``import aiohttp`` builds two TLS contexts for clients and reads all certificates into both: 40 ms and 2 MiB in every
sidecar. Later TLS connections use contexts of their own. ``frozenlist`` is compiled C++, whose library alone is 1 MiB;
aiohttp needs it only for the signals of routers and clients, so its version in Python is enough.
"""

from __future__ import annotations

import importlib
import os
from types import MappingProxyType

MEANWHILE = MappingProxyType({"SSL_CERT_FILE": os.devnull, "SSL_CERT_DIR": os.devnull, "FROZENLIST_NO_EXTENSIONS": "1"})
"""The environment during the import: OpenSSL finds no certificates, and ``frozenlist`` uses its version in Python."""


def import_aiohttp() -> None:
    """Import aiohttp with the environment of ``MEANWHILE``, then put everything back."""
    before = {name: os.environ.get(name) for name in MEANWHILE}
    os.environ.update(MEANWHILE)
    try:
        importlib.import_module("aiohttp")
    finally:
        for name, value in before.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value
