"""Settings that name kinds of errors: text as people write it, checked."""

from __future__ import annotations

import re
from typing import Final

from sidecar.config.addresses import listed

KIND: Final = re.compile(r"[A-Za-z0-9_.:/-]{1,64}", re.ASCII)
LIMIT: Final = re.compile(r"([A-Za-z0-9_.:/-]{1,64}):([0-9]{1,6})", re.ASCII)


def names(text: str) -> tuple[str, ...]:
    """Return the kinds of ``redis,mysql``, or raise ValueError."""
    kinds = listed(text)
    for kind in kinds:
        if not KIND.fullmatch(kind):
            raise ValueError(f"has {kind[:64]!r}, which is no kind: 1 to 64 of A-Z a-z 0-9 _ . : / -")
    return kinds


def limits(text: str) -> tuple[tuple[str, int], ...]:
    """Return the kinds of ``redis:3,mysql:5`` with their limits, or raise ValueError."""
    pairs: dict[str, int] = {}
    for part in listed(text):
        match = LIMIT.fullmatch(part)
        if not match or not int(match[2]):
            raise ValueError(f"has {part[:80]!r}: write kind:limit with a limit of at least 1, as in redis:3,mysql:5")
        if match[1] in pairs:
            raise ValueError(f"has two limits for {match[1]}")
        pairs[match[1]] = int(match[2])
    return tuple(pairs.items())


def checked_names(text: str) -> str:
    """Return ``names(text)`` in its one normal form, or raise ValueError."""
    return ",".join(names(text))


def checked_limits(text: str) -> str:
    """Return ``limits(text)`` in its one normal form, or raise ValueError."""
    return ",".join(f"{kind}:{limit}" for kind, limit in limits(text))
