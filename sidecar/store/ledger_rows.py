"""Entries of the ledger as fields of a stream, there and back.

Each entry is written once, also when the reply was lost and it is sent again: the store remembers for a day a digest of
all that the entry says, or for ten minutes the word that the sidecars share who saw the same (``Entry.once``).
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Sequence
from hashlib import blake2b
from typing import Any, Final

from redis.exceptions import InvalidResponse

from sidecar.core.explain.ledger_entries import WHATS
from sidecar.core.types import DETAIL_LIMIT, Entry
from sidecar.store.replies import written

_TEXTS: Final = {"instance": 500, "kind": 500, "reason": 500, "author": 500, "detail": DETAIL_LIMIT}
"""Maximum number of characters of each."""

_LONGEST_NUMBER: Final = 32
_ID: Final = re.compile(rb"([0-9]{1,20})-[0-9]{1,20}")
_AFTER: Final = re.compile(r"[0-9]{1,20}-[0-9]{1,20}")
_LATEST_S: Final = 1e11
"""In the year 5138; what is read has to fit into a date."""


def start(since: float, after: str) -> str:
    """The id of a stream to read from: after this one, or written since (Unix seconds) if it is none."""
    return f"({after}" if _AFTER.fullmatch(after) else str(round(min(max(since, 0), _LATEST_S) * 1000))


def told(entry: Entry) -> Iterator[str]:
    """The entry as ``commit.lua`` takes it."""
    fields = list(_fields(entry))
    yield entry.once or _digest(fields)
    yield str(int(bool(entry.once)))
    yield str(len(fields))
    yield from fields


def page(reply: object) -> list[tuple[str, Entry | None]]:
    """Ids, each with its entry or None for one that is not ours. Raises InvalidResponse."""
    if not isinstance(reply, list):
        raise InvalidResponse("not a list")
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
    return blake2b(b"\0".join(map(written, fields)), digest_size=16).hexdigest()


def _row(row: object) -> tuple[str, Entry | None]:
    if not isinstance(row, list) or len(row) != 2:  # noqa: PLR2004 - an id, and its fields
        raise InvalidResponse("not an entry of a stream")
    name, flat = row
    match = _ID.fullmatch(name) if isinstance(name, bytes) else None
    if match is None:
        raise InvalidResponse("not an id of a stream")
    shown = match[0].decode()
    try:
        return shown, _entry(shown, _time(int(match[1]) / 1000), flat)
    except (ValueError, TypeError, AttributeError):
        return shown, None


def _entry(name: str, arrived_at: float, flat: Any) -> Entry:
    """The entry of a list of names and values; anything but a whole one of ours raises."""
    texts = [value.decode("utf-8", "surrogatepass") for value in flat]
    fields = dict(zip(texts[::2], texts[1::2], strict=True))
    what = fields.get("what")
    if what not in WHATS:
        raise ValueError("not an entry of ours")
    seconds = _number(fields["seconds"]) if "seconds" in fields else None
    at = _number(fields["at"]) if "at" in fields else arrived_at
    about = {name: fields.get(name, "")[:longest] for name, longest in _TEXTS.items()}
    return Entry(what, at, seconds=seconds, id=name, **about)


def _number(text: str) -> float:
    if len(text) > _LONGEST_NUMBER:
        raise ValueError("too long for a number of ours")
    return _time(float(text))


def _time(seconds: float) -> float:
    if not 0 <= seconds <= _LATEST_S:
        raise ValueError("not a time of ours")
    return seconds
