"""Converts entries of the ledger to the fields of a Redis stream, and back.

The store writes each entry once, also if a sidecar sends it again after a lost reply: it remembers a digest of the
entry for a day, or for ten minutes the key that is the same in all sidecars that saw the event (``Entry.once``).
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Sequence
from hashlib import blake2b
from typing import Any, Final

from sidecar.core.types import DETAIL_LIMIT, ENTRY_WORDS, Entry
from sidecar.store.replies import ENCODING_ERRORS

_TEXTS: Final = {
    "instance": 500,
    "kind": 500,
    "reason": 500,
    "author": 500,
    "detail": DETAIL_LIMIT,
    "node": 64,
    "app_version": 64,
}
"""Field -> its maximum number of characters."""

_MAX_NUMBER_LENGTH: Final = 32
_ID: Final = re.compile(rb"([0-9]{1,20})-[0-9]{1,20}")
_AFTER: Final = re.compile(r"[0-9]{1,20}-[0-9]{1,20}")
_MAX_TIME_S: Final = 1e11
"""In the year 5138: a time has to fit into a date."""


def start(since: float, after: str) -> str:
    """The first id to read: after the id ``after``, else written ``since`` (Unix seconds)."""
    return f"({after}" if _AFTER.fullmatch(after) else str(round(min(max(since, 0), _MAX_TIME_S) * 1000))


def fields_of(entry: Entry) -> Iterator[str]:
    """The arguments of ``commit.lua`` for the entry."""
    fields = list(_fields(entry))
    yield entry.once or _digest(fields)
    yield str(int(bool(entry.once)))
    yield str(len(fields))
    yield from fields


def page(reply: Any) -> list[tuple[str, Entry | None]]:
    """Ids, each with its entry, None if that was not written by a sidecar. Raises one of ``replies.UNREADABLE``."""
    return [_row(row) for row in reply]


def _fields(entry: Entry) -> Iterator[str]:
    yield from ("what", entry.what)
    for name, longest in _TEXTS.items():
        if text := getattr(entry, name)[:longest]:
            yield from (name, text)
    if entry.seconds is not None and math.isfinite(entry.seconds):
        yield from ("seconds", f"{entry.seconds:.3f}")
    if entry.at:
        yield from ("at", f"{entry.at:.6f}")


def _digest(fields: Sequence[str]) -> str:
    return blake2b("\0".join(fields).encode(errors=ENCODING_ERRORS), digest_size=16).hexdigest()


def _row(row: Any) -> tuple[str, Entry | None]:
    name, flat = row
    match = _ID.fullmatch(name)
    if match is None:
        raise ValueError("not an id of a stream")
    shown = match[0].decode()
    try:
        return shown, _entry(shown, _time(int(match[1]) / 1000), flat)
    except (ValueError, TypeError, AttributeError):
        return shown, None


def _entry(name: str, arrived_at: float, flat: Any) -> Entry:
    """The entry from a list of names and values. Raises ValueError, TypeError or AttributeError for others."""
    texts = [value.decode(errors=ENCODING_ERRORS) for value in flat]
    fields = dict(zip(texts[::2], texts[1::2], strict=True))
    what = fields.get("what")
    if what not in ENTRY_WORDS:
        raise ValueError("not an entry of ours")
    seconds = _number(fields["seconds"]) if "seconds" in fields else None
    at = _number(fields["at"]) if "at" in fields else arrived_at
    about = {name: fields.get(name, "")[:longest] for name, longest in _TEXTS.items()}
    return Entry(what, at, seconds=seconds, id=name, **about)


def _number(text: str) -> float:
    if len(text) > _MAX_NUMBER_LENGTH:
        raise ValueError("too long for a number of ours")
    return _time(float(text))


def _time(seconds: float) -> float:
    if not 0 <= seconds <= _MAX_TIME_S:
        raise ValueError("not a time of ours")
    return seconds
