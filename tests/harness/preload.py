"""Imports all of the sidecar, in the fork server, and leaves its objects out of the collections of the children."""

from __future__ import annotations

import gc
import importlib
import pkgutil
from contextlib import suppress

import sidecar
from sidecar.cli.main import import_aiohttp

import_aiohttp()
for module in pkgutil.walk_packages(sidecar.__path__, "sidecar."):
    if module.name != "sidecar.__main__":
        with suppress(Exception):  # the process that needs it fails by itself
            importlib.import_module(module.name)
gc.collect()
gc.freeze()
