"""Limits messages to the first of each fingerprint in a second, redacted.

During a storm of one error, more messages would say nothing new and cost the app more than the report itself, and the
emitter could not add up lines that are otherwise equal.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Final

from .redaction import redacted

EVERY_S: Final = 1.0
REMEMBERED: Final = 512

DUE: Final[dict[str, float]] = {}
"""When the next message of each fingerprint may be sent, in monotonic seconds."""


def message(fingerprint: str, text: Callable[[], str]) -> str | None:
    """Return ``text()``, redacted; None if no message is due, or if ``text`` raises, as a ``__str__`` may."""
    now = time.monotonic()
    if now < DUE.get(fingerprint, now):
        return None
    if len(DUE) >= REMEMBERED:
        DUE.clear()
    DUE[fingerprint] = now + EVERY_S
    try:
        return redacted(text())
    except Exception:  # noqa: BLE001 - the report itself matters more
        return None
