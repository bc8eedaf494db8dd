"""What the app reports, as the fields of the JSON objects that the sidecar's local listener reads.

Characters that the listener would refuse become ``_``, because one bad object would refuse the whole request.
"""

from __future__ import annotations

import re
from functools import lru_cache
from typing import Final, NamedTuple

LEVELS: Final = frozenset({"server_error", "client_error", "investigation", "recovered"})
OTHER: Final = "other"
WORD_LIMIT: Final = 64
"""Characters of a kind, a fingerprint and the start of an app."""

MESSAGE_LIMIT: Final = 200
"""Characters. Messages are for readers of ``/why``, and requests have to stay small."""

MOST: Final = 1_000_000
"""Maximum number in one object; the next request has the rest."""

_NOT_IN_A_WORD: Final = re.compile(r"[^A-Za-z0-9_.:/-]", re.ASCII)
_NOT_IN_A_TOKEN: Final = re.compile(r"[^\x21-\x7e]")


class ReportSeries(NamedTuple):
    """What is added up in one number, and leaves in one object."""

    path: str  # of the listener
    field: str  # that has the number
    tags: tuple[tuple[str, str | bool], ...] = ()  # the other fields
    folded: ReportSeries | None = None  # to count in if too many wait; None: there is no wider one


HEARTBEAT: Final = ReportSeries("/heartbeat", "")
OK: Final = ReportSeries("/results", "ok")
FAILED: Final = ReportSeries("/results", "failed")


@lru_cache(maxsize=512)
def errors(
    level: str, kind: str | None, fingerprint: str | None, app_start: str | None, *, fatal: bool = False
) -> ReportSeries:
    """Return the series of these errors. Raises ValueError for an unknown level, which the listener would refuse."""
    if level not in LEVELS:
        raise ValueError(f"level: takes one of {', '.join(sorted(LEVELS))}")
    tags: dict[str, str | bool] = {"level": level}
    if kind:
        tags["kind"] = _NOT_IN_A_WORD.sub("_", str(kind)[:WORD_LIMIT])
    if fingerprint:
        tags["fingerprint"] = _NOT_IN_A_TOKEN.sub("_", str(fingerprint)[:WORD_LIMIT])
    if app_start:
        tags["app_start"] = _NOT_IN_A_TOKEN.sub("_", str(app_start)[:WORD_LIMIT])
    if fatal:
        tags["fatal"] = True
    folded = None if kind == OTHER and not fingerprint else errors(level, OTHER, None, app_start, fatal=fatal)
    return ReportSeries("/errors", "count", tuple(tags.items()), folded)
