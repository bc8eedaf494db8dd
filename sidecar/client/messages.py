"""Which messages go along: the first of each fingerprint in a second, redacted.

In a storm of one error the rest would tell nothing new, would cost the app more than the report itself, and would keep
the sidecar from adding up lines that are otherwise equal.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Final

from sidecar.client.redaction import redacted

EVERY_S: Final = 1.0
REMEMBERED: Final = 512

DUE: Final[dict[str, float]] = {}
"""Fingerprint: when its next message may go, on the monotonic clock."""


def message(fingerprint: str, text: Callable[[], str]) -> str | None:
    """What ``text`` gives, redacted; None when none is due, or when it raises: an app's ``__str__`` may."""
    now = time.monotonic()
    if now < DUE.get(fingerprint, now):
        return None
    if len(DUE) >= REMEMBERED:
        DUE.clear()
    DUE[fingerprint] = now + EVERY_S
    try:
        return redacted(text())
    except Exception:  # noqa: BLE001 - whatever it is, it is not what is being reported
        return None
