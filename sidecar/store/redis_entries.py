"""The entries of the ledger in Redis: a stream, of which each message has the names and values of one entry.

Each entry is written once, also if a sidecar sends it again after a lost reply: the store remembers a digest of the
entry for a day, or for ten minutes the key that is the same in all sidecars that saw the event (``Entry.once``).
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator
from hashlib import blake2b
from typing import Any, Final

from sidecar.core.types import DETAIL_LIMIT, ENTRY_WORDS, Entry
from sidecar.store.redis_content import ENCODING_ERRORS

_TEXT_LIMITS: Final = {
    **dict.fromkeys(("instance", "kind", "reason", "author"), 500),
    "detail": DETAIL_LIMIT,
    **dict.fromkeys(("node", "app_version"), 64),
}
"""Text of an entry -> its maximum number of characters."""

_ID: Final = re.compile(r"([0-9]{1,20})-[0-9]{1,20}")
_MAX_TIME_S: Final = 1e11
"""In the year 5138: a time has to fit into a date."""


def fields_of(entry: Entry) -> Iterator[str]:
    """The arguments of ``commit.lua`` for the entry: its word, whether several share it, its names and values."""
    fields = list(_fields(entry))
    yield entry.once or blake2b("\0".join(fields).encode(errors=ENCODING_ERRORS), digest_size=16).hexdigest()
    yield str(int(bool(entry.once)))
    yield str(len(fields))
    yield from fields


def _fields(entry: Entry) -> Iterator[str]:
    yield from ("what", entry.what)
    for name, longest in _TEXT_LIMITS.items():
        if text := getattr(entry, name)[:longest]:
            yield from (name, text)
    if entry.seconds is not None and math.isfinite(entry.seconds):
        yield from ("seconds", f"{entry.seconds:.3f}")
    if entry.at:
        yield from ("at", f"{entry.at:.6f}")


def start_id(since: float, after: str) -> str:
    """The first id to read: after the id ``after``, else written ``since`` (Unix seconds)."""
    return f"({after}" if _ID.fullmatch(after) else str(round(min(max(since, 0), _MAX_TIME_S) * 1000))


def entries(reply: Any) -> list[tuple[str, Entry | None]]:
    """Ids of a stream, each with its entry; None if no sidecar wrote it. Raises as the readers of ``redis_content``."""
    return [_entry_or_none(name.decode(), flat) for name, flat in reply]


def _entry_or_none(name: str, flat: Any) -> tuple[str, Entry | None]:
    match = _ID.fullmatch(name)
    if match is None:
        raise ValueError("not an id of a stream")
    try:
        return name, _entry(name, int(match[1]) / 1000, flat)
    except (ValueError, TypeError, AttributeError):
        return name, None


def _entry(name: str, arrived_at: float, flat: Any) -> Entry:
    """The entry from a list of names and values. Raises ValueError, TypeError or AttributeError for others."""
    texts = [value.decode(errors=ENCODING_ERRORS) for value in flat]
    fields = dict(zip(texts[::2], texts[1::2], strict=True))
    what = fields.get("what")
    if what not in ENTRY_WORDS:
        raise ValueError("not an entry of ours")
    seconds = _time(fields["seconds"]) if "seconds" in fields else None
    words = {name: fields.get(name, "")[:longest] for name, longest in _TEXT_LIMITS.items()}
    return Entry(what, _time(fields.get("at", arrived_at)), seconds=seconds, id=name, **words)


def _time(seconds: str | float) -> float:
    if not 0 <= (number := float(seconds)) <= _MAX_TIME_S:
        raise ValueError("not a time of ours")
    return number
