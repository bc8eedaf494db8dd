"""The ledger for whoever asks at the local door: what happened to the service, and when.

An answer here may have to wait for the bucket, never for longer than ``limit_s``; then it is what this sidecar knows.
"""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable, Mapping, Sequence
from http import HTTPStatus
from typing import Any, Final, NamedTuple

from sidecar.core.types import Entry, Unknown
from sidecar.net import web
from sidecar.net.listener import Refusal, Routes, json_response
from sidecar.runlock import durations
from sidecar.server import unclear

SINCE_S: Final = 3600.0
LONGEST_S: Final = 400 * 24 * 3600.0
MOST: Final = 500
"""So many at once, and no more: reading them takes the loop some 5 ms, or 20 where hooks printed all that they may."""

_AFTER: Final = re.compile(r"[0-9,-]{1,400}")
_MOST: Final = re.compile(r"[0-9]{1,4}")

Stored = Callable[[float, str, int], Awaitable[Sequence[Entry] | Unknown]]
"""``(since, after, most)``: as ``Budget.entries`` has it."""


class Asked(NamedTuple):
    """What the query says: of the last so many seconds, behind that id, at most so many."""

    since_s: float = SINCE_S
    after: str = ""
    most: int = MOST


class Events:
    """Answers with the entries of the bucket; while that does not answer, with those that ``local`` has.

    ``local`` takes the Unix second since when; ``identity`` stands beside the entries: service, instance,
    mode, and what part of the service enforces.
    """

    def __init__(
        self,
        stored: Stored,
        local: Callable[[float], Sequence[Entry]],
        *,
        identity: Mapping[str, Any],
        wall: Callable[[], float],
        limit_s: float,
    ) -> None:
        self._stored = stored
        self._local = local
        self._identity = identity
        self._wall = wall
        self._limit_s = limit_s

    def routes(self) -> Routes:
        """Routes of the local door."""
        return {"/events": {"GET": self.get}}

    async def get(self, request: web.BaseRequest) -> web.Response:
        """A page of entries in the order in which they arrived; the last id asks for the next page."""
        asked = read_query(tuple(request.query.items()))
        since = self._wall() - asked.since_s
        answer = await unclear.within(self._limit_s, self._stored(since, asked.after, asked.most))
        if isinstance(answer, Unknown):
            told: dict[str, Any] = {"stored": False, **unclear.told(answer)}
            entries: Sequence[Entry] = self._local(since)[-asked.most :]
        else:
            told, entries = {"stored": True}, answer
        return json_response({**self._identity, "events": [_shown(entry) for entry in entries], **told})


def read_query(query: Sequence[tuple[str, str]]) -> Asked:
    """Read the pairs of a query string; Refusal names what cannot be read."""
    fields: dict[str, Any] = {}
    for name, value in query:
        if name not in _READERS or _READERS[name][0] in fields:
            raise _refusal(name[:64], "takes since, after and most, each once")
        field, read = _READERS[name]
        try:
            fields[field] = read(value)
        except ValueError as error:
            raise _refusal(name, str(error)) from None
    return Asked(**fields)


def _refusal(name: str, sentence: str) -> Refusal:
    return Refusal(HTTPStatus.BAD_REQUEST, "query", f"{name}: {sentence}")


def _since(value: str) -> float:
    seconds = durations.parse(value)
    if seconds > LONGEST_S:
        raise ValueError("takes at most 400d")
    return seconds


def _after(value: str) -> str:
    if value and not _AFTER.fullmatch(value):
        raise ValueError("takes the id of an event")
    return value


def _most(value: str) -> int:
    if not _MOST.fullmatch(value) or not 1 <= int(value) <= MOST:
        raise ValueError(f"takes 1 to {MOST}")
    return int(value)


_READERS: Final[Mapping[str, tuple[str, Callable[[str], Any]]]] = {
    "since": ("since_s", _since),
    "after": ("after", _after),
    "most": ("most", _most),
}


def _shown(entry: Entry) -> dict[str, Any]:
    """Where it stands and when it was first, then the rest; the shared word is nobody's business."""
    fields = entry._asdict()
    del fields["once"]
    return {"id": fields.pop("id"), "at": fields.pop("at"), **fields}
