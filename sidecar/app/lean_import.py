"""Imports aiohttp's server without its client, which most sidecars never use: 25 ms and 2.3 MiB.

``import aiohttp`` runs the package's ``__init__``, which imports the client. Here ``__init__`` runs when something asks
the package for the first name that is not one of its modules, such as ``ClientSession``. The client builds two TLS
contexts as it is imported, and reads all certificates into both: 40 ms and 2 MiB. Later TLS connections use contexts of
their own, so it gets to see no certificates. ``frozenlist`` is compiled C++, whose library alone is 1 MiB; the client
gets its version in Python.
"""

from __future__ import annotations

import importlib.util
import os
import sys
from types import MappingProxyType
from typing import Any

MEANWHILE = MappingProxyType({"SSL_CERT_FILE": os.devnull, "SSL_CERT_DIR": os.devnull, "FROZENLIST_NO_EXTENSIONS": "1"})
"""The environment during the import: OpenSSL finds no certificates, and ``frozenlist`` uses its version in Python."""


def defer_client() -> None:
    """Let the modules of ``aiohttp`` be imported alone; ``__init__`` runs at the first name that is not a module."""
    spec = importlib.util.find_spec("aiohttp")
    if "aiohttp" in sys.modules or spec is None or spec.loader is None:
        return
    package, loader = importlib.util.module_from_spec(spec), spec.loader

    def complete(name: str) -> Any:
        if name.startswith("__") or importlib.util.find_spec(f"aiohttp.{name}") is not None:
            raise AttributeError(name)  # ``import`` tries a module next
        del vars(package)["__getattr__"]
        before = {each: os.environ.get(each) for each in MEANWHILE}
        os.environ.update(MEANWHILE)
        try:
            loader.exec_module(package)
        finally:
            for each, value in before.items():
                if value is None:
                    del os.environ[each]
                else:
                    os.environ[each] = value
        return getattr(package, name)

    # The server writes the version in headers, which this project replaces.
    vars(package).update(__version__="", __getattr__=complete)
    sys.modules["aiohttp"] = package


def import_client() -> None:
    """Import aiohttp's client now, if it is not there yet: later the event loop would wait for it."""
    importlib.import_module("aiohttp").ClientSession  # noqa: B018 - see defer_client
