"""``GET /events`` at the local listener: the entries of the service's ledger.

An answer waits for the shared store, at most ``limit_s``; after that it has the entries that this sidecar knows.
"""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, Final, NamedTuple

from sidecar.core.claims import Unknown
from sidecar.core.types import Entry
from sidecar.net import web
from sidecar.net.json_fields import Readers, read_pairs
from sidecar.runlock import durations
from sidecar.server import replies

SINCE_S: Final = 3600.0
LONGEST_S: Final = 400 * 24 * 3600.0
MOST: Final = 500
"""Maximum number of entries in one answer."""

AT_ONCE: Final = 50
"""Number of entries that are read in one turn of the loop: with the longest details they take it 1 ms."""

MOST_CHARACTERS: Final = 1_000_000
"""No more entries are read once their details are this long. The next page has them."""

_AFTER: Final = re.compile(r"[0-9,-]{1,400}")
_MOST: Final = re.compile(r"[0-9]{1,4}")

Stored = Callable[[float, str, int], Awaitable[Sequence[Entry] | Unknown]]
"""``(since, after, most)``, as in ``Budget.entries``."""


class LedgerQuery(NamedTuple):
    """Asks for at most ``most`` entries of the last ``since_s`` seconds behind the id ``after``."""

    since_s: float = SINCE_S
    after: str = ""
    most: int = MOST


def get_events(
    stored: Stored,
    local: Callable[[float], Sequence[Entry]],
    *,
    settled: Callable[[], Awaitable[None]],
    identity: Mapping[str, Any],
    wall: Callable[[], float],
    limit_s: float,
) -> web.Handler:
    """Answers with the store's entries, or with those of ``local`` while the store does not answer.

    ``settled`` waits until this sidecar's own entries are in the store. ``local(since)`` takes a Unix second. The
    answer also has ``identity`` (service, instance, mode, enforced percent).
    """

    async def read(since: float, query: LedgerQuery) -> Sequence[Entry] | Unknown:
        entries, characters = list[Entry](), 0
        await settled()
        while (left := query.most - len(entries)) > 0 and characters < MOST_CHARACTERS:
            after = entries[-1].id if entries else query.after
            some = await stored(since, after, min(AT_ONCE, left))
            if isinstance(some, Unknown):
                return some
            if not some:
                break
            entries += some
            characters += sum(len(entry.detail) for entry in some)
        return entries

    async def get(request: web.BaseRequest) -> web.StreamResponse:
        """One page of entries, in the order of their arrival; the next page is ``after`` the last id."""
        query = LedgerQuery(**read_pairs(request.query.items(), _READERS))
        since = wall() - query.since_s
        answer = await replies.within(limit_s, read(since, query))
        is_stored = not isinstance(answer, Unknown)
        entries = local(since)[-query.most :] if isinstance(answer, Unknown) else answer
        fields = {**identity, "events": map(_fields, entries), "stored": is_stored, **replies.unknown_fields(answer)}
        return await replies.respond(request, await replies.dump(fields))

    return get


def _since(value: object) -> float:
    seconds = durations.parse(value)
    if seconds > LONGEST_S:
        raise ValueError("takes at most 400d")
    return seconds


def _after(value: object) -> str:
    if value and not _AFTER.fullmatch(str(value)):
        raise ValueError("takes the id of an event")
    return str(value)


def _most(value: object) -> int:
    if not _MOST.fullmatch(str(value)) or not 1 <= int(str(value)) <= MOST:
        raise ValueError(f"takes 1 to {MOST}")
    return int(str(value))


_READERS: Final[Readers] = {"since": ("since_s", _since), "after": ("after", _after), "most": ("most", _most)}


def _fields(entry: Entry) -> dict[str, Any]:
    """Id and time first, then the rest without ``once``, which is only for the store."""
    fields = entry._asdict()
    del fields["once"]
    return {"id": fields.pop("id"), "at": fields.pop("at"), **fields}
