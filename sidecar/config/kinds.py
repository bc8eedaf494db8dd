"""Limits for kinds of errors: text as people write it, checked."""

from __future__ import annotations

import re
from typing import Final

from sidecar.config.addresses import OFF, listed

KIND: Final = re.compile(r"[A-Za-z0-9_.:/-]{1,64}", re.ASCII)
_LIMIT: Final = re.compile(rf"({KIND.pattern}):([0-9]{{1,6}}|{OFF})", re.ASCII)
_HINT: Final = "write kind:limit with a limit of at least 1, or kind:off, as in redis:3,cache:off"


def limits(text: str) -> tuple[tuple[str, int], ...]:
    """Return the kinds of ``redis:3,cache:off`` that have a limit, each with it, or raise ValueError."""
    return tuple((kind, limit) for kind, limit in _parsed(text).items() if limit is not None)


def ignored(text: str) -> tuple[str, ...]:
    """Return the kinds of ``redis:3,cache:off`` whose limit is off, or raise ValueError."""
    return tuple(kind for kind, limit in _parsed(text).items() if limit is None)


def checked_limits(text: str) -> str:
    """Return the text in its one normal form, or raise ValueError."""
    return ",".join(f"{kind}:{OFF if limit is None else limit}" for kind, limit in _parsed(text).items())


def _parsed(text: str) -> dict[str, int | None]:
    found: dict[str, int | None] = {}
    for part in listed(text):
        match = _LIMIT.fullmatch(part)
        limit = None if match and match[2] == OFF else int(match[2]) if match else 0
        if not match or limit == 0:
            raise ValueError(f"has {part[:80]!r}: {_HINT}")
        if match[1] in found:
            raise ValueError(f"has two limits for {match[1]}")
        found[match[1]] = limit
    return found
