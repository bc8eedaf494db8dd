"""Imports, a second after the start, what the first cull needs: earlier the first 200 would wait, later the 503.

A thread imports, so the event loop waits for a few milliseconds at most.
"""

from __future__ import annotations

import asyncio
import importlib
from contextlib import suppress
from typing import Final

from sidecar.net.threads import in_thread

AFTER_S: Final = 1.0
MODULES: Final = ("sidecar.client.redaction",)
"""For the error samples of a cull: 5 ms, 10 ms without bytecode."""


async def import_late() -> None:
    """Import the modules after ``AFTER_S``. A failure is reported where the module is used."""
    await asyncio.sleep(AFTER_S)
    for module in MODULES:
        with suppress(Exception):
            await in_thread(importlib.import_module, module)
