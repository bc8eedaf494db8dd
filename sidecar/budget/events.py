"""The ledger in Redis: a capped stream of entries, and who of a fleet may say a word first.

Each entry is written once, also when the reply was lost and it is sent again: the script remembers for a day a digest
of all that the entry says, or for ten minutes the word that the sidecars share who saw the same (``Entry.once``).
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterator, Sequence
from hashlib import blake2b
from secrets import token_hex
from typing import Any, Final, TypeVar

from redis.exceptions import InvalidResponse, NoScriptError

from sidecar.budget import scripts
from sidecar.budget.link import Link
from sidecar.budget.replies import written
from sidecar.budget.scripts import Script
from sidecar.core.ledger import WHATS
from sidecar.core.stream import NOTED_S, SHARED_S
from sidecar.core.words import DETAIL_LIMIT, US_PER_S, Entry

T = TypeVar("T")

KEPT_S: Final = 35 * 24 * 3600
"""So long the ledger of a service that has ended stays, for the report of the month."""

_TEXTS: Final = {"instance": 500, "kind": 500, "reason": 500, "author": 500, "detail": DETAIL_LIMIT}
"""How many characters each may have."""

_LONGEST_NUMBER: Final = 32
_ID: Final = re.compile(rb"([0-9]{1,20})-[0-9]{1,20}")
_AFTER: Final = re.compile(r"[0-9]{1,20}-[0-9]{1,20}")
_LATEST_S: Final = 1e11
"""In the year 5138; what is read has to fit into a date."""

_MOST_PAGES: Final = 20
_MOST_UNCLEAR: Final = 100


class Events:
    """The stream ``<prefix>:events`` over ``link``; it keeps about ``most`` entries."""

    def __init__(self, link: Link, prefix: str, most: int) -> None:
        self._link = link
        self._prefix = prefix
        self._stream, self._noted = f"{prefix}:events", f"{prefix}:noted"
        self._limits = (most, KEPT_S * 1000, NOTED_S * US_PER_S, SHARED_S * US_PER_S)
        self._unclear: dict[str, str] = {}

    async def note(self, entries: Sequence[Entry]) -> int:
        """How many of the entries had not been written yet. Raises what the link raises, as all here do."""
        if not entries:
            return 0
        told = [field for entry in entries for field in _told(entry)]
        return await self._run(scripts.read_note(), _count, (self._stream, self._noted), (*self._limits, *told))

    async def entries(self, since: float, after: str, most: int) -> list[Entry]:
        """At most so many entries, in the order in which they arrived: after that id, written since (Unix seconds).

        What is no entry of ours is passed over. An empty list is the end.
        """
        start = f"({after}" if _AFTER.fullmatch(after) else str(round(min(max(since, 0), _LATEST_S) * 1000))
        for _ in range(_MOST_PAGES):
            page = await self._link.ask(_page, "XRANGE", written(self._stream), start, "+", "COUNT", str(most))
            read = [entry for _, entry in page if entry is not None]
            if read or len(page) < most:
                return read
            start = f"({page[-1][0]}"
        return []

    async def first(self, word: str, for_s: float) -> bool:
        """Whether nobody said the word before us within the time that they named.

        Who got no clear answer to it asks again as the same caller, so that a reply that was lost silences nobody.
        """
        caller = self._unclear.setdefault(word, token_hex(8))
        while len(self._unclear) > _MOST_UNCLEAR:
            del self._unclear[next(iter(self._unclear))]
        keys, arguments = (f"{self._prefix}:first:{word}",), (caller, max(1, round(for_s * 1000)))
        was_first = await self._run(scripts.read_first(), _flag, keys, arguments)
        self._unclear.pop(word, None)
        return was_first

    async def _run(
        self, script: Script, read: Callable[[object], T], keys: tuple[str, ...], arguments: tuple[Any, ...]
    ) -> T:
        rest: list[str | bytes] = [
            str(len(keys)),
            *map(written, keys),
            *(written(str(argument)) for argument in arguments),
        ]
        try:
            return await self._link.ask(read, "EVALSHA", script.sha, *rest)
        except NoScriptError:
            return await self._link.ask(read, "EVAL", script.text, *rest)


# -- writing ----------------------------------------------------------------------------------------------------


def _told(entry: Entry) -> Iterator[object]:
    """The entry as ``note.lua`` takes it."""
    fields = list(_fields(entry))
    yield entry.once or _digest(fields)
    yield int(bool(entry.once))
    yield len(fields)
    yield from fields


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


# -- reading ----------------------------------------------------------------------------------------------------


def _count(reply: object) -> int:
    if not isinstance(reply, int) or reply < 0:
        raise InvalidResponse("not a count")
    return reply


def _flag(reply: object) -> bool:
    if reply not in (0, 1):
        raise InvalidResponse("not a flag")
    return reply == 1


def _page(reply: object) -> list[tuple[str, Entry | None]]:
    """Ids, each with its entry or None for one that is not ours."""
    if not isinstance(reply, list):
        raise InvalidResponse("not a list")
    return [_row(row) for row in reply]


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
